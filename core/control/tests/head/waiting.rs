//! Jobs that wait: what for, who is told of it, and when the head withdraws them.

use super::*;
use kumi_control::message::{JobList, LONGEST_ESTIMATE, WaitReason};

const SECOND: u64 = 1_000 * MS;

impl Test {
    fn list(&mut self, user: &User) -> JobList {
        let actions = self.ask(user, ClientRequest::Jobs(JobsQuery::first_page(true)));
        let list = actions.into_iter().find_map(|action| match action {
            HeadAction::ToClient(_, ClientReply::Jobs(JobsPage { list, .. })) => Some(list),
            _ => None,
        });
        list.expect("a list")
    }

    pub(super) fn reason(&mut self, job: JobId) -> Option<WaitReason> {
        self.list(&ALICE).waits_for(job).copied()
    }

    /// A job with one rank on each of so many nodes.
    fn wants(&mut self, token: u128, nodes: u32) -> JobId {
        self.submit(request(token, nodes, Some(nodes))).0
    }

    /// The node is not reached any more.
    fn node_goes(&mut self, node: u32) {
        self.report(Report::Detached(set([node])));
    }

    pub(super) fn frees(&mut self, job: JobId, nodes: impl IntoIterator<Item = u32>) {
        self.report(Report::Freed { job, nodes: set(nodes) });
        assert_eq!(self.state(job), JobState::Ended(Outcome::Success));
    }
}

/// What clients are told of this job.
fn told(actions: &[HeadAction], wanted: JobId) -> Vec<WaitReason> {
    let told = actions.iter().filter_map(|action| match action {
        HeadAction::ToClient(_, ClientReply::Waits { job, reason }) if *job == wanted => {
            Some(*reason)
        }
        _ => None,
    });
    told.collect()
}

fn limited(token: u128, nodes: u32, wait: WaitLimit) -> JobRequest {
    JobRequest { wait: Some(wait), ..request(token, nodes, Some(nodes)) }
}

#[test]
fn nodes_that_are_down_are_waited_for() {
    let mut test = Test::without_nodes(4);
    let early = test.wants(1, 4);
    assert_eq!(test.reason(early), Some(WaitReason::NodesAttaching { up: 0, nodes: 4 }));
    test.report(Report::Attached((0..3).map(description).collect()));
    assert_eq!(
        test.reason(early),
        Some(WaitReason::NodesDown { wanted: 4, has: 3, up: 3, nodes: 4 })
    );
    // However long: the head does not guess when the node will come.
    test.advance(3_600 * SECOND);
    assert_eq!(test.state(early), JobState::Queued);
    test.report(Report::Attached(vec![description(3)]));
    assert_eq!(test.state(early), JobState::Preparing);
    assert_eq!(test.reason(early), Some(WaitReason::Preparing { ready: 0, nodes: 4 }));
    test.prepare(early, [(1, 1)]);
    assert_eq!(test.reason(early), Some(WaitReason::Preparing { ready: 1, nodes: 4 }));
    test.prepare(early, [(0, 1), (2, 1), (3, 1)]);
    assert_eq!((test.state(early), test.reason(early)), (JobState::Running, None));
}

#[test]
fn an_open_number_of_nodes_waits_for_those_that_are_expected() {
    let mut test = Test::without_nodes(4);
    test.report(Report::Attached((0..2).map(description).collect()));
    let (job, _) = test.submit(request(1, 8, None));
    assert_eq!(test.reason(job), Some(WaitReason::NodesAttaching { up: 2, nodes: 4 }));
    test.advance(10 * SECOND);
    assert_eq!(test.state(job), JobState::Preparing, "it takes those that there are");
}

#[test]
fn full_nodes_and_earlier_jobs_are_waited_for() {
    let mut test = Test::wide(2, 1);
    let first = test.running(1, 2);
    let (second, third) = (test.wants(2, 2), test.wants(3, 1));
    assert_eq!(test.reason(second), Some(WaitReason::ProcessorsFull { limit: 1 }));
    assert_eq!(test.reason(third), Some(WaitReason::Behind { job: second }));
    let list = test.list(&BOB);
    let waiting: Vec<JobId> = list.waiting.iter().map(|(job, _)| *job).collect();
    assert_eq!(waiting, [second, third], "ascending, for everybody, and only of jobs that wait");
    test.frees(first, 0..2);
    assert_eq!(test.reason(second), Some(WaitReason::Preparing { ready: 0, nodes: 2 }));
    assert_eq!(test.reason(third), Some(WaitReason::ProcessorsFull { limit: 1 }));
}

