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

/// The next head of a test, to which the nodes attach with the job.
fn next_head(test: &Test, nodes: u32, job: JobId) -> Test {
    let head = Head::new(config(nodes), test.records.clone(), [2; 32]).expect("a policy");
    let mut next = Test { head, now: test.now, records: test.records.clone() };
    next.event(HeadEvent::Timeout);
    next.event(HeadEvent::ChildUp(LINK));
    let with_job = |node| NodeDescription { jobs: vec![(job, vec![node])], ..description(node) };
    next.report(Report::Attached((0..nodes).map(with_job).collect()));
    next
}

#[test]
fn a_new_head_keeps_the_time_that_ranks_were_given() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let actions = test.ask(&ALICE, kill(job, 10));
    let recorded = position(&actions, |it| is_state(it, &JobState::Running));
    let asks = position(&actions, |it| {
        matches!(command_of(it), Some((_, Command::Signal { signal: TERM, .. })))
    });
    assert!(recorded < asks, "{actions:?}");
    test.advance(4 * SECOND);
    let mut next = next_head(&test, 2, job);
    let actions = next.advance(5 * SECOND);
    assert_eq!((signals(&actions), kills(&actions)), (vec![], 0), "they are not asked again");
    assert_eq!(kills(&next.advance(SECOND + 100 * MS)), 1);
    assert_eq!(next.state(job), JobState::Ending(Outcome::Killed));
    let over = next.head.records().find(|record| record.spec.job == job).expect("known");
    assert_eq!(over.end_request, None);
    // Whose ranks end by themselves meanwhile was killed all the same.
    let mut next = next_head(&test, 2, job);
    next.report(Report::Freed { job, nodes: set(0..2) });
    assert_eq!(next.state(job), JobState::Ended(Outcome::Killed));
}

/// A wall clock that was set back gives nobody more time than was asked for.
#[test]
fn a_new_head_whose_clock_is_wrong_gives_no_longer_grace() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    test.ask(&ALICE, kill(job, 10));
    for record in &mut test.records {
        let request = record.end_request.as_mut().expect("it was recorded");
        request.at_ms += 3_600_000;
    }
    let mut next = next_head(&test, 1, job);
    assert_eq!(kills(&next.advance(9 * SECOND)), 0);
    assert_eq!(kills(&next.advance(2 * SECOND)), 1);
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
