//! Subtree below an agent or the head: the links to its children, and the nodes that each of them reaches.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kumi_sched::{NodeId, Timetable};

use crate::message::{NodeDescription, NodeSet};
use crate::tree::{LinkId, Routes};

/// The nodes below an agent or the head.
#[derive(Debug, Default)]
pub(crate) struct Subtree {
    links: BTreeSet<LinkId>,
    routes: Routes,
}

impl Subtree {
    /// The links through which the nodes are reached.
    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The same, to note what nodes are sent.
    pub(crate) fn routes_mut(&mut self) -> &mut Routes {
        &mut self.routes
    }

    pub(crate) fn add_link(&mut self, link: LinkId) {
        self.links.insert(link);
    }

    pub(crate) fn has_link(&self, link: LinkId) -> bool {
        self.links.contains(&link)
    }

    pub(crate) fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// A child's link is gone. Returns the nodes that are not reached any more.
    pub(crate) fn remove_link(&mut self, link: LinkId) -> Vec<NodeId> {
        self.links.remove(&link);
        self.routes.drop_link(link)
    }

    /// `link` no longer reaches these nodes. Returns those that are not reached any more.
    pub(crate) fn detach(&mut self, link: LinkId, nodes: &NodeSet) -> Vec<NodeId> {
        self.routes.detach(link, nodes)
    }

    /// The acceptable nodes are reached through `link` from now on, unless their announcement is outdated.
    /// Returns those that are.
    pub(crate) fn attach(
        &mut self,
        link: LinkId,
        mut nodes: Vec<NodeDescription>,
        acceptable: impl Fn(&NodeDescription) -> bool,
    ) -> Vec<NodeDescription> {
        nodes.retain(|node| acceptable(node) && self.routes.attach(link, node.clone()));
        nodes
    }
}

/// The columns of `nodes` only; nodes know themselves which idle jobs they have. Takes time for every one of `nodes`, so it is
/// no set from the wire.
pub(crate) fn columns_of(timetable: &Timetable, nodes: &NodeSet) -> Timetable {
    let columns = nodes.iter().filter_map(|node| timetable.column(node));
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
