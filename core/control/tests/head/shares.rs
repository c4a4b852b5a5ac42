//! Fair shares of users: whose job is next, what is accounted for, and who sees it.

use super::*;
use kumi_control::batch::{After, ArrayRange};
use kumi_control::head::ShowOthers;
use kumi_control::message::{BatchOptions, WaitReason};
use kumi_control::shares::{ShareConfig, SharesReport, SpentBefore};
use kumi_sched::ShareRules;

const SECOND: u64 = 1_000 * MS;
const HOUR: u64 = 3_600 * SECOND;

fn shares() -> ShareConfig {
    let rules = ShareRules { half_life_ns: 24 * HOUR, overtaken_ns: 7 * 24 * HOUR };
    ShareConfig { rules, weights: Default::default(), spent: Vec::new() }
}

/// One processor, for one job at a time.
fn shared(shares: ShareConfig) -> HeadConfig {
    HeadConfig { shares: Some(shares), max_jobs_per_processor: 1, ..config(1) }
}

impl Test {
    fn submit_as(&mut self, user: &User, token: u128) -> JobId {
        let job = request(token, 1, Some(1));
        let actions = self.ask(user, ClientRequest::Submit(Box::new(job)));
        let job = actions.iter().find_map(|action| match action {
            HeadAction::ToClient(_, ClientReply::Submitted { job }) => Some(*job),
            _ => None,
        });
        job.unwrap_or_else(|| panic!("not submitted: {actions:?}"))
    }

    fn shares(&mut self, user: &User) -> SharesReport {
        let actions = self.ask(user, ClientRequest::Shares);
        let report = actions.into_iter().find_map(|action| match action {
            HeadAction::ToClient(_, ClientReply::Shares(report)) => Some(report),
            _ => None,
        });
        report.expect("a report")
    }

    fn ends(&mut self, job: JobId) {
        self.prepare(job, [(0, 1)]);
        self.frees(job, 0..1);
    }

    fn preparing(&self, job: JobId) -> bool {
        self.state(job) == JobState::Preparing
    }
}

#[test]
fn a_flood_of_one_user_does_not_keep_another_waiting() {
    for policy in ["dqt", "matrix", "dhc", "fcfs", "fcfs-bb", "first-fit", "scan"] {
        let mut test = Test::attached(HeadConfig { policy: policy.into(), ..shared(shares()) });
        let flood: Vec<JobId> = (1..=5).map(|token| test.submit_as(&ALICE, token)).collect();
        assert!(test.preparing(flood[0]), "{policy}");
        test.prepare(flood[0], [(0, 1)]);
        test.advance(60 * SECOND);
        let late = test.submit_as(&BOB, 9);
        // The order is looked at again by itself.
        test.advance(2 * SECOND);
        if policy != "first-fit" {
            let expected = Some(WaitReason::BehindShare { job: late });
            assert_eq!(test.reason(flood[1]), expected, "{policy}");
            assert_eq!(test.reason(flood[4]), expected, "{policy}");
            assert_ne!(test.reason(late), expected);
        }
        test.frees(flood[0], 0..1);
        assert!(test.preparing(late), "{policy}: {:?}", test.reason(late));
        test.ends(late);
        assert!(test.preparing(flood[1]), "{policy}: jobs of one user keep their order");
    }
}

