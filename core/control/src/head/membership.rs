//! Membership of the cluster: its nodes, the links that reach them, their leases, and who is away.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{ClusterTime, NodeId};

use super::HeadConfig;
use super::capacity::{Capacity, NodeSizes};
use super::drains::Drains;
use super::time::HeadTime;
use crate::message::{Command, Drain, Nanos, NodeDescription, NodeSet};
use crate::subtree::Subtree;
use crate::tree::LinkId;

/// How much later than its lease says a node has certainly ended its jobs: clocks differ a little, and killing takes time.
const LEASE_MARGIN: Nanos = 1_000_000_000;

/// By then a node that has attached knows the cluster's clock.
const CLOCK_KNOWN: Nanos = 1_000_000_000;

/// When the jobs of a node that is away fail.
#[derive(Clone, Copy, Debug)]
struct AbsenceDeadline {
    /// On the clock that counts only time in which the head ran: what the node sent may wait to be read.
    observed: Nanos,
    /// On the machine's clock: the lease of the node is over, so it has killed its jobs itself.
    latest: Nanos,
}

/// The nodes of the cluster.
#[derive(Debug)]
pub(super) struct Membership {
    lease: Nanos,
    /// How long a node may be away before its jobs fail.
    grace: Nanos,
    /// Each configured node's description of itself, from its last attachment.
    descriptions: Vec<Option<NodeDescription>>,
    /// Numbers of nodes that were removed.
    removed: BTreeSet<NodeId>,
    away: BTreeMap<NodeId, AbsenceDeadline>,
    /// Until when nodes that are not attached may run jobs.
    lease_ends: BTreeMap<NodeId, Nanos>,
    tree: Subtree,
    drains: Drains,
    /// Of what is known and takes jobs.
    sizes: NodeSizes,
    lease_due: Nanos,
}

impl Membership {
    pub(super) fn new(config: &HeadConfig) -> Self {
        let removed: BTreeSet<NodeId> = config.removed.iter().copied().collect();
        let is_node = |node: NodeId| {
            let number = usize::try_from(node.0).unwrap_or(usize::MAX);
            number < config.nodes.len() && !removed.contains(&node)
        };
        let drains = Drains::new(&config.drains, is_node);
        Self {
            removed,
            lease: config.lease_ns,
            grace: config.detach_grace_ns,
            descriptions: config.nodes.iter().map(|_| None).collect(),
            away: BTreeMap::new(),
            lease_ends: BTreeMap::new(),
            tree: Subtree::default(),
            drains,
            sizes: NodeSizes::default(),
            lease_due: 0,
        }
    }

    pub(super) fn is_configured(&self, node: NodeId) -> bool {
        let known = usize::try_from(node.0).is_ok_and(|number| number < self.descriptions.len());
        known && !self.removed.contains(&node)
    }

    /// How many nodes the cluster has.
    pub(super) fn count(&self) -> u32 {
        let removed = self.removed.len();
        u32::try_from(self.descriptions.len().saturating_sub(removed)).unwrap_or(u32::MAX)
    }

    /// The cluster has so many numbers of nodes from now on, no fewer than before, of which these are of removed nodes.
    pub(super) fn configure(&mut self, nodes: usize, removed: &[NodeId]) {
        if nodes > self.descriptions.len() {
            self.descriptions.resize(nodes, None);
        }
        for &node in removed {
            let place = usize::try_from(node.0).ok();
            if let Some(said) = place.and_then(|place| self.descriptions.get_mut(place)) {
                *said = None;
                self.removed.insert(node);
                self.drains.remove(node);
                self.away.remove(&node);
            }
        }
        self.count_sizes();
    }

