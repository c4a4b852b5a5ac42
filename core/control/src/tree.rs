//! Shape of the control tree, and the routes through it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use crate::message::{Hop, NodeDescription, NodeSet};

/// Fan-out of the tree unless the configuration says otherwise (8 to 16 were best in the
/// measurements of Hori, SCore-D, on 64 nodes).
pub const DEFAULT_FAN_OUT: u32 = 16;

/// A connection to a child; given by the driver, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// A daemon to which another may attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// The head itself.
    Head,
    /// The daemon of this node.
    Node(NodeId),
}

/// The parents of `node` of `nodes`, in order of preference: its parent in the complete tree of
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

/// A node and all that may attach to it, directly or not: those of whose candidates it is one.
pub fn subtree(node: NodeId, nodes: u32, fan_out: u32) -> NodeSet {
    let below = |&other: &NodeId| {
        let above = || parent_candidates(other, nodes, fan_out).contains(&Parent::Node(node));
        other == node || above()
    };
    NodeSet::from_nodes((0..nodes).map(NodeId).filter(below))
}

/// Through which child each node of a subtree is reached.
///
/// A node that moves from one parent to another may be announced on its new path before its old
/// one is known to be gone, and the old parent, when it moves itself, may announce it once more.
/// The paths tell: two paths of a node are the same up to some daemon, which attached twice, and
/// its later link is the one that lives.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    reached: BTreeMap<NodeId, Route>,
    /// The newest path by which each node was ever announced.
    newest: BTreeMap<NodeId, Vec<Hop>>,
}

#[derive(Clone, Debug)]
struct Route {
    link: LinkId,
    description: NodeDescription,
}

/// Whether `path` is not older than `newest`. A lower incarnation is only believed of a node that
/// is not reached any more: clocks may be set back between two starts of a daemon.
fn is_current(path: &[Hop], newest: &[Hop], reached: bool) -> bool {
    match path.iter().zip(newest).find(|(hop, newest)| hop != newest) {
        Some((hop, newest)) if hop.incarnation != newest.incarnation => {
            hop.incarnation > newest.incarnation || !reached
        }
        Some((hop, newest)) => hop.attachment > newest.attachment,
        None => true,
    }
}

impl Routes {
    /// A node is announced on `link`. Returns whether it is reached there from now on; otherwise
    /// the announcement was outdated, and changes nothing.
    pub fn attach(&mut self, link: LinkId, description: NodeDescription) -> bool {
        let node = description.node;
        let reached = self.reached.contains_key(&node);
        let current = |newest: &Vec<Hop>| is_current(&description.path, newest, reached);
        if !self.newest.get(&node).is_none_or(current) {
            return false;
        }
        self.newest.insert(node, description.path.clone());
        self.reached.insert(node, Route { link, description });
        true
    }

    /// `link` no longer reaches these nodes. Returns those that now are not reached at all. The set
    /// may come from the wire.
    pub fn detach(&mut self, link: LinkId, nodes: &NodeSet) -> Vec<NodeId> {
        let gone = |node: NodeId, route: &Route| route.link == link && nodes.contains(node);
        self.drop_where(gone)
    }

    /// `link` is gone. Returns the nodes that now are not reached.
    pub fn drop_link(&mut self, link: LinkId) -> Vec<NodeId> {
        self.drop_where(|_, route| route.link == link)
    }

    fn drop_where(&mut self, gone: impl Fn(NodeId, &Route) -> bool) -> Vec<NodeId> {
        let lost = self.reached.iter().filter(|(node, route)| gone(**node, route));
        let lost: Vec<NodeId> = lost.map(|(&node, _)| node).collect();
        for node in &lost {
            self.reached.remove(node);
        }
        lost
    }

    /// The link that reaches `node`.
    pub fn link(&self, node: NodeId) -> Option<LinkId> {
        self.reached.get(&node).map(|route| route.link)
    }