/// Jobs of Alice that are held while her first one runs for eight days, longer than jobs may be overtaken: those that run after
/// it, or the tasks of an array of which one may run. Returns the first and the next.
fn held_for_eight_days(test: &mut Test, as_array: bool) -> [JobId; 2] {
    let jobs = if as_array {
        let batch = BatchOptions::default();
        let request = Box::new(JobRequest { batch, ..request(1, 1, Some(1)) });
        let array = Some(ArrayRange { first: 1, last: 3, most: Some(1) });
        let actions = test.ask(&ALICE, ClientRequest::SubmitBatch { request, array });
        let first = actions.iter().find_map(|action| match action {
            HeadAction::ToClient(_, ClientReply::Accepted { first, .. }) => Some(*first),
            _ => None,
        });
        let first = first.expect("accepted");
        [first, JobId(first.0 + 1)]
    } else {
        let first = test.submit_as(&ALICE, 1);
        let after = vec![After { job: first, however: false }];
        let batch = BatchOptions { after, ..Default::default() };
        let job = JobRequest { batch, ..request(2, 1, Some(1)) };
        let actions = test.ask(&ALICE, ClientRequest::Submit(Box::new(job)));
        let next = actions.iter().find_map(|action| match action {
            HeadAction::ToClient(_, ClientReply::Submitted { job }) => Some(*job),
            _ => None,
        });
        [first, next.expect("submitted")]
    };
    assert!(test.preparing(jobs[0]));
    test.prepare(jobs[0], [(0, 1)]);
    test.advance(8 * 24 * HOUR);
    jobs
}

#[test]
fn a_job_that_was_held_is_overtaken_from_its_release_on() {
    for as_array in [false, true] {
        // Bob's jobs always come first, but for the bound.
        let weights = [("1001".to_string(), 1_000_000)].into();
        let mut test = Test::attached(shared(ShareConfig { weights, ..shares() }));
        let [first, held] = held_for_eight_days(&mut test, as_array);
        let bob = test.submit_as(&BOB, 9);
        test.frees(first, 0..1);
        assert!(test.preparing(bob), "array: {as_array}, {:?}", test.reason(bob));
        // They go first for seven days, and no longer.
        test.prepare(bob, [(0, 1)]);
        test.advance(8 * 24 * HOUR);
        let next = test.submit_as(&BOB, 10);
        test.advance(2 * SECOND);
        test.frees(bob, 0..1);
        assert!(test.preparing(held) && !test.preparing(next), "array: {as_array}");
    }
}

#[test]
fn without_shares_jobs_wait_as_they_came() {
    let mut test = Test::attached(HeadConfig { shares: None, ..shared(shares()) });
    let jobs: Vec<JobId> = (1..=2).map(|token| test.submit_as(&ALICE, token)).collect();
    test.prepare(jobs[0], [(0, 1)]);
    test.advance(60 * SECOND);
    test.submit_as(&BOB, 9);
    test.frees(jobs[0], 0..1);
    assert!(test.preparing(jobs[1]));
    let actions = test.ask(&ALICE, ClientRequest::Shares);
    assert!(refused(actions).message.contains("[shares]"));
}

#[test]
fn what_a_job_spent_is_in_its_account_and_the_next_head_knows_it() {
    let mut test = Test::attached(shared(shares()));
    let job = test.submit_as(&ALICE, 1);
    test.prepare(job, [(0, 1)]);
    test.advance(HOUR);
    let [alice] = &test.shares(&ALICE).users[..] else { panic!("one user") };
    assert_eq!((alice.uid, alice.weight, alice.placed, alice.waiting), (1000, 1_000, 1, 0));
    let hour = HOUR / 1_000;
    assert!(alice.spent_us.abs_diff(hour) < hour / 20, "{alice:?}");
    test.frees(job, 0..1);
    let record = test.records.iter().find(|record| record.spec.job == job).expect("it is over");
    let (spent_us, at_ms) = (record.used.spent_us, record.ended_ms.expect("it is over"));
    assert!(spent_us.abs_diff(alice.spent_us) < hour / 100, "{spent_us} {alice:?}");

    let spent = vec![SpentBefore { uid: 1000, user: "alice".into(), spent_us, at_ms }];
    let config = shared(ShareConfig { spent, ..shares() });
    test.head = Head::new(config, Vec::new(), [2; 32]).expect("a policy");
    // It starts a day later.
    test.now += 24 * HOUR;
    test.event(HeadEvent::Timeout);
    let [alice] = &test.shares(&OWNER).users[..] else { panic!("one user") };
    assert_eq!(alice.user, "alice");
    assert!(alice.spent_us.abs_diff(spent_us / 2) < hour / 100, "half is forgotten: {alice:?}");
}

