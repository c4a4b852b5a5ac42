//! Policies are found by name, and a name that is wrong is answered with those that are near.

use std::collections::BTreeSet;

use kumi_sched::registry::{Limits, by_name, names};
use kumi_sched::{ClusterTime, JobId, NodeResources, Policy, ProcessorId, Request};

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
        (0..4).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
        let job = JobId(1);
        let request = Request { estimate_ns: Some(1), ..Request::new(job, 2) };
        policy.arrive(&request, NOW).unwrap();
        let placement = policy.next_placement(NOW).expect("room for one");
        assert_eq!((placement.job, placement.processors.len()), (job, 2), "{name}");
        policy.set_active(job, true);
        let mut ran = Vec::new();
        policy.run_slot(&mut |job| ran.push(job));
        assert_eq!(ran, [job], "{name}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes, in code without unsafe blocks")]
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
    for name in ["matrix", "dqt", "fair-dqt:max", "dhc"] {
        let mut policy =
            by_name(name, Limits { jobs_per_processor: 2, ..Limits::default() }).unwrap();
        policy.add_node(&NodeResources::single(ProcessorId(0)));
        for job in 0..3 {
            policy.arrive(&Request::new(JobId(job), 1), NOW).unwrap();
        }
        let placed = std::iter::from_fn(|| policy.next_placement(NOW)).count();
        assert_eq!(placed, 2, "{name}");
    }
}

#[test]
fn queue_trees_have_more_names_than_are_listed() {
    for name in ["dqt4:ff+migrate", "fair-dqt8", "dqt:apa+shares+migrate"] {
        assert!(!names().any(|(known, _)| known == name));
        assert!(by_name(name, Limits::default()).is_ok(), "{name}");
    }
    let message = refusal("dqt:fff");
    assert!(message.contains("task allocation policies are max, min"), "{message}");
    assert!(message.ends_with("did you mean dqt:ff?"), "{message}");
    assert!(refusal("dqt+shares+shares").contains("each once"));
    assert!(!refusal("esy").contains("queue tree") && refusal("esy").contains("did you mean easy"));
}

#[test]
fn arities_are_bounded() {
    for arity in ["0", "1", "65", "4294967298", "99999999999999999999", "-2", "+2", "2.0", "x"] {
        for name in [format!("dqt{arity}"), format!("fair-dqt{arity}:max+shares")] {
            let message = refusal(&name);
            // A plus begins a suffix.
            let says = if arity == "+2" { "+migrate and +shares" } else { "a number from 2 to 64" };
            assert!(message.contains(says), "{name}: {message}");
            assert!(message.contains("did you mean"), "{message}");
        }
    }
    for arity in [2, 3, 63, 64] {
        assert!(by_name(&format!("dqt{arity}"), Limits::default()).is_ok());
    }
}

#[test]
fn policies_say_what_they_need_and_do() {
    let of = |name: &str| (made(name).plans(), made(name).migrates(), made(name).tree(0).is_some());
    assert_eq!(of("easy"), (true, false, false));
    assert_eq!(of("conservative"), (true, false, false));
    assert_eq!(of("matrix"), (false, false, false));
    assert_eq!(of("dqt"), (false, false, true));
    assert_eq!(of("fair-dqt:apa+migrate"), (false, true, true));
}

#[test]
fn the_tree_to_come_is_seen_without_going_there() {
    let mut policy = made("dqt");
    (0..4).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
    for (job, nodes) in [(1, 4), (2, 2), (3, 2), (4, 1)] {
        policy.arrive(&Request::new(JobId(job), nodes), NOW).unwrap();
        policy.next_placement(NOW).expect("room");
        policy.set_active(JobId(job), true);
    }
    for slot in 0..20 {
        let seen = policy.tree(3);
        assert_eq!(policy.tree(0), policy.tree(0), "looking changes nothing");
        let mut ahead = made("dqt");
        std::mem::swap(&mut ahead, &mut policy);
        ahead.advance(3);
        assert_eq!(seen, ahead.tree(0), "slot {slot}");
        policy = ahead;
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes, in code without unsafe blocks")]
fn many_slots_pass_as_one_after_the_other() {
    for (name, _) in names() {
        let (mut fast, mut slow) = (made(name), made(name));
        for policy in [&mut fast, &mut slow] {
            (0..8).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
        }
        for (job, nodes) in [(1, 8), (2, 2), (3, 2), (4, 1), (5, 4), (6, 1), (7, 3), (8, 1)] {
            let priority = 1 + job as u16 % 3;
            let request =
                Request { priority, estimate_ns: Some(1), ..Request::new(JobId(job), nodes) };
            for policy in [&mut fast, &mut slow] {
                policy.arrive(&request, NOW).unwrap();
                while let Some(placement) = policy.next_placement(NOW) {
                    policy.set_active(placement.job, true);
                }
            }
            let slots = [0, 1, 5, 67, 1_000, 3_001][job as usize % 6];
            fast.advance(slots);
            (0..slots).for_each(|_| slow.run_slot(&mut |_| {}));
            assert_eq!(fast.columns(), slow.columns(), "{name} after {slots} slots");
            assert_eq!(fast.tree(0), slow.tree(0), "{name} after {slots} slots");
        }
        // A year of slots of 10 ms.
        fast.advance(3_153_600_000);
        assert!(!fast.columns().is_empty());
    }
}