#[test]
fn taken_nodes_are_waited_for_where_jobs_have_nodes_of_their_own() {
    let mut test = Test::with_policy(4, "fcfs");
    test.running(1, 3);
    let (wide, narrow) = (test.wants(2, 2), test.wants(3, 1));
    assert_eq!(test.reason(wide), Some(WaitReason::ProcessorsTaken { wanted: 2, free: 1 }));
    assert_eq!(test.reason(narrow), Some(WaitReason::Behind { job: wide }));
    // The policy in force says it.
    let configure =
        ClientRequest::Configure { mode: None, slice: None, policy: Some("first-fit".into()) };
    test.ask(&OWNER, configure);
    assert_eq!(test.state(narrow), JobState::Preparing);
    assert_eq!(test.reason(wide), Some(WaitReason::ProcessorsTaken { wanted: 2, free: 0 }));
}

#[test]
fn who_follows_a_waiting_job_is_told_once_for_each_kind() {
    let mut test = Test::with_policy(2, "fcfs");
    let first = test.running(1, 1);
    let second = test.wants(2, 2);
    let taken = WaitReason::ProcessorsTaken { wanted: 2, free: 1 };
    assert_eq!(told(&test.advance(SECOND - 2_000), second), []);
    assert_eq!(told(&test.advance(SECOND), second), [taken]);
    // Jobs come and go, and the kind stays.
    let third = test.wants(3, 1);
    test.ask(&ALICE, ClientRequest::Kill { job: third, grace_ns: 0 });
    assert_eq!(told(&test.advance(60 * SECOND), second), []);
    test.node_goes(1);
    let down = WaitReason::NodesDown { wanted: 2, has: 1, up: 1, nodes: 2 };
    assert_eq!(told(&test.advance(60 * SECOND), second), [down]);
    // Another client asks for itself.
    let follow = ClientRequest::Follow { job: second, offset: 0, wait: true };
    test.event(HeadEvent::Client(ClientId(2), ALICE, follow));
    assert_eq!(told(&test.advance(SECOND + MS), second), [down, down], "one for each client");
    test.report(Report::Attached(vec![description(1)]));
    test.frees(first, [0]);
    assert_eq!(test.state(second), JobState::Preparing);
    assert_eq!(told(&test.advance(60 * SECOND), second), []);
}

#[test]
fn a_job_that_starts_soon_says_nothing() {
    let mut test = Test::with_policy(1, "fcfs");
    let first = test.running(1, 1);
    let second = test.wants(2, 1);
    test.frees(first, [0]);
    assert_eq!(told(&test.advance(60 * SECOND), second), []);
}

#[test]
fn a_job_that_may_not_wait_starts_or_is_refused_and_nothing_of_it_is_kept() {
    let mut test = Test::wide(2, 1);
    let (starts, _) = test.submit(limited(1, 2, WaitLimit::No));
    assert_eq!(test.state(starts), JobState::Preparing);
    let (before, persisted) = (test.list(&OWNER), test.records.len());
    let actions = test.ask(&ALICE, ClientRequest::Submit(Box::new(limited(2, 1, WaitLimit::No))));
    let refusal = refused(actions);
    assert_eq!(refusal.kind, RefusalKind::NotNow);
    let says = "cannot start at once: a processor takes at most 1 job";
    assert!(refusal.message.contains(says), "{}", refusal.message);
    assert_eq!((test.list(&OWNER), test.records.len()), (before, persisted));
    // The same submission again is a new one, and its number is new.
    test.prepare(starts, [(0, 1), (1, 1)]);
    test.frees(starts, 0..2);
    let (again, _) = test.submit(limited(2, 1, WaitLimit::No));
    assert_eq!((again, test.state(again)), (JobId(3), JobState::Preparing));
}

