//! Skew between nodes: how far apart they begin ticks that are due at the same time.

use kumi_control::message::{NodeSample, SwitchBegin};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Clock of a skew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkewClock {
    /// The monotonic clock of the machine that the nodes share.
    Machine,
    /// Each node's own estimate of cluster time. The skew does not include the error of the estimates.
    Estimates,
}

impl fmt::Display for SkewClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "the machine's clock",
            Self::Estimates => "the nodes' estimates of cluster time",
        })
    }
}

/// Skew over the ticks that at least two nodes still remember. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skew {
    /// The clock of the times.
    pub clock: SkewClock,
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

/// Computes the skew from the switches that each node remembers, by the best available clock; `None` if no
/// two nodes saw the same tick. If only some nodes share a machine's clock, it also computes the skew between
/// all nodes.
pub fn between_nodes(samples: &[NodeSample]) -> (Option<Skew>, Option<Skew>) {
    let machines: BTreeSet<&str> = samples.iter().map(|node| &*node.machine_clock).collect();
    // A node whose clock has no name shares it with no other node.
    let named = samples.iter().filter(|node| !node.machine_clock.is_empty());
    let exact = skew(SkewClock::Machine, named, |node| &node.machine_clock, |begin| begin.machine);
    if exact.is_some() && machines.len() == 1 {
        return (exact, None);
    }
    let all = samples.iter();
    let estimated = skew(SkewClock::Estimates, all, |_| "", |begin| begin.cluster.0);
    match exact {
        None => (estimated, None),
        exact => (exact, estimated),
    }
}

/// The skew between nodes of one `group`, over all groups.
fn skew<'s>(
    clock: SkewClock,
    samples: impl Iterator<Item = &'s NodeSample>,
    group: impl Fn(&'s NodeSample) -> &'s str,
    time: impl Fn(&SwitchBegin) -> u64,
) -> Option<Skew> {
    let mut ticks: BTreeMap<(&str, u64), BTreeMap<u32, u64>> = BTreeMap::new();
    for sample in samples {
        for begin in &sample.switching.recent {
            let tick = (group(sample), begin.due.0);
            ticks.entry(tick).or_default().insert(sample.node.0, time(begin));
        }
    }
    let shared: Vec<_> = ticks.values().filter(|begins| begins.len() > 1).collect();
    let mut skews: Vec<u64> = shared
        .iter()
        .filter_map(|begins| Some(begins.values().max()? - begins.values().min()?))
        .collect();
    skews.sort_unstable();
    Some(Skew {
        clock,
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
    use kumi_control::message::{MessageCounts, SwitchSample};
    use kumi_sched::{ClusterTime, NodeId};

    /// A node of a machine. Its switches are (generation, due time, time on the machine's clock). Its estimate of
    /// cluster time is off by `off`.
    fn node(number: u32, machine: &str, off: u64, recent: &[(u64, u64, u64)]) -> NodeSample {
        let begin = |&(generation, due, machine): &(u64, u64, u64)| SwitchBegin {
            generation,
            due: ClusterTime(due),
            cluster: ClusterTime(machine + off),
            machine,
        };
        let recent = recent.iter().map(begin).collect();
        NodeSample {
            node: NodeId(number),
            machine_clock: machine.into(),
            ranks: Vec::new(),
            channels: Vec::new(),
            traces: Vec::new(),
            load: None,
            switching: SwitchSample { recent, ..SwitchSample::default() },
            control_messages: MessageCounts::default(),
            refused: Vec::new(),
        }
    }

    fn skew(
        clock: SkewClock,
        ticks: u64,
        nodes: usize,
        [p50_ns, p99_ns]: [u64; 2],
    ) -> Option<Skew> {
        Some(Skew { clock, ticks, nodes, p50_ns, p99_ns, max_ns: p99_ns })
    }

    #[test]
    fn ticks_that_are_due_together_are_compared() {
        let samples = [
            node(0, "one", 0, &[(1, 5, 1000), (1, 6, 2000), (2, 8, 9000)]),
            node(1, "one", 0, &[(1, 5, 1030), (3, 6, 1990), (1, 7, 3000)]),
            node(2, "one", 0, &[(2, 5, 990), (3, 9, 5000)]),
        ];
        let expected = skew(SkewClock::Machine, 2, 3, [10, 40]);
        assert_eq!(between_nodes(&samples), (expected, None));
    }

    /// A node with a wrong clock switches on time by that clock.
    #[test]
    fn a_wrong_clock_shows_where_the_machine_is_the_same() {
        let late =
            |machine| [node(0, "one", 0, &[(1, 5, 1000)]), node(1, machine, 100, &[(1, 5, 900)])];
        let estimated = skew(SkewClock::Estimates, 1, 2, [0, 0]);
        assert_eq!(between_nodes(&late("one")), (skew(SkewClock::Machine, 1, 2, [100, 100]), None));
        assert_eq!(between_nodes(&late("two")), (estimated.clone(), None));
        let nameless = late("").map(|node| NodeSample { machine_clock: String::new(), ..node });
        assert_eq!(between_nodes(&nameless), (estimated, None));
    }

    #[test]
    fn two_machines_with_two_nodes_each() {
        let samples = [
            node(0, "one", 0, &[(1, 5, 1000)]),
            node(1, "one", 0, &[(1, 5, 1007)]),
            node(2, "two", 500, &[(1, 5, 520)]),
            node(3, "two", 500, &[(1, 5, 500)]),
        ];
        let exact = skew(SkewClock::Machine, 2, 2, [7, 20]);
        assert_eq!(between_nodes(&samples), (exact, skew(SkewClock::Estimates, 1, 4, [20, 20])));
    }

    #[test]
    fn nothing_to_compare() {
        let one = |number, tick| node(number, "one", 0, &[(1, tick, 1)]);
        assert_eq!(between_nodes(&[]), (None, None));
        assert_eq!(between_nodes(&[one(0, 1)]), (None, None));
        assert_eq!(between_nodes(&[one(0, 1), one(1, 2)]), (None, None));
    }

    #[test]
    fn percentiles_of_a_hundred_ticks() {
        let zero: Vec<_> = (0..100).map(|tick| (1, tick, 1000)).collect();
        let late: Vec<_> = (0..100).map(|tick| (1, tick, 1001 + tick)).collect();
        let samples = [node(0, "one", 0, &zero), node(1, "one", 0, &late)];
        let skew = between_nodes(&samples).0.unwrap();
        assert_eq!((skew.p50_ns, skew.p99_ns, skew.max_ns), (50, 99, 100));
    }

    #[test]
    fn a_node_that_tells_a_tick_twice_counts_once() {
        let samples = [node(0, "one", 0, &[(1, 1, 10), (1, 1, 500)])];
        assert_eq!(between_nodes(&samples), (None, None));
    }
}
