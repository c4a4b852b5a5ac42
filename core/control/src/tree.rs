//! The shape of the control tree and the routes through it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use crate::message::{NodeDescription, NodeSet};

/// Fan-out of the tree unless the configuration says otherwise (8 to 16 were best in the
/// measurements of Hori, SCore-D, on 64 nodes).
pub const DEFAULT_FAN_OUT: u32 = 16;

/// A connection to a child; given by the driver, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Who a daemon may attach to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// The head itself.
    Head,
    /// The daemon of this node.
    Node(NodeId),
}

/// Whom `node` of `nodes` attaches to, in order of preference: its parent in the complete tree of
/// this fan-out (0 is taken as 1), then the parent's parent and so on up to the head. A daemon
/// whose parent is gone attaches to the next, so that no circle can arise.
pub fn parent_candidates(node: NodeId, nodes: u32, fan_out: u32) -> Vec<Parent> {
    let fan_out = fan_out.max(1);
    let mut candidates = Vec::new();
    // The head is the root, in front of node 0: node i stands at place i + 1.
    let mut place = node.0.min(nodes.saturating_sub(1)) / fan_out;
    while place > 0 {
        candidates.push(Parent::Node(NodeId(place - 1)));
        place = (place - 1) / fan_out;
    }
    candidates.push(Parent::Head);
    candidates
}

/// Through which child each node of a subtree is reached.
///
/// A node that moves from one parent to another may be announced on its new path before its old
/// one is known to be gone, and in the worst case an old announcement arrives after the new one.
/// So every link's claim on a node is kept until that link takes it back, and the latest is used.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    claims: BTreeMap<NodeId, Vec<Claim>>,
}

#[derive(Clone, Debug)]
struct Claim {
    link: LinkId,
    description: NodeDescription,
}

/// What became of nodes that a link no longer reaches.
#[derive(Clone, Debug, Default)]
pub struct Rerouted {
    /// Not reached any more.
    pub lost: Vec<NodeId>,
    /// Reached by another link, and what was known of them there.
    pub moved: Vec<(LinkId, NodeDescription)>,
}

impl Routes {
    /// A node is reached through `link` from now on.
    pub fn attach(&mut self, link: LinkId, description: NodeDescription) {
        let claims = self.claims.entry(description.node).or_default();
        claims.retain(|claim| claim.link != link);
        claims.push(Claim { link, description });
    }

    /// `link` no longer reaches these nodes. The set may come from the wire.
    pub fn detach(&mut self, link: LinkId, nodes: &NodeSet) -> Rerouted {
        let mut rerouted = Rerouted::default();
        for (&node, claims) in self.claims.iter_mut().filter(|(node, _)| nodes.contains(**node)) {
            let used = claims.last().is_some_and(|claim| claim.link == link);
            claims.retain(|claim| claim.link != link);
            match claims.last() {
                None => rerouted.lost.push(node),
                Some(claim) if used => rerouted.moved.push((claim.link, claim.description.clone())),
                Some(_) => {}
            }
        }
        self.claims.retain(|_, claims| !claims.is_empty());
        rerouted
    }

    /// `link` is gone.
    pub fn drop_link(&mut self, link: LinkId) -> Rerouted {
        let claimed = |claims: &&Vec<Claim>| claims.iter().any(|claim| claim.link == link);
        let nodes = self.claims.iter().filter(|(_, claims)| claimed(claims));
        let nodes = NodeSet::from_nodes(nodes.map(|(&node, _)| node));
        self.detach(link, &nodes)
    }

    /// The link that reaches `node`.
    pub fn link(&self, node: NodeId) -> Option<LinkId> {
        self.claims.get(&node)?.last().map(|claim| claim.link)
    }

    /// Whether `link` has a claim on `node`, used or not.
    pub fn claimed(&self, link: LinkId, node: NodeId) -> bool {
        self.claims.get(&node).is_some_and(|claims| claims.iter().any(|claim| claim.link == link))
    }

