//! Of which nodes a report speaks: a daemon speaks for its own node and those below it, and for no others.

use crate::message::{NodeSet, Report};

/// Whether all nodes of a set from the wire are among these.
fn among(set: &NodeSet, below: &NodeSet) -> bool {
    set.len() == below.intersection(set).len()
}

impl Report {
    /// Whether it speaks of nodes in `below` only.
    #[must_use]
    pub fn is_about(&self, below: &NodeSet) -> bool {
        match self {
            Self::Attached(nodes) => nodes.iter().all(|node| below.contains(node.node)),
            Self::Prepared { nodes, .. } => nodes.iter().all(|node| below.contains(node.node)),
            Self::Samples { nodes, .. } => nodes.iter().all(|node| below.contains(node.node)),
            Self::RankFailed { node, .. } | Self::Output { node, .. } => below.contains(*node),
            Self::Detached(nodes)
            | Self::ProgramWanted { nodes, .. }
            | Self::Freed { nodes, .. }
            | Self::Abandoned { nodes, .. } => among(nodes, below),
            Self::Idle(report) => among(&report.nodes, below),
            Self::Standing(report) => among(&report.nodes, below),
            Self::Exchange(report) => report.parts.iter().all(|part| below.contains(part.node)),
            Self::Relay(report) => below.contains(report.from),
            Self::Condition(report) => below.contains(report.node),
            Self::Used(report) => report.nodes.iter().all(|(node, _)| below.contains(*node)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::subtree;
    use kumi_sched::{JobId, NodeId};

    #[test]
    fn a_daemon_speaks_for_its_part_of_the_tree() {
        let freed = |nodes: &[u32]| Report::Freed {
            job: JobId(1),
            nodes: NodeSet::from_nodes(nodes.iter().copied().map(NodeId)),
        };
        // Node 0 has nodes 2 and 3 below it.
        let below = subtree(NodeId(0), 6, 2);
        assert!(below.iter().eq([0, 2, 3].map(NodeId)));
        assert!(freed(&[0, 3]).is_about(&below) && freed(&[]).is_about(&below));
        assert!(!freed(&[0, 1]).is_about(&below));
        let leaf = subtree(NodeId(5), 6, 2);
        assert!(freed(&[5]).is_about(&leaf) && !freed(&[4, 5]).is_about(&leaf));
        let failed = |node| Report::RankFailed {
            job: JobId(1),
            rank: 0,
            node: NodeId(node),
            status: crate::message::RankStatus::Exited(1),
        };
        assert!(failed(5).is_about(&leaf) && !failed(0).is_about(&leaf));
        let (job, stream, data) = (JobId(1), crate::message::Stream::Out, alloc::vec![1]);
        let wrote = |node| Report::Output {
            job,
            rank: 0,
            node: NodeId(node),
            stream,
            base: 0,
            at: 0,
            data: data.clone(),
        };
        assert!(wrote(5).is_about(&leaf) && !wrote(0).is_about(&leaf));
    }
}
