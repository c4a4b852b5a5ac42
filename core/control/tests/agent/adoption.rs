//! A daemon that goes on with what a former one started.

use kumi_control::agent::{AdoptedJob, AdoptedOutput};

use super::*;

fn adopted() -> AdoptedJob {
    let pieces = vec![b"one".to_vec(), b"four".to_vec()];
    let output = AdoptedOutput { rank: 0, stream: Stream::Out, base: 10, pieces };
    AdoptedJob { job: JOB, ranks: (0, 1), over: false, prepared: ranks(0), output: vec![output] }
}

/// A new daemon of node 0, which has not attached.
fn successor(lease: Option<u64>) -> Test {
    let mut again = description(0);
    again.incarnation = 2;
    let mut agent = Agent::new(AgentConfig { description: again });
    agent.adopt(adopted());
    if let Some(until) = lease {
        agent.restore_lease(until);
    }
    Test { agent, now: MS }
}

#[test]
fn it_lists_the_job_repeats_its_answer_and_goes_on_with_its_output() {
    let mut test = successor(None);
    let sent = test.event(AgentEvent::ParentUp);
    let listed = match &sent[0] {
        AgentAction::ToParent(Report::Attached(nodes)) => nodes[0].jobs.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(listed, [(JOB, vec![0])]);
    let answer = Report::Prepared { job: JOB, nodes: vec![prepared(0)] };
    assert!(sent.contains(&up(answer)), "{sent:?}");
    // The head has two bytes of the second piece, which comes again whole.
    let again = test.kept(15, true);
    assert_eq!(again, [up(wrote(13, 13, b"four"))]);
    assert_eq!(test.event(output(b"next")), [up(wrote(13, 17, b"next"))]);
    // It was started, and is not once more.
    assert_eq!(test.start(), []);
    assert_eq!(test.kept(21, false), []);
    assert_eq!(test.event(AgentEvent::Freed { job: JOB }).len(), 2, "vanished, and freed");
}

#[test]
fn how_its_ranks_end_is_told_as_of_any_job() {
    let mut test = successor(None);
    test.event(AgentEvent::ParentUp);
    test.kept(17, true);
    let status = RankStatus::Exited(3);
    let failed = Report::RankFailed { job: JOB, rank: 0, node: NodeId(0), status };
    assert_eq!(test.event(AgentEvent::RankExited { job: JOB, rank: 0, status }), [up(failed)]);
    assert!(test.agent.knows(JOB));
    test.event(AgentEvent::Freed { job: JOB });
    test.command(set([0]), Command::Forget { job: JOB });
    assert!(!test.agent.knows(JOB));
}

#[test]
fn idleness_of_an_adopted_job_is_told() {
    let mut test = successor(None);
    test.event(AgentEvent::ParentUp);
    let nodes = set([0]);
    let idle = Report::Idle(IdleReport { job: JOB, nodes, idle: true });
    assert_eq!(test.event(AgentEvent::Idle { job: JOB, idle: true }), [up(idle)]);
}

#[test]
fn the_lease_of_the_former_daemon_ends_the_job() {
    let mut test = successor(Some(500 * MS));
    assert_eq!(test.agent.lease_until(), Some(500 * MS));
    assert_eq!(test.advance(400 * MS), []);
    let actions = test.advance(200 * MS);
    assert!(actions.contains(&AgentAction::Kill { job: JOB }), "{actions:?}");
    // Granted anew, it goes on.
    let mut test = successor(Some(500 * MS));
    test.event(AgentEvent::ParentUp);
    test.lease();
    assert_eq!(test.advance(600 * MS), []);
}

#[test]
fn a_job_that_was_over_lacks_nothing_when_the_lease_is() {
    let mut again = description(0);
    again.incarnation = 2;
    let mut agent = Agent::new(AgentConfig { description: again });
    agent.adopt(AdoptedJob { over: true, ..adopted() });
    agent.restore_lease(MS / 2);
    let mut test = Test { agent, now: MS };
    let sent = test.event(AgentEvent::ParentUp);
    let gave_up = |action: &AgentAction| {
        matches!(action, AgentAction::Kill { .. } | AgentAction::ToParent(Report::Abandoned { .. }))
    };
    assert!(!sent.iter().any(gave_up), "{sent:?}");
    let status = RankStatus::Exited(0);
    test.event(AgentEvent::RankExited { job: JOB, rank: 0, status });
    assert!(!test.event(AgentEvent::Freed { job: JOB }).iter().any(gave_up));
    assert_eq!(test.kept(17, false), [up(freed([0]))]);
}