    /// The nodes that are reached, ascending.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.claims.keys().copied()
    }

    /// What is known of the nodes that are reached, ascending.
    pub fn descriptions(&self) -> impl Iterator<Item = &NodeDescription> + '_ {
        self.claims.values().filter_map(|claims| claims.last()).map(|claim| &claim.description)
    }

    /// Those of `nodes` that are reached, by link. The set may come from the wire.
    pub fn by_link(&self, nodes: &NodeSet) -> BTreeMap<LinkId, NodeSet> {
        let mut groups: BTreeMap<LinkId, Vec<NodeId>> = BTreeMap::new();
        for (&node, claims) in self.claims.iter().filter(|(node, _)| nodes.contains(**node)) {
            if let Some(claim) = claims.last() {
                groups.entry(claim.link).or_default().push(node);
            }
        }
        groups.into_iter().map(|(link, nodes)| (link, NodeSet::from_nodes(nodes))).collect()
    }

    /// Notes that `node` was sent a job, so that an announcement of the node names it.
    pub fn job_begins(&mut self, node: NodeId, job: JobId, ranks: Vec<u32>) {
        if let Some(claim) = self.claims.get_mut(&node).and_then(|claims| claims.last_mut()) {
            claim.description.jobs.retain(|(known, _)| *known != job);
            claim.description.jobs.push((job, ranks));
        }
    }

    /// Notes that nothing of the job is left on `node` (`forgotten`: nor any report of it).
    pub fn job_ends(&mut self, node: NodeId, job: JobId, forgotten: bool) {
        let Some(claim) = self.claims.get_mut(&node).and_then(|claims| claims.last_mut()) else {
            return;
        };
        if forgotten {
            claim.description.jobs.retain(|(known, _)| *known != job);
        }
        for (_, ranks) in claim.description.jobs.iter_mut().filter(|(known, _)| *known == job) {
            ranks.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn description(node: u32) -> NodeDescription {
        NodeDescription {
            node: NodeId(node),
            incarnation: 1,
            name: String::new(),
            processors: 1,
            max_ranks: 16,
            limits: Vec::new(),
            jobs: Vec::new(),
        }
    }

    #[test]
    fn shape() {
        assert_eq!(parent_candidates(NodeId(0), 64, 4), [Parent::Head]);
        assert_eq!(parent_candidates(NodeId(3), 64, 4), [Parent::Head]);
        let node = |node| Parent::Node(NodeId(node));
        assert_eq!(parent_candidates(NodeId(4), 64, 4), [node(0), Parent::Head]);
        assert_eq!(parent_candidates(NodeId(63), 64, 4), [node(14), node(2), Parent::Head]);
        assert_eq!(parent_candidates(NodeId(9), 64, 0).len(), 10);
        assert_eq!(parent_candidates(NodeId(0), 0, 16), [Parent::Head]);
    }

    #[test]
    fn nobody_has_more_children_than_the_fan_out() {
        for fan_out in [1, 2, 4, 16, 100] {
            let mut children: BTreeMap<Option<NodeId>, u32> = BTreeMap::new();
            for node in 0..200 {
                let parent = match parent_candidates(NodeId(node), 200, fan_out)[0] {
                    Parent::Head => None,
                    Parent::Node(parent) => {
                        assert!(parent.0 < node);
                        Some(parent)
                    }
                };
                *children.entry(parent).or_default() += 1;
            }
            assert!(children.values().all(|&count| count <= fan_out));
        }
    }

    #[test]
    fn an_announcement_that_comes_late_does_not_lose_the_node() {
        let (old, new) = (LinkId(1), LinkId(2));
        let mut routes = Routes::default();
        routes.attach(new, description(5));
        routes.attach(old, description(5));
        assert_eq!(routes.link(NodeId(5)), Some(old));
        let all = NodeSet::from_nodes([NodeId(5), NodeId(6)]);
        let rerouted = routes.detach(old, &all);
        assert!(rerouted.lost.is_empty());
        assert_eq!(rerouted.moved[0].0, new);
        assert_eq!(routes.link(NodeId(5)), Some(new));
        assert_eq!(routes.drop_link(new).lost, [NodeId(5)]);
        assert_eq!(routes.nodes().count(), 0);
    }

    #[test]
    fn jobs_are_followed() {
        let mut routes = Routes::default();
        routes.attach(LinkId(1), description(5));
        routes.job_begins(NodeId(5), JobId(1), [0, 1].into());
        routes.job_begins(NodeId(5), JobId(2), [7].into());
        routes.job_ends(NodeId(5), JobId(1), false);
        routes.job_ends(NodeId(5), JobId(2), true);
        let jobs = &routes.descriptions().next().unwrap().jobs;
        assert_eq!(*jobs, [(JobId(1), Vec::new())]);
    }
}
