//! Skew between nodes: how far apart they switch at the same tick of the same timetable.

use kumi_control::message::NodeSample;
use serde::Serialize;
use std::collections::BTreeMap;

/// Skew over the ticks that at least two nodes still remember. Times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skew {
    /// Ticks compared.
    pub ticks: u64,
    /// Most nodes that took part in one of these ticks.
    pub nodes: usize,
    /// Median over the ticks of the last node's begin minus the first node's.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

/// Computes the skew from the switches that each node remembers; `None` when no tick was seen by
/// two nodes.
pub fn between_nodes(samples: &[NodeSample]) -> Option<Skew> {
    let mut ticks: BTreeMap<(u64, u64), BTreeMap<u32, u64>> = BTreeMap::new();
    for sample in samples {
        for &(generation, tick, begin) in &sample.switching.recent {
            ticks.entry((generation, tick)).or_default().insert(sample.node.0, begin.0);
        }
    }
    let shared: Vec<_> = ticks.values().filter(|begins| begins.len() > 1).collect();
    let mut skews: Vec<u64> = shared
        .iter()
        .filter_map(|begins| Some(begins.values().max()? - begins.values().min()?))
        .collect();
    skews.sort_unstable();
    Some(Skew {
        ticks: skews.len() as u64,
        nodes: shared.iter().map(|begins| begins.len()).max()?,
        p50_ns: percentile(&skews, 50)?,
        p99_ns: percentile(&skews, 99)?,
        max_ns: *skews.last()?,
    })
}

/// The smallest value that at least `percent` per cent of the sorted values do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::SwitchSample;
    use kumi_sched::{ClusterTime, NodeId};

    fn node(number: u32, recent: &[(u64, u64, u64)]) -> NodeSample {
        let recent = recent.iter().map(|&(g, t, at)| (g, t, ClusterTime(at))).collect();
        NodeSample {
            node: NodeId(number),
            ranks: Vec::new(),
            switching: SwitchSample { recent, ..SwitchSample::default() },
            control_messages: 0,
            refused: Vec::new(),
        }
    }

    #[test]
    fn only_the_same_tick_of_the_same_timetable_is_compared() {
        let samples = [
            node(0, &[(1, 5, 1000), (1, 6, 2000), (2, 5, 9000)]),
            node(1, &[(1, 5, 1030), (1, 6, 1990), (1, 7, 3000)]),
            node(2, &[(1, 5, 990), (3, 5, 5000)]),
        ];
        let skew = between_nodes(&samples).unwrap();
        assert_eq!(skew, Skew { ticks: 2, nodes: 3, p50_ns: 10, p99_ns: 40, max_ns: 40 });
    }

    #[test]
    fn nothing_to_compare() {
        assert_eq!(between_nodes(&[]), None);
        assert_eq!(between_nodes(&[node(0, &[(1, 1, 1)])]), None);
        assert_eq!(between_nodes(&[node(0, &[(1, 1, 1)]), node(1, &[(1, 2, 1)])]), None);
    }

    #[test]
    fn percentiles_of_a_hundred_ticks() {
        let zero: Vec<_> = (0..100).map(|tick| (1, tick, 1000)).collect();
        let late: Vec<_> = (0..100).map(|tick| (1, tick, 1001 + tick)).collect();
        let skew = between_nodes(&[node(0, &zero), node(1, &late)]).unwrap();
        assert_eq!((skew.p50_ns, skew.p99_ns, skew.max_ns), (50, 99, 100));
    }

    #[test]
    fn a_node_that_tells_a_tick_twice_counts_once() {
        let samples = [node(0, &[(1, 1, 10), (1, 1, 500)])];
        assert_eq!(between_nodes(&samples), None);
    }
}
