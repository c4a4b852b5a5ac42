//! Policies are found by name, and a name that is wrong is answered with those that are near.

use std::collections::BTreeSet;

use kumi_sched::registry::{Limits, by_name, names};
use kumi_sched::{ClusterTime, JobId, NodeId, Policy, Request};

const NOW: ClusterTime = ClusterTime(0);

fn made(name: &str) -> Box<dyn Policy + Send> {
    by_name(name, Limits::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(name: &str) -> String {
    by_name(name, Limits::default()).err().expect("a wrong name").to_string()
}

#[test]
fn each_name_is_one_policy_that_runs_a_job() {
    let mut seen = BTreeSet::new();
    for (name, help) in names() {
        assert!(seen.insert(name), "{name} twice");
        assert!(!help.is_empty() && !help.contains('\n') && help.len() < 80, "{name}: {help}");
        let mut policy = made(name);
        (0..4).for_each(|node| policy.add_node(NodeId(node)));
        let job = JobId(1);
        let request = Request { estimate_ns: Some(1), ..Request::new(job, 2) };
        policy.arrive(&request, NOW).unwrap();
        let placement = policy.next_placement(NOW).expect("room for one");
        assert_eq!((placement.job, placement.nodes.len()), (job, 2), "{name}");
        policy.set_active(job, true);
        let mut ran = Vec::new();
        policy.run_slot(&mut |job| ran.push(job));
        assert_eq!(ran, [job], "{name}");
    }
}

#[test]
fn wrong_names_are_answered_with_near_ones() {
    assert_eq!(refusal("Matrx"), "no scheduling policy is called \"Matrx\"; did you mean matrix?");
    for name in ["", "zzzzzzzzzzzzzzzzzzzzzzzz", "\u{1f600}"] {
        let message = refusal(name);
        assert!(names().all(|(known, _)| message.contains(known)), "{message}");
    }
    assert!(refusal(&"x".repeat(1 << 20)).len() < (1 << 20) + 1000);
}

#[test]
fn the_limit_reaches_the_policy() {
    let mut policy = by_name("matrix", Limits { jobs_per_node: 2 }).unwrap();
    policy.add_node(NodeId(0));
    for job in 0..3 {
        policy.arrive(&Request::new(JobId(job), 1), NOW).unwrap();
    }
    let placed = std::iter::from_fn(|| policy.next_placement(NOW)).count();
    assert_eq!(placed, 2);
}
