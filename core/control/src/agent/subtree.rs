//! Subtree of an agent: the links to its children, and the nodes that are reached through them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kumi_sched::{NodeId, Timetable};

use crate::message::{NodeDescription, NodeSet};
use crate::tree::{LinkId, Routes};

/// A tree as deep as this has a fan-out of 1; anything longer is nonsense.
const MOST_HOPS: usize = 1 << 12;

/// The nodes below an agent.
#[derive(Debug, Default)]
pub(super) struct Subtree {
    links: BTreeSet<LinkId>,
    routes: Routes,
}

impl Subtree {
    pub(super) fn routes(&self) -> &Routes {
        &self.routes
    }

    pub(super) fn routes_mut(&mut self) -> &mut Routes {
        &mut self.routes
    }

    pub(super) fn add_link(&mut self, link: LinkId) {
        self.links.insert(link);
    }

    pub(super) fn has_link(&self, link: LinkId) -> bool {
        self.links.contains(&link)
    }

    pub(super) fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// A child's link is gone. Returns the nodes that are not reached any more.
    pub(super) fn remove_link(&mut self, link: LinkId) -> Vec<NodeId> {
        self.links.remove(&link);
        self.routes.drop_link(link)
    }

    /// Takes nodes that are reached through `link` from now on; returns those. `own` is the agent's.
    pub(super) fn attach(
        &mut self,
        link: LinkId,
        nodes: Vec<NodeDescription>,
        own: NodeId,
    ) -> Vec<NodeDescription> {
        let mut nodes = nodes;
        nodes.retain(|node| {
            node.node != own && !node.path.is_empty() && node.path.len() <= MOST_HOPS
        });
        nodes.retain(|node| self.routes.attach(link, node.clone()));
        nodes
    }
}

/// The columns of `nodes` only; nodes know themselves which idle jobs they have.
pub(crate) fn columns_of(timetable: &Timetable, nodes: &NodeSet) -> Timetable {
    let columns = timetable.columns.iter().filter(|column| nodes.contains(column.node));
    Timetable {
        generation: timetable.generation,
        start: timetable.start,
        slice_ns: timetable.slice_ns,
        phase_ns: timetable.phase_ns,
        mode: timetable.mode,
        columns: columns.cloned().collect(),
        idle: timetable.idle.clone(),
    }
}

/// `first .. first + count`, bounded by what a node can hold: both may come from the wire.
pub(super) fn rank_numbers(first: u32, count: u32) -> Vec<u32> {
    (first..first.saturating_add(count.min(1 << 16))).collect()
}
