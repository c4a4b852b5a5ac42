//! What jobs have used, on its way up.

use super::*;
use kumi_control::message::{PartUse, UseReport};

#[test]
fn what_was_used_is_said_again_with_the_end() {
    let mut test = Test::running();
    let part = |used_us| PartUse { used_us, ..PartUse::default() };
    let used = |nodes: &[(u32, u64)]| {
        let nodes = nodes.iter().map(|&(node, used)| (NodeId(node), part(used))).collect();
        Report::Used(UseReport { job: JOB, nodes })
    };
    let own = |used| AgentEvent::Used { job: JOB, used: part(used) };
    // What comes soon after one another goes together, and nobody waits for ever for the next.
    assert_eq!(test.event(own(5)), []);
    // A child speaks for its own nodes only.
    assert_eq!(test.child(LEFT, used(&[(1, 7), (2, 9)])), []);
    assert_eq!(test.child(RIGHT, used(&[(1, 8)])), []);
    let until = ClusterTime(test.now + 60_000 * MS);
    test.command(set([0]), Command::Lease { until, nanos: 60_000 * MS });
    test.now += 30_000 * MS;
    assert_eq!(test.child(RIGHT, used(&[(2, 4)])), [up(used(&[(0, 5), (1, 7), (2, 4)]))]);
    assert_eq!(test.event(own(6)), []);
    test.event(AgentEvent::ParentDown);
    test.event(AgentEvent::RankExited { job: JOB, rank: 0, status: RankStatus::Exited(0) });
    test.event(AgentEvent::Freed { job: JOB });
    assert_eq!(test.event(own(99)), [], "it is over");
    let actions = test.event(AgentEvent::ParentUp);
    let all = up(used(&[(0, 6), (1, 7), (2, 4)]));
    let said = actions.iter().position(|a| *a == all).expect("said again");
    let over = |a: &AgentAction| matches!(a, AgentAction::ToParent(Report::Freed { .. }));
    assert!(actions[said + 1..].iter().any(over));
    test.command(set(0..4), Command::Forget { job: JOB });
    let actions = test.event(AgentEvent::ParentUp);
    assert!(!actions.iter().any(|a| matches!(a, AgentAction::ToParent(Report::Used(_)))));
}

#[test]
fn what_was_used_goes_before_the_end() {
    let mut test = Test::running();
    let used = PartUse { used_us: 5, ..PartUse::default() };
    test.child(LEFT, Report::Used(UseReport { job: JOB, nodes: vec![(NodeId(3), used)] }));
    test.event(AgentEvent::Used { job: JOB, used });
    test.child(LEFT, freed([1, 3]));
    test.child(RIGHT, freed([2]));
    test.event(AgentEvent::RankExited { job: JOB, rank: 0, status: RankStatus::Exited(0) });
    let nodes = vec![(NodeId(0), used), (NodeId(3), used)];
    let used = Report::Used(UseReport { job: JOB, nodes });
    assert_eq!(test.event(AgentEvent::Freed { job: JOB }), [up(used), up(freed(0..4))]);
}
