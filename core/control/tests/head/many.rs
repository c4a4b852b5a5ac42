//! Many jobs and many nodes: what an event costs, counted.

use super::*;

const NODES: u32 = 1_000;
const JOBS: u32 = 10_000;

/// How much the head looked at during what the test does.
fn considered(test: &mut Test, what: impl FnOnce(&mut Test)) -> u64 {
    let before = test.head.considered();
    what(test);
    test.head.considered() - before
}

#[test]
fn a_submission_does_not_look_at_those_that_wait_nor_at_the_nodes() {
    let mut test = Test::new(NODES);
    // Two run, the others wait for all nodes, or for as many as have a processor for each rank.
    for number in 0..JOBS {
        let nodes = (number % 2 == 0).then_some(NODES);
        let looks = considered(&mut test, |test| {
            let wanted = request(u128::from(number), NODES * 2, nodes);
            assert_eq!(refusal(&test.ask(&OWNER, submission(wanted))), None);
        });
        assert_eq!(looks, 1, "job {number}");
    }
    // Until now nodes might have been missing because they had not come yet.
    test.advance(5_000 * MS);
    let (all, waiting) = (u64::from(NODES), u64::from(JOBS) - 2);
    let detached = |test: &mut Test| drop(test.report(Report::Detached(set([7]))));
    assert_eq!(considered(&mut test, detached), 0, "it has its grace");
    // One is missing: those that left their number open now want one node less, and queue again.
    let lost = considered(&mut test, |test| drop(test.advance(1_100 * MS)));
    assert_eq!(lost, waiting + waiting);
    let back = |test: &mut Test| drop(test.report(Report::Attached(vec![description(7)])));
    assert_eq!(considered(&mut test, back), all + waiting + waiting);
    // Heard of again, but nothing is new.
    let again = |test: &mut Test| drop(test.report(Report::Attached(vec![description(7)])));
    assert_eq!(considered(&mut test, again), all + waiting);
    let timeout = |test: &mut Test| drop(test.event(HeadEvent::Timeout));
    assert_eq!(considered(&mut test, timeout), 0);
}

/// A job that will not be placed while another has the node, with so many bytes of arguments.
fn waiting(token: u128, bytes: usize) -> JobRequest {
    let args = vec!["a".into(), "x".repeat(bytes)];
    JobRequest { args, ..request(token, 1, Some(1)) }
}

fn submission(request: JobRequest) -> ClientRequest {
    ClientRequest::Submit(Box::new(request))
}

#[test]
fn what_is_kept_for_users_is_bounded_and_one_does_not_take_it_all() {
    let mut test = Test::without_nodes(1);
    let large = 500 << 10;
    let mut submit_until_full = |user: &User, tokens: std::ops::Range<u128>| {
        let mut taken = Vec::new();
        for token in tokens {
            let actions = test.ask(user, submission(waiting(token, large)));
            match refusal(&actions) {
                Some(kind) => {
                    assert_eq!(kind, RefusalKind::NoResources);
                    return (taken, test.head.records().count());
                }
                None => taken.push(token),
            }
        }
        panic!("{} of them were taken", taken.len());
    };
    let (alice, _) = submit_until_full(&ALICE, 0..1_000);
    assert_eq!(alice.len(), (128 << 20) / (large + 640), "half of it");
    let (bob, _) = submit_until_full(&BOB, 1_000..2_000);
    assert!(bob.len() >= alice.len() - 1);
    let (owner, known) = submit_until_full(&OWNER, 2_000..3_000);
    assert!(owner.len() <= 2, "nothing is left");
    assert_eq!(known, alice.len() + bob.len() + owner.len());
    // What is over counts no longer, but what is remembered of it is bounded too.
    for number in 1..=known as u64 {
        test.ask(&OWNER, ClientRequest::Kill { job: JobId(number) });
    }
    let remembered = test.head.records().count();
    assert!((60..70).contains(&remembered), "{remembered} of {known}");
    let actions = test.ask(&ALICE, submission(waiting(9_000, large)));
    assert_eq!(refusal(&actions), None);
}

#[test]
fn one_user_does_not_take_all_places() {
    let mut test = Test::without_nodes(1);
    let mut taken = |user: &User, tokens: std::ops::Range<u128>| {
        let ask = |token: &u128| {
            refusal(&test.ask(user, submission(request(*token, 1, Some(1))))).is_none()
        };
        tokens.take_while(ask).count()
    };
    assert_eq!(taken(&ALICE, 0..9_000), 5_000);
    assert_eq!(taken(&BOB, 10_000..10_010), 10);
    assert_eq!(taken(&OWNER, 20_000..29_000), 4_990);
    assert_eq!(taken(&BOB, 30_000..30_001), 0);
}

/// Input for jobs that wait counts, and is given back when they run or end.
#[test]
fn input_that_waits_counts() {
    let mut test = Test::without_nodes(1);
    for token in 0..200 {
        test.submit(request(token, 1, Some(1)));
    }
    let give = |test: &mut Test, job: u64| {
        let data = vec![0; 1_000_000];
        refusal(&test.ask(&ALICE, ClientRequest::Input { job: JobId(job), data }))
    };
    for job in 1..=130 {
        assert_eq!(give(&mut test, job), None);
    }
    assert_eq!(give(&mut test, 1), Some(RefusalKind::NoResources), "1 MiB for each");
    let another =
        |test: &mut Test, token| refusal(&test.ask(&ALICE, submission(waiting(token, 500 << 10))));
    assert_eq!(another(&mut test, 1_000), None);
    for job in 131..=134 {
        give(&mut test, job);
    }
    let full = (1_001..1_004).map(|token| another(&mut test, token)).last().flatten();
    assert_eq!(full, Some(RefusalKind::NoResources));
    assert_eq!(give(&mut test, 150), Some(RefusalKind::NoResources), "no more than jobs may take");
    for job in 1..=5 {
        test.ask(&ALICE, ClientRequest::Kill { job: JobId(job) });
    }
    assert_eq!(another(&mut test, 2_000), None);
}

/// A client that sends a byte now and then does not hold up another user's job that needs the same program.
#[test]
fn who_dribbles_a_program_does_not_hold_up_others() {
    let other = ClientId(2);
    let mut test = Test::wide(1, 4);
    let (slow, _) = test.submit(request(1, 1, Some(1)));
    let actions = test.report(Report::ProgramWanted { job: slow, hash: HASH, nodes: set([0]) });
    assert!(replied(&actions, &ClientReply::ProgramWanted(HASH)));
    let bobs = HeadEvent::Client(other, BOB, submission(request(2, 1, Some(1))));
    test.event(bobs);
    let job = JobId(slow.0 + 1);
    test.report(Report::ProgramWanted { job, hash: HASH, nodes: set([0]) });
    for offset in 0..2 {
        let (total, data) = (10, vec![0]);
        test.ask(&ALICE, ClientRequest::ProgramChunk { hash: HASH, offset, total, data });
        test.advance(14_000 * MS);
    }
    assert_eq!(test.state(slow), JobState::Preparing);
    test.ask(
        &ALICE,
        ClientRequest::ProgramChunk { hash: HASH, offset: 2, total: 10, data: vec![0] },
    );
    let actions = test.advance(4_000 * MS);
    assert!(matches!(test.state(slow), JobState::Ending(Outcome::Refused(_))), "thirty seconds");
    let asked = HeadAction::ToClient(other, ClientReply::ProgramWanted(HASH));
    assert!(actions.contains(&asked), "{actions:?}");
    assert_eq!(test.state(job), JobState::Preparing);
}
