//! Many jobs and many nodes: what an event costs, in processor time, beside one that must look at all jobs.

use super::*;

use nix::time::{ClockId, clock_gettime};

/// Processor time of this thread so far, in nanoseconds: what other programs do is not in it.
fn processor_time() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has this clock");
    (time.tv_sec() * 1_000_000_000 + time.tv_nsec()) as u64
}

impl Test {
    /// Nanoseconds that the head needs for one of these events: the mean over the cheapest of several rounds of
    /// `count`. What the test keeps of the actions is not in it.
    fn cost(&mut self, count: u64, mut event: impl FnMut(u64) -> HeadEvent) -> u64 {
        let mut least = u64::MAX;
        for round in 0..5 {
            let events: Vec<HeadEvent> =
                (round * count..(round + 1) * count).map(&mut event).collect();
            let begin = processor_time();
            for event in events {
                self.now += 1000;
                self.head.handle(self.now, 1_700_000_000_000 + self.now / MS, event);
                while let Some(action) = self.head.poll_action() {
                    let refused =
                        matches!(action, HeadAction::ToClient(_, ClientReply::Refused(_)));
                    assert!(!refused, "{action:?}");
                }
            }
            least = least.min((processor_time() - begin) / count);
        }
        least
    }

    /// A cluster of so many nodes with so many jobs, of which two run. Half of the others wait for all nodes, half for
    /// as many as have a processor for each rank.
    fn crowded(nodes: u32, jobs: u64) -> Self {
        let mut test = Self::new(nodes);
        for number in 0..jobs {
            test.event(submitted(nodes, number));
        }
        assert_eq!(test.head.records().count() as u64, jobs);
        test
    }
}

/// The submission of job `number`, which wants all of a cluster of so many nodes.
fn submitted(nodes: u32, number: u64) -> HeadEvent {
    let wanted = number.is_multiple_of(2).then_some(nodes);
    let wanted = request(u128::from(number), nodes * 2, wanted);
    HeadEvent::Client(CLIENT, OWNER, submission(wanted))
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_submission_does_not_look_at_those_that_wait() {
    const JOBS: u64 = 8_000;
    let mut test = Test::crowded(100, JOBS);
    // Until now nodes might have been missing because they had not come yet.
    test.advance(5_000 * MS);
    // A node that is heard of again looks at its cluster's nodes and at all jobs that wait.
    let attached = || HeadEvent::Child(LINK, Up::Report(Report::Attached(vec![description(7)])));
    let all = test.cost(3, |_| attached());
    let one = test.cost(200, |number| submitted(100, JOBS + number));
    assert!(one * 4 < all, "a submission {one} ns, a look at {JOBS} jobs {all} ns");
    let timeout = test.cost(200, |_| HeadEvent::Timeout);
    assert!(timeout * 4 < all, "a timeout {timeout} ns, a look at {JOBS} jobs {all} ns");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_submission_does_not_look_at_the_nodes() {
    let cost = |nodes| {
        let mut test = Test::crowded(nodes, 100);
        test.advance(5_000 * MS);
        test.cost(200, |number| submitted(nodes, 100 + number))
    };
    let (few, many) = (cost(10), cost(10_000));
    assert!(many < few * 4, "a submission to 10 nodes {few} ns, to 10,000 {many} ns");
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
#[cfg_attr(miri, ignore = "takes minutes")]
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
        test.ask(&OWNER, ClientRequest::Kill { job: JobId(number), grace_ns: 0 });
    }
    let remembered = test.head.records().count();
    assert!((60..70).contains(&remembered), "{remembered} of {known}");
    let actions = test.ask(&ALICE, submission(waiting(9_000, large)));
    assert_eq!(refusal(&actions), None);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
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
    assert_eq!(taken(&OWNER, 20_000..39_000), 10_990);
    assert_eq!(taken(&BOB, 40_000..40_001), 0);
    let mut few = Test::from_config(HeadConfig { max_jobs_per_user: 3, ..config(1) });
    let asked: Vec<_> = (0..4)
        .map(|token| refusal(&few.ask(&ALICE, submission(request(token, 1, Some(1))))))
        .collect();
    assert_eq!(asked[..3], [None, None, None]);
    assert_eq!(asked[3], Some(RefusalKind::Quota));
}

/// Input for jobs that wait counts, and is given back when they run or end.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
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
        test.ask(&ALICE, ClientRequest::Kill { job: JobId(job), grace_ns: 0 });
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
