//! What keeps a job waiting, as each policy tells it.

use std::collections::{BTreeMap, BTreeSet};

use kumi_sched::Obstacle::{Behind, PlacedJobs, TooFewNodes};
use kumi_sched::registry::{Limits, by_name, names};
use kumi_sched::{ClusterTime, JobId, NodeResources, Obstacle, Policy, ProcessorId, Request};

const NOW: ClusterTime = ClusterTime(0);

/// A policy with four nodes, each for one job, to which jobs with these numbers of nodes have come. They run for this
/// many nanoseconds.
fn with_jobs(name: &str, jobs: &[(u32, u64)]) -> Box<dyn Policy + Send> {
    let limits = Limits { jobs_per_processor: 1, ..Limits::default() };
    let mut policy = by_name(name, limits).expect("a policy");
    (0..4).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
    for (job, &(nodes, estimate)) in (1..).zip(jobs) {
        let request = Request { estimate_ns: Some(estimate), ..Request::new(JobId(job), nodes) };
        policy.arrive(&request, NOW).expect("a good request");
        while policy.next_placement(NOW).is_some() {}
    }
    policy
}

fn obstacles(policy: &dyn Policy) -> BTreeMap<u64, Obstacle> {
    policy.obstacles().into_iter().map(|(job, obstacle)| (job.0, obstacle)).collect()
}

#[test]
fn every_waiting_job_has_one_and_is_told_of_another_that_waits() {
    let jobs = [(3, 10), (5, 10), (2, 20), (1, 5), (4, 10), (9, 1), (2, 5), (1, 100)];
    for (name, _) in names() {
        let policy = with_jobs(name, &jobs);
        let found = obstacles(&*policy);
        let waiting: BTreeSet<u64> = policy.queued().into_iter().map(|job| job.0).collect();
        assert_eq!(found.keys().copied().collect::<BTreeSet<_>>(), waiting, "{name}");
        assert!(waiting.len() > 3, "{name}: {waiting:?}");
        for (&job, &obstacle) in &found {
            let (wanted, _) = jobs[job as usize - 1];
            assert_eq!(obstacle == TooFewNodes, wanted > 4, "{name}: job {job}, {obstacle:?}");
            if let Behind(first) = obstacle {
                assert_eq!(found.get(&first.0), Some(&PlacedJobs), "{name}: job {job}");
            }
        }
    }
}

#[test]
fn who_may_not_overtake_is_behind_the_first() {
    for name in ["fcfs", "fcfs-bb", "matrix", "dqt", "fair-dqt:apa", "dhc"] {
        let policy = with_jobs(name, &[(3, 10), (2, 10), (1, 10)]);
        let expected = [(2, PlacedJobs), (3, Behind(JobId(2)))];
        assert_eq!(obstacles(&*policy), expected.into(), "{name}");
    }
    let policy = with_jobs("first-fit", &[(3, 10), (2, 10), (4, 10)]);
    assert_eq!(obstacles(&*policy), [(2, PlacedJobs), (3, PlacedJobs)].into());
}

#[test]
fn who_would_delay_the_first_is_behind_it_and_others_lack_nodes() {
    for name in ["easy", "conservative"] {
        // One node is free until the first ends: too long for the third, and too few for the fourth.
        let policy = with_jobs(name, &[(3, 10), (4, 10), (1, 20), (2, 5)]);
        let expected = [(2, PlacedJobs), (3, Behind(JobId(2))), (4, PlacedJobs)];
        assert_eq!(obstacles(&*policy), expected.into(), "{name}");
    }
}

#[test]
fn nodes_that_go_and_come_are_counted() {
    for (name, _) in names() {
        let mut policy = with_jobs(name, &[(4, 10), (4, 10)]);
        assert_eq!(obstacles(&*policy), [(2, PlacedJobs)].into(), "{name}");
        policy.remove_node(ProcessorId(2));
        while policy.next_placement(NOW).is_some() {}
        assert_eq!(obstacles(&*policy), [(2, TooFewNodes)].into(), "{name}");
        policy.add_node(&NodeResources::single(ProcessorId(2)));
        while policy.next_placement(NOW).is_some() {}
        assert_eq!(obstacles(&*policy), [(2, PlacedJobs)].into(), "{name}");
    }
}