    /// What the nodes have.
    pub(super) fn capacity(&self, starting: bool) -> Capacity<'_> {
        self.sizes.capacity((self.count(), self.drains.count()), starting)
    }

    /// The nodes that are drained.
    pub(super) fn drains(&self) -> &Drains {
        &self.drains
    }

    /// Whether the node may get new jobs.
    pub(super) fn takes_jobs(&self, node: NodeId) -> bool {
        let takes = !self.drains.contains(node) && !self.removed.contains(&node);
        takes && self.is_attached(node)
    }

    /// The node gets no new jobs.
    pub(super) fn drain(&mut self, drain: Drain) {
        self.drains.insert(drain);
        self.count_sizes();
    }

    /// The node gets jobs again. Returns whether it was drained.
    pub(super) fn resume(&mut self, node: NodeId) -> bool {
        let drained = self.drains.remove(node);
        self.count_sizes();
        drained
    }

    /// What a node said of itself when it last attached.
    pub(super) fn description(&self, node: NodeId) -> Option<&NodeDescription> {
        self.descriptions.get(usize::try_from(node.0).ok()?)?.as_ref()
    }

    /// The configured nodes with what they said of themselves when they last attached, ascending.
    pub(super) fn descriptions(
        &self,
    ) -> impl Iterator<Item = (NodeId, Option<&NodeDescription>)> + '_ {
        let all = (0..).map(NodeId).zip(&self.descriptions);
        let configured = all.filter(|(node, _)| !self.removed.contains(node));
        configured.map(|(node, said)| (node, said.as_ref()))
    }

    /// All nodes that are attached, with the links that reach them.
    pub(super) fn tree(&self) -> &Subtree {
        &self.tree
    }

    /// The same, for links and nodes that go, and for new links. New nodes come by [`Membership::attach`].
    pub(super) fn tree_mut(&mut self) -> &mut Subtree {
        &mut self.tree
    }

    /// The nodes that are attached.
    pub(super) fn attached(&self) -> NodeSet {
        NodeSet::from_nodes(self.tree.routes().nodes())
    }

    pub(super) fn is_attached(&self, node: NodeId) -> bool {
        self.tree.routes().link(node).is_some()
    }

    /// The grant of a lease at `now`.
    pub(super) fn grant(&self, now: Nanos) -> Command {
        Command::Lease { until: ClusterTime(now.saturating_add(self.lease)), nanos: self.lease }
    }

    /// Until when a node may run jobs, if it is not attached and may at all.
    pub(super) fn lease_end(&self, node: NodeId, now: Nanos) -> Option<Nanos> {
        self.lease_ends.get(&node).copied().filter(|&end| end > now)
    }

    /// No lease of a head before this one lasts longer.
    pub(super) fn last_lease_end(&self, now: Nanos) -> Nanos {
        now.saturating_add(self.lease).saturating_add(LEASE_MARGIN)
    }

    /// How long nodes have to attach again after a restart of the head. A node that does not hear
    /// of the new head within this time has killed its jobs.
    pub(super) fn restart_grace(&self) -> Nanos {
        self.lease.saturating_add(self.grace)
    }

    /// Takes configured nodes that are reached through `link` from now on; returns those.
    pub(super) fn attach(
        &mut self,
        link: LinkId,
        nodes: Vec<NodeDescription>,
    ) -> Vec<NodeDescription> {
        let (configured, removed) = (self.descriptions.len(), &self.removed);
        let acceptable = |node: &NodeDescription| {
            (node.node.0 as usize) < configured && !removed.contains(&node.node)
        };
        let nodes = self.tree.attach(link, nodes, acceptable);
        for node in &nodes {
            self.away.remove(&node.node);
            self.lease_ends.remove(&node.node);
            self.descriptions[node.node.0 as usize] = Some(node.clone());
        }
        self.count_sizes();
        nodes
    }

    /// To be called after nodes have left the tree.
    pub(super) fn count_sizes(&mut self) {
        self.sizes = NodeSizes::of(&self.descriptions, |node| self.takes_jobs(node));
    }

    /// Away from now on, with so much time to come back.
    fn deadline(&self, time: &HeadTime, grace: Nanos) -> AbsenceDeadline {
        let longest = grace.max(self.restart_grace());
        AbsenceDeadline {
            observed: time.observed().elapsed().saturating_add(grace),
            latest: time.now().saturating_add(longest),
        }
    }

    /// The node is away, and has a little time to come back; as long as after a restart of the head if that is to be `patient`.
    pub(super) fn set_away(&mut self, node: NodeId, time: &HeadTime, patient: bool) {
        if self.is_configured(node) {
            let grace = if patient { self.restart_grace() } else { self.grace };
            let deadline = self.deadline(time, grace);
            self.away.insert(node, deadline);
            self.lease_ends.insert(node, self.last_lease_end(time.now()));
        }
    }

    /// After a restart of the head: these nodes have some time to attach again.
    pub(super) fn expect(&mut self, nodes: impl Iterator<Item = NodeId>, time: &HeadTime) {
        let deadline = self.deadline(time, self.restart_grace());
        self.away = nodes.map(|node| (node, deadline)).collect();
        let end = self.last_lease_end(time.now());
        self.lease_ends = self.away.keys().map(|&node| (node, end)).collect();
    }

    /// The nodes that have been away too long, each once.
    pub(super) fn take_lost(&mut self, time: &HeadTime) -> Vec<NodeId> {
        let (observed, now) = (time.observed().elapsed(), time.now());
        let late = |away: &AbsenceDeadline| observed >= away.observed || now >= away.latest;
        let lost: Vec<NodeId> =
            self.away.iter().filter(|(_, away)| late(away)).map(|(&node, _)| node).collect();
        for node in &lost {
            self.away.remove(node);
        }
        lost
    }

    /// Nodes attached at `now`. Their idea of the cluster's clock may be wrong until then, so leases are renewed once it is not.
    pub(super) fn renew_soon(&mut self, now: Nanos) {
        self.lease_due = self.lease_due.min(now.saturating_add(CLOCK_KNOWN));
    }

    /// Whether it is time to renew the leases, well before they run out; then the next time is set.
    pub(super) fn take_lease_due(&mut self, now: Nanos) -> bool {
        let due = now >= self.lease_due;
        if due {
            self.lease_due = now.saturating_add((self.lease / 3).max(1));
        }
        due
    }

    /// When a node is lost or a lease is to be renewed next.
    pub(super) fn next_deadline(&self, time: &HeadTime) -> Option<Nanos> {
        let due =
            |away: &AbsenceDeadline| time.observed().next_advance(away.observed).min(away.latest);
        let lost = self.away.values().map(due).min();
        let lease = self.tree.has_links().then_some(self.lease_due);
        lost.into_iter().chain(lease).min()
    }
}
