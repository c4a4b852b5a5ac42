//! Set of nodes as commands and reports carry it.

use alloc::vec::Vec;

use kumi_sched::NodeId;
use serde::{Deserialize, Serialize};

/// A set of nodes: sorted, disjoint, half-open ranges of node numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSet(Vec<(u32, u32)>);

impl NodeSet {
    /// The set of exactly these nodes, in any order, repeats allowed.
    pub fn from_nodes(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let mut numbers: Vec<u32> = nodes.into_iter().map(|node| node.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, end)) if *end == number => *end += 1,
                _ => ranges.push((number, number.saturating_add(1))),
            }
        }
        Self(ranges)
    }

    /// Whether `node` is in the set.
    pub fn contains(&self, node: NodeId) -> bool {
        self.0.iter().any(|&(start, end)| (start..end).contains(&node.0))
    }

    /// The nodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().flat_map(|&(start, end)| (start..end).map(NodeId))
    }

    /// Whether no node is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&(start, end)| start >= end)
    }

    /// How many nodes are in the set. Constant in the number of nodes, unlike [`NodeSet::iter`].
    pub fn len(&self) -> u64 {
        self.0.iter().map(|&(start, end)| u64::from(end.saturating_sub(start))).sum()
    }

    /// The nodes that are in both sets. Takes time for every node of `self`, so a set that came
    /// from the wire (a few bytes can name all numbers there are) belongs on the other side.
    pub fn intersection(&self, other: &Self) -> Self {
        Self::from_nodes(self.iter().filter(|&node| other.contains(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nodes: &[u32]) -> NodeSet {
        NodeSet::from_nodes(nodes.iter().copied().map(NodeId))
    }

    #[test]
    fn ranges() {
        let some = set(&[5, 3, 4, 9, 3]);
        assert_eq!(some.0, [(3, 6), (9, 10)]);
        assert_eq!(some.len(), 4);
        assert!(some.contains(NodeId(5)) && !some.contains(NodeId(6)));
        assert!(some.iter().eq([3, 4, 5, 9].map(NodeId)));
        assert!(set(&[]).is_empty() && !some.is_empty());
    }

    #[test]
    fn sets_from_the_wire_may_be_strange() {
        let all = NodeSet(Vec::from([(0, u32::MAX)]));
        assert_eq!(all.len(), u64::from(u32::MAX));
        assert_eq!(set(&[1, 7]).intersection(&all), set(&[1, 7]));
        let backwards = NodeSet(Vec::from([(9, 2)]));
        assert!(backwards.is_empty() && !backwards.contains(NodeId(5)));
    }
}