#[test]
fn a_job_is_withdrawn_after_its_time_unless_it_has_its_nodes() {
    let mut test = Test::wide(2, 1);
    let first = test.running(1, 2);
    let (short, _) = test.submit(limited(2, 2, WaitLimit::AtMost(5 * SECOND)));
    let (long, _) = test.submit(limited(3, 2, WaitLimit::AtMost(8 * SECOND)));
    test.advance(4 * SECOND);
    assert_eq!(test.state(short), JobState::Queued);
    let actions = test.advance(2 * SECOND);
    let JobState::Ended(Outcome::Refused(refusal)) = test.state(short) else {
        panic!("{:?}", test.state(short))
    };
    assert_eq!(refusal.kind, RefusalKind::NotNow);
    let says = "did not start within 5s: a processor takes at most 1 job";
    assert!(refusal.message.contains(says), "{}", refusal.message);
    let ended =
        |action: &HeadAction| matches!(action, HeadAction::EndSpool { job, .. } if *job == short);
    position(&actions, ended);
    // The other one gets its nodes just in time, and its time to start then does not count.
    test.frees(first, 0..2);
    assert_eq!(test.state(long), JobState::Preparing);
    test.advance(60 * SECOND);
    assert_eq!(test.state(long), JobState::Preparing);
    assert_eq!(test.head.next_timeout().filter(|at| *at <= test.now), None);
}

#[test]
fn nodes_that_come_free_at_the_last_moment_are_taken() {
    let mut test = Test::wide(1, 1);
    let first = test.running(1, 1);
    let (second, _) = test.submit(limited(2, 1, WaitLimit::AtMost(SECOND)));
    // Time passes without an event; both come at once.
    test.now += 2 * SECOND;
    test.frees(first, [0]);
    assert_eq!(test.state(second), JobState::Preparing);
}

#[test]
fn one_that_is_withdrawn_makes_room_for_others_whose_time_is_over_too() {
    let mut test = Test::without_nodes(2);
    test.report(Report::Attached((0..2).map(description).collect()));
    let configure =
        ClientRequest::Configure { mode: None, slice: None, policy: Some("fcfs".into()) };
    test.ask(&OWNER, configure);
    test.running(1, 1);
    let (wide, _) = test.submit(limited(2, 2, WaitLimit::AtMost(SECOND)));
    let (narrow, _) = test.submit(limited(3, 1, WaitLimit::AtMost(SECOND)));
    test.now += 3 * SECOND;
    test.event(HeadEvent::Timeout);
    assert!(matches!(test.state(wide), JobState::Ended(Outcome::Refused(_))));
    assert_eq!(test.state(narrow), JobState::Preparing);
}

#[test]
fn the_cluster_says_how_long_jobs_wait_that_do_not() {
    let wait = WaitLimit::AtMost(2 * SECOND);
    let mut test = Test::attached(HeadConfig { wait, max_jobs_per_processor: 1, ..config(1) });
    test.running(1, 1);
    let silent = test.wants(2, 1);
    let (patient, _) = test.submit(limited(3, 1, WaitLimit::Forever));
    test.advance(60 * SECOND);
    assert!(matches!(test.state(silent), JobState::Ended(Outcome::Refused(_))));
    assert_eq!(test.state(patient), JobState::Queued);
    for (limit, good) in [(0, false), (1, true), (LONGEST_ESTIMATE, true), (u64::MAX, false)] {
        let asked = limited(u128::from(limit) + 10, 1, WaitLimit::AtMost(limit));
        let actions = test.ask(&ALICE, ClientRequest::Submit(Box::new(asked)));
        assert_eq!(refusal(&actions), (!good).then_some(RefusalKind::BadRequest), "{limit}");
    }
}

#[test]
fn a_new_head_goes_on_counting() {
    let mut test = Test::wide(2, 1);
    test.running(1, 2);
    let (job, _) = test.submit(limited(2, 2, WaitLimit::AtMost(10 * SECOND)));
    test.advance(4 * SECOND);
    let records = test.records.clone();
    let config = HeadConfig { max_jobs_per_processor: 1, ..config(2) };
    // The machine's clock begins anew, the wall clock goes on.
    let mut head = Head::new(config, records, [2; 32]).expect("a policy");
    let wall_ms = 1_700_000_000_000 + test.now / MS;
    head.handle(5, wall_ms, HeadEvent::Timeout);
    let state = |head: &Head| {
        head.records().find(|record| record.spec.job == job).expect("known").state.clone()
    };
    head.handle(5 * SECOND, wall_ms + 5_000, HeadEvent::Timeout);
    assert_eq!(state(&head), JobState::Queued);
    head.handle(7 * SECOND, wall_ms + 7_000, HeadEvent::Timeout);
    assert!(matches!(state(&head), JobState::Ended(Outcome::Refused(_))));
}
