//! Ends of jobs that give ranks time to end by themselves.

use super::*;
use kumi_control::message::LONGEST_GRACE;

const SECOND: u64 = 1_000 * MS;
const TERM: u8 = 15;
const CONT: u8 = 18;

fn kill(job: JobId, seconds: u64) -> ClientRequest {
    ClientRequest::Kill { job, grace_ns: seconds * SECOND }
}

fn signals(actions: &[HeadAction]) -> Vec<u8> {
    let signals = commands(actions).into_iter().filter_map(|(_, command)| match command {
        Command::Signal { signal, .. } => Some(*signal),
        _ => None,
    });
    signals.collect()
}

fn kills(actions: &[HeadAction]) -> usize {
    commands(actions).iter().filter(|(_, it)| matches!(it, Command::Kill { .. })).count()
}

#[test]
fn ranks_are_asked_to_end_and_killed_when_the_grace_is_over() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let actions = test.ask(&ALICE, kill(job, 10));
    assert_eq!((signals(&actions), kills(&actions)), (vec![TERM, CONT], 0));
    assert_eq!(test.state(job), JobState::Running);
    assert_eq!(kills(&test.advance(9 * SECOND)), 0);
    let actions = test.advance(SECOND);
    assert_eq!(kills(&actions), 1);
    assert_eq!(test.state(job), JobState::Ending(Outcome::Killed));
    let actions = test.report(Report::Freed { job, nodes: set(0..2) });
    assert!(replied(&actions, &ClientReply::Done), "who asked learns it at the end");
}

#[test]
fn ranks_that_end_by_themselves_are_not_killed() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    test.ask(&ALICE, kill(job, 10));
    let status = RankStatus::Signalled(TERM);
    test.report(Report::RankFailed { job, rank: 0, node: NodeId(0), status });
    // The other one has what is left of the grace, and not only a second.
    assert_eq!(kills(&test.advance(5 * SECOND)), 0);
    let actions = test.report(Report::Freed { job, nodes: set(0..2) });
    assert!(replied(&actions, &ClientReply::Done));
    assert_eq!(test.state(job), JobState::Ended(Outcome::Killed), "whatever code ranks had");
}

#[test]
fn a_second_request_may_shorten_the_grace_but_not_lengthen_it() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    test.ask(&ALICE, kill(job, 10));
    test.ask(&ALICE, kill(job, 60));
    test.ask(&ALICE, kill(job, 2));
    assert_eq!(kills(&test.advance(2 * SECOND)), 1);
    let other = test.running(2, 1);
    test.ask(&ALICE, kill(other, 60));
    let actions = test.ask(&ALICE, kill(other, 0));
    assert_eq!((signals(&actions), kills(&actions)), (vec![], 1));
}

#[test]
fn a_job_that_does_not_run_needs_no_grace() {
    let mut test = Test::wide(1, 1);
    let first = test.running(1, 1);
    let (waits, _) = test.submit(request(2, 1, Some(1)));
    let actions = test.ask(&ALICE, kill(waits, 10));
    assert!(replied(&actions, &ClientReply::Done));
    assert_eq!(test.state(waits), JobState::Ended(Outcome::Killed));
    assert_eq!(test.state(first), JobState::Running);
}

#[test]
fn a_grace_has_a_limit() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    let long = ClientRequest::Kill { job, grace_ns: LONGEST_GRACE + 1 };
    assert_eq!(refusal(&test.ask(&ALICE, long)), Some(RefusalKind::BadRequest));
    assert!(signals(&test.advance(SECOND)).is_empty());
    assert_eq!(test.state(job), JobState::Running);
}