    /// The nodes that are reached, ascending.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.reached.keys().copied()
    }

    /// How many nodes are reached.
    pub fn reached(&self) -> usize {
        self.reached.len()
    }

    /// Those of `nodes` that are reached by `link`. The set may come from the wire.
    pub fn among(&self, link: LinkId, nodes: &NodeSet) -> Vec<NodeId> {
        let here = self.reached.iter().filter(|(_, route)| route.link == link);
        here.map(|(&node, _)| node).filter(|&node| nodes.contains(node)).collect()
    }

    /// Descriptions of the nodes that are reached, ascending.
    pub fn descriptions(&self) -> impl Iterator<Item = &NodeDescription> + '_ {
        self.reached.values().map(|route| &route.description)
    }

    /// Those of `nodes` that are reached, by link. The set may come from the wire.
    pub fn by_link(&self, nodes: &NodeSet) -> BTreeMap<LinkId, NodeSet> {
        let mut groups: BTreeMap<LinkId, Vec<NodeId>> = BTreeMap::new();
        for (&node, route) in self.reached.iter().filter(|(node, _)| nodes.contains(**node)) {
            groups.entry(route.link).or_default().push(node);
        }
        groups.into_iter().map(|(link, nodes)| (link, NodeSet::from_nodes(nodes))).collect()
    }

    /// Notes that `node` was sent a job, so that an announcement of the node names it.
    pub fn job_begins(&mut self, node: NodeId, job: JobId, ranks: Vec<u32>) {
        if let Some(route) = self.reached.get_mut(&node) {
            route.description.jobs.retain(|(known, _)| *known != job);
            route.description.jobs.push((job, ranks));
        }
    }

    /// Notes that nothing of the job is left on `node` (`forgotten`: nor any report of it).
    pub fn job_ends(&mut self, node: NodeId, job: JobId, forgotten: bool) {
        let Some(route) = self.reached.get_mut(&node) else { return };
        if forgotten {
            route.description.jobs.retain(|(known, _)| *known != job);
        }
        for (_, ranks) in route.description.jobs.iter_mut().filter(|(known, _)| *known == job) {
            ranks.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;

    /// `path`: the attachments of the daemons on the way, all in their first incarnation.
    fn description(node: u32, path: &[u64]) -> NodeDescription {
        let hop = |&attachment| Hop { incarnation: 1, attachment };
        NodeDescription {
            node: NodeId(node),
            incarnation: 1,
            name: String::new(),
            processors: 1,
            memory: 0,
            devices: Vec::new(),
            max_ranks: 16,
            limits: Vec::new(),
            jobs: Vec::new(),
            path: path.iter().map(hop).collect(),
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
    fn an_outdated_announcement_does_not_move_the_node() {
        let (old, new) = (LinkId(1), LinkId(2));
        let mut routes = Routes::default();
        assert!(routes.attach(old, description(5, &[1, 1])));
        assert!(routes.attach(new, description(5, &[2, 7])));
        assert!(!routes.attach(old, description(5, &[1, 2])), "its parent moved, it had left");
        let all = NodeSet::from_nodes([NodeId(5), NodeId(6)]);
        assert_eq!(routes.detach(old, &all), [], "the old parent no longer speaks for it");
        assert_eq!(routes.link(NodeId(5)), Some(new));
        assert!(routes.attach(new, description(5, &[2, 7])), "said again");
        assert_eq!(routes.drop_link(new), [NodeId(5)]);
        assert!(!routes.attach(old, description(5, &[1, 3])), "outdated all the same");
        assert!(routes.attach(new, description(5, &[2, 8])));
    }

    #[test]
    fn a_restarted_daemon_is_believed() {
        let mut routes = Routes::default();
        let second = |incarnation| {
            let mut description = description(5, &[1]);
            description.path[0].incarnation = incarnation;
            description
        };
        assert!(routes.attach(LinkId(1), description(5, &[9])));
        assert!(routes.attach(LinkId(2), second(8)));
        assert!(!routes.attach(LinkId(1), second(3)));
        routes.drop_link(LinkId(2));
        assert!(routes.attach(LinkId(3), second(3)), "the clock was set back");
    }

    #[test]
    fn jobs_are_followed() {
        let mut routes = Routes::default();
        routes.attach(LinkId(1), description(5, &[1]));
        routes.job_begins(NodeId(5), JobId(1), [0, 1].into());
        routes.job_begins(NodeId(5), JobId(2), [7].into());
        routes.job_ends(NodeId(5), JobId(1), false);
        routes.job_ends(NodeId(5), JobId(2), true);
        let jobs = &routes.descriptions().next().unwrap().jobs;
        assert_eq!(*jobs, [(JobId(1), Vec::new())]);
    }

    #[test]
    fn nodes_are_found_by_their_links() {
        let (left, right) = (LinkId(1), LinkId(2));
        let mut routes = Routes::default();
        for (link, node) in [(left, 1), (right, 2), (left, 3), (right, 4)] {
            assert!(routes.attach(link, description(node, &[1])));
        }
        assert_eq!(routes.reached(), 4);
        assert!(routes.nodes().eq([1, 2, 3, 4].map(NodeId)));
        assert_eq!(
            [1, 4, 5].map(|node| routes.link(NodeId(node))),
            [Some(left), Some(right), None]
        );
        let some = NodeSet::from_nodes([2, 3, 4, 9].map(NodeId));
        assert_eq!(routes.among(right, &some), [NodeId(2), NodeId(4)]);
        assert_eq!(routes.among(LinkId(3), &some), []);
        let groups = routes.by_link(&some);
        let expected = [(left, vec![3]), (right, vec![2, 4])];
        assert_eq!(groups.len(), 2);
        for (link, nodes) in expected {
            assert_eq!(groups[&link], NodeSet::from_nodes(nodes.into_iter().map(NodeId)));
        }
        assert_eq!(routes.detach(left, &some), [NodeId(3)], "of its own");
        assert_eq!(routes.drop_link(right), [NodeId(2), NodeId(4)]);
        assert!(routes.nodes().eq([NodeId(1)]));
    }

    #[test]
    fn paths_are_compared_where_they_part() {
        let hop = |incarnation, attachment| Hop { incarnation, attachment };
        let newest = [hop(5, 1), hop(5, 4)];
        for (path, current) in [
            (&[hop(5, 1), hop(5, 4)][..], true),
            (&[hop(5, 1)], true),
            (&[], true),
            (&[hop(5, 1), hop(5, 5)], true),
            (&[hop(5, 1), hop(5, 3)], false),
            (&[hop(5, 0), hop(5, 9)], false),
            (&[hop(6, 0), hop(5, 0)], true),
        ] {
            assert_eq!(is_current(path, &newest, true), current, "{path:?}");
            assert_eq!(is_current(path, &newest, false), current, "{path:?}");
        }
        let earlier = [hop(4, 9), hop(5, 9)];
        assert!(!is_current(&earlier, &newest, true) && is_current(&earlier, &newest, false));
    }

    #[test]
    fn a_job_that_begins_again_is_listed_once() {
        let mut routes = Routes::default();
        routes.attach(LinkId(1), description(5, &[1]));
        routes.job_begins(NodeId(5), JobId(1), [0].into());
        routes.job_begins(NodeId(5), JobId(2), [1].into());
        routes.job_begins(NodeId(5), JobId(1), [2, 3].into());
        routes.job_begins(NodeId(6), JobId(1), [4].into());
        let jobs = &routes.descriptions().next().unwrap().jobs;
        assert_eq!(*jobs, [(JobId(2), Vec::from([1])), (JobId(1), Vec::from([2, 3]))]);
    }
}