/// Its account so far is lost with the head that had it.
#[test]
fn a_job_that_runs_when_the_head_restarts_counts_from_its_start() {
    let mut test = Test::attached(shared(shares()));
    let job = test.submit_as(&ALICE, 1);
    test.prepare(job, [(0, 1)]);
    test.advance(HOUR);
    let records = test.records.clone();
    test.head = Head::new(shared(shares()), records, [2; 32]).expect("a policy");
    // Its node has not attached yet.
    test.event(HeadEvent::Timeout);
    let [alice] = &test.shares(&ALICE).users[..] else { panic!("one user") };
    let hour = HOUR / 1_000;
    assert!(alice.spent_us.abs_diff(hour) < hour / 20, "{alice:?}");
}

#[test]
fn another_policy_changes_nothing_of_what_was_spent() {
    let mut test = Test::attached(shared(shares()));
    let job = test.submit_as(&ALICE, 1);
    test.prepare(job, [(0, 1)]);
    test.advance(HOUR);
    let before = test.shares(&ALICE).users;
    let policy = Some("fcfs".to_string());
    let configure = ClientRequest::Configure { mode: None, slice: None, policy };
    assert!(replied(&test.ask(&OWNER, configure), &ClientReply::Done));
    let after = test.shares(&ALICE).users;
    assert!(after[0].spent_us.abs_diff(before[0].spent_us) < 1_000, "{before:?} {after:?}");
    test.advance(HOUR);
    assert!(test.shares(&ALICE).users[0].spent_us > before[0].spent_us * 19 / 10);
}

#[test]
fn weights_are_of_names_and_numbers() {
    let weights = [("alice".to_string(), 2_000), ("1001".to_string(), 500)];
    let config = ShareConfig { weights: weights.into(), ..shares() };
    let mut test = Test::attached(shared(config));
    let alice = User { name: "alice".into(), ..ALICE };
    test.submit_as(&alice, 1);
    test.submit_as(&BOB, 2);
    test.submit_as(&User { uid: 7, gid: 7, name: "eve".into() }, 3);
    let users = test.shares(&OWNER).users;
    let found: Vec<_> = users.iter().map(|of| (of.uid, of.weight)).collect();
    assert!(found.contains(&(1000, 2_000)) && found.contains(&(1001, 500)), "{found:?}");
    assert!(found.contains(&(7, 1_000)), "{found:?}");
}

#[test]
fn users_see_of_others_what_the_cluster_shows() {
    for (show, seen) in [
        (ShowOthers::All, vec![1000, 1001, 1002]),
        (ShowOthers::Jobs, vec![1000, u32::MAX]),
        (ShowOthers::Nothing, vec![1000]),
    ] {
        let mut test = Test::attached(HeadConfig { show_others: show, ..shared(shares()) });
        test.submit_as(&ALICE, 1);
        test.submit_as(&BOB, 2);
        test.submit_as(&BOB, 3);
        test.submit_as(&User { uid: 1002, gid: 1002, name: "eve".into() }, 4);
        let uids = |users: &User, test: &mut Test| -> Vec<u32> {
            let mut uids: Vec<u32> = test.shares(users).users.iter().map(|of| of.uid).collect();
            uids.sort_unstable();
            uids
        };
        assert_eq!(uids(&ALICE, &mut test), seen, "{show:?}");
        assert_eq!(uids(&OWNER, &mut test), [1000, 1001, 1002], "{show:?}");
        if show == ShowOthers::Jobs {
            // One row has no weight and no count of one user.
            let report = test.shares(&ALICE);
            let others = report.users.last().expect("others");
            let of_others = (&*others.user, others.weight, others.waiting + others.placed);
            assert_eq!(of_others, ("", 2_000, 3));
        }
    }
}
