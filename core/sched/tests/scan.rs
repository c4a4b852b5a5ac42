//! The scan serves sizes in order, and who starves.

use std::collections::BTreeMap;

use kumi_sched::registry::{Limits, by_name};
use kumi_sched::{ClusterTime, JobId, NodeResources, Policy, ProcessorId, Request};
use proptest::prelude::*;

const NOW: ClusterTime = ClusterTime(0);
const NODES: u32 = 16;
/// Sizes 1, 2, 4, 8, 16.
const SIZES: usize = 5;

fn machine(name: &str) -> Box<dyn Policy + Send> {
    let mut policy = by_name(name, Limits::default()).unwrap();
    (0..NODES).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
    policy
}

fn arrive(policy: &mut dyn Policy, job: u64, nodes: u32) {
    policy.arrive(&Request::new(JobId(job), nodes), NOW).unwrap();
}

fn place(policy: &mut dyn Policy) -> Option<u64> {
    policy.next_placement(NOW).map(|placement| placement.job.0)
}

/// The scan, told as a story.
struct Story {
    up: bool,
    rounds: bool,
    at: usize,
    /// The first job that came after the scan had come to where it is.
    gate: u64,
    /// Size as a power of two, by job.
    waiting: BTreeMap<u64, usize>,
}

impl Story {
    fn new(name: &str) -> Self {
        let (up, rounds) = (name != "scan-down", name == "scan");
        Self { up, rounds, at: 0, gate: 0, waiting: BTreeMap::new() }
    }

    /// The next job, after `arrived` jobs have come.
    fn next(&mut self, arrived: u64) -> Option<u64> {
        for _ in 0..=SIZES {
            let here = |&(&job, &size): &(&u64, &usize)| {
                size == self.at && (!self.rounds || job < self.gate)
            };
            if let Some((&job, _)) = self.waiting.iter().find(here) {
                return Some(job);
            }
            self.at = (self.at + if self.up { 1 } else { SIZES - 1 }) % SIZES;
            self.gate = arrived;
        }
        None
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Arrivals (a size) and ends (which of those that run) in any order.
    #[test]
    fn sizes_are_served_in_order(
        steps in prop::collection::vec(
            prop_oneof![(1..=NODES).prop_map(Ok), any::<usize>().prop_map(Err)], 1..120),
    ) {
        for name in ["scan-up", "scan-down", "scan"] {
            let mut policy = machine(name);
            let mut story = Story::new(name);
            let mut running: Vec<(u64, usize)> = Vec::new();
            let mut arrived = 0;
            for step in &steps {
                match step {
                    Ok(nodes) => {
                        arrive(&mut *policy, arrived, *nodes);
                        let size = nodes.next_power_of_two().trailing_zeros() as usize;
                        story.waiting.insert(arrived, size);
                        arrived += 1;
                    }
                    Err(index) if !running.is_empty() => {
                        let (job, _) = running.remove(index % running.len());
                        policy.leave(JobId(job), NOW);
                    }
                    Err(_) => {}
                }
                loop {
                    let next = story.next(arrived);
                    let placed = place(&mut *policy);
                    let Some(job) = placed else {
                        // Room of one size is never cut to pieces by smaller ones only if all are
                        // of that size, so ask for no more than an empty machine.
                        prop_assert!(next.is_none() || !running.is_empty(), "{} waits", name);
                        break;
                    };
                    prop_assert_eq!(Some(job), next, "{}", name);
                    running.push((job, story.waiting.remove(&job).unwrap()));
                }
            }
        }
    }
}

/// More than ran or waited when the large job came.
const MOST: u64 = if cfg!(miri) { 40 } else { 1000 };

/// A stream of jobs of one node, two at a time, of which one always waits, and one job of the whole machine.
/// Returns how many of the stream run before that job, up to [`MOST`].
fn served_before(name: &str) -> u64 {
    let mut policy = machine(name);
    (0..32).for_each(|job| arrive(&mut *policy, job, 1));
    while place(&mut *policy).is_some() {}
    let large = 1_000_000;
    arrive(&mut *policy, large, NODES);
    for job in 0..MOST {
        arrive(&mut *policy, job + 32, 1);
        policy.leave(JobId(job), NOW);
        while let Some(placed) = place(&mut *policy) {
            if placed == large {
                return job;
            }
        }
    }
    MOST
}

#[test]
fn only_the_scan_in_rounds_lets_nobody_starve() {
    assert_eq!(served_before("scan-up"), MOST);
    assert_eq!(served_before("scan-down"), MOST);
    assert_eq!(served_before("first-fit"), MOST);
    // Those that waited and those that ran when it came.
    assert_eq!(served_before("scan"), 31);
}
