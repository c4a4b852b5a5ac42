//! Jobs with limits of time, jobs that run after others, and arrays.

use super::random::Random;
use super::*;
use kumi_control::batch::{After, ArrayIndices, ArrayRange, ArrayTask};
use kumi_control::message::{BatchOptions, USUAL_GRACE, WaitReason};

const SECOND: u64 = 1_000 * MS;

fn narrow(token: u128, batch: BatchOptions) -> JobRequest {
    JobRequest { batch, ..request(token, 1, Some(1)) }
}

fn after(token: u128, jobs: &[JobId], however: bool) -> JobRequest {
    let after = jobs.iter().map(|&job| After { job, however }).collect();
    narrow(token, BatchOptions { after, ..Default::default() })
}

impl Test {
    fn accepted(&mut self, request: JobRequest, array: Option<ArrayRange>) -> (JobId, JobId) {
        self.accepts(ClientRequest::SubmitBatch { request: Box::new(request), array })
    }

    fn accepts(&mut self, ask: ClientRequest) -> (JobId, JobId) {
        let actions = self.ask(&ALICE, ask);
        let accepted = actions.iter().find_map(|action| match action {
            HeadAction::ToClient(_, ClientReply::Accepted { first, last }) => Some((*first, *last)),
            _ => None,
        });
        accepted.unwrap_or_else(|| panic!("not accepted: {actions:?}"))
    }

    /// It runs, and then all of its ranks end.
    fn succeeds(&mut self, job: JobId, node: u32) -> Vec<HeadAction> {
        self.prepare(job, [(node, 1)]);
        self.report(Report::Freed { job, nodes: set([node]) })
    }

    fn fails(&mut self, job: JobId, node: u32) {
        self.prepare(job, [(node, 1)]);
        let status = RankStatus::Exited(3);
        self.report(Report::RankFailed { job, rank: 0, node: NodeId(node), status });
        self.report(Report::Freed { job, nodes: set([node]) });
    }

    fn restart(&mut self, nodes: u32) {
        self.head = Head::new(config(nodes), self.records.clone(), [2; 32]).expect("a policy");
        self.event(HeadEvent::Timeout);
        self.event(HeadEvent::ChildUp(LINK));
    }

    fn node_of(&self, job: JobId) -> u32 {
        let record = self.head.records().find(|record| record.spec.job == job).expect("known");
        record.spec.layout[0].node.0
    }

    fn in_state(&self, jobs: (JobId, JobId), state: &JobState) -> Vec<u64> {
        let all = self.head.records().filter(|record| record.state == *state);
        let all = all.map(|record| record.spec.job).filter(|job| (jobs.0..=jobs.1).contains(job));
        all.map(|job| job.0).collect()
    }
}

fn predecessor_failed(state: &JobState) -> bool {
    matches!(state, JobState::Ended(Outcome::Refused(refusal)) if refusal.kind == RefusalKind::PredecessorFailed)
}

fn limited(seconds: u64) -> BatchOptions {
    BatchOptions { time_limit_ns: Some(seconds * SECOND), ..Default::default() }
}

#[test]
fn a_job_is_asked_to_end_when_its_time_limit_is_over() {
    let mut test = Test::new(1);
    let (job, _) = test.submit(narrow(1, limited(60)));
    // Only from its start on.
    test.advance(100 * SECOND);
    test.prepare(job, [(0, 1)]);
    test.advance(59 * SECOND);
    assert_eq!(test.state(job), JobState::Running);
    let actions = test.advance(SECOND);
    assert!(
        commands(&actions).iter().any(|(_, it)| matches!(it, Command::Signal { signal: 15, .. }))
    );
    test.advance(USUAL_GRACE + MS);
    assert_eq!(test.state(job), JobState::Ending(Outcome::TimeLimit(60 * SECOND)));
}

#[test]
fn the_cluster_says_how_long_jobs_run_that_do_not() {
    let time_limit_ns = Some(60 * SECOND);
    let mut test =
        Test::attached(HeadConfig { time_limit_ns, max_jobs_per_processor: 4, ..config(1) });
    let (silent, _) = test.submit(narrow(1, Default::default()));
    let (longer, _) = test.submit(narrow(2, limited(600)));
    for job in [silent, longer] {
        test.prepare(job, [(0, 1)]);
    }
    test.advance(60 * SECOND + USUAL_GRACE + MS);
    assert_eq!(test.state(silent), JobState::Ending(Outcome::TimeLimit(60 * SECOND)));
    assert_eq!(test.state(longer), JobState::Running);
}

#[test]
fn a_new_head_counts_the_time_before_it() {
    let mut test = Test::new(1);
    let (job, _) = test.submit(narrow(1, limited(60)));
    test.prepare(job, [(0, 1)]);
    test.advance(50 * SECOND);
    test.restart(1);
    let mut node = description(0);
    node.jobs = vec![(job, vec![0])];
    test.report(Report::Attached(vec![node]));
    test.advance(9 * SECOND);
    assert_eq!(test.state(job), JobState::Running);
    test.advance(2 * SECOND + USUAL_GRACE);
    assert_eq!(test.state(job), JobState::Ending(Outcome::TimeLimit(60 * SECOND)));
}

#[test]
fn a_job_starts_after_those_that_it_names() {
    let mut test = Test::new(2);
    let (one, two) = (
        test.submit(narrow(1, Default::default())).0,
        test.submit(narrow(2, Default::default())).0,
    );
    let (last, _) = test.submit(after(3, &[one, two], false));
    assert_eq!(test.reason(last), Some(WaitReason::After { job: one }));
    test.succeeds(one, test.node_of(one));
    assert_eq!(test.reason(last), Some(WaitReason::After { job: two }));
    assert_eq!(test.state(last), JobState::Queued);
    test.succeeds(two, test.node_of(two));
    assert_eq!(test.state(last), JobState::Preparing);
    // What is over already is not waited for.
    assert_eq!(
        {
            let job = test.submit(after(4, &[one], false)).0;
            test.state(job)
        },
        JobState::Preparing
    );
}

#[test]
fn whatever_depends_on_a_job_that_failed_is_withdrawn() {
    let mut test = Test::new(1);
    let (first, _) = test.submit(narrow(1, Default::default()));
    // A long chain.
    let mut chain = vec![first];
    for token in 2..4_000 {
        let before = chain[chain.len() - 1];
        chain.push(test.submit(after(token, &[before], false)).0);
    }
    let (however, _) = test.submit(after(5_000, &[first], true));
    test.fails(first, 0);
    for &job in &chain[1..] {
        assert!(predecessor_failed(&test.state(job)), "{job}");
    }
    assert_eq!(test.state(however), JobState::Preparing, "it did not matter how");
    let late = ClientRequest::Submit(Box::new(after(6_000, &[first], false)));
    assert_eq!(refusal(&test.ask(&ALICE, late)), Some(RefusalKind::PredecessorFailed));
}

#[test]
fn only_known_jobs_of_ones_own_are_waited_for() {
    let mut test = Test::new(1);
    let (mine, _) = test.submit(narrow(1, Default::default()));
    let of_bob = ClientRequest::Submit(Box::new(after(2, &[mine], true)));
    assert_eq!(refusal(&test.ask(&BOB, of_bob)), Some(RefusalKind::NotPermitted));
    let nobodys = ClientRequest::Submit(Box::new(after(3, &[JobId(77)], true)));
    assert_eq!(refusal(&test.ask(&ALICE, nobodys)), Some(RefusalKind::NoSuchJob));
}

#[test]
fn a_new_head_knows_what_is_waited_for() {
    let mut test = Test::new(1);
    let (first, _) = test.submit(narrow(1, Default::default()));
    let (second, _) = test.submit(after(2, &[first], false));
    let (third, _) = test.submit(after(3, &[second], false));
    test.succeeds(first, 0);
    // The end of the first was recorded, and not what follows from it.
    let waiting = after(2, &[first], false).batch.after;
    for record in test.records.iter_mut().filter(|record| record.spec.job == second) {
        record.state = JobState::Queued;
        record.spec.layout.clear();
        record.spec.request.batch.after.clone_from(&waiting);
    }
    test.restart(1);
    test.report(Report::Attached(vec![description(0)]));
    assert_eq!(test.state(second), JobState::Preparing);
    assert_eq!(test.reason(third), Some(WaitReason::After { job: second }));
}

/// How often the job is written by these actions.
fn written(actions: &[HeadAction], job: JobId) -> usize {
    let of_job = |action: &&HeadAction| matches!(action, HeadAction::Persist(record) if record.spec.job == job);
    actions.iter().filter(of_job).count()
}

/// Its record may be as long as the list of those before it.
#[test]
fn a_job_after_many_is_not_written_for_each_of_them() {
    let mut test = Test::new(1);
    let before: Vec<JobId> =
        (1..40).map(|token| test.submit(narrow(token, Default::default())).0).collect();
    let (last, _) = test.submit(after(100, &before, false));
    for (index, &job) in before.iter().enumerate() {
        let actions = test.succeeds(job, 0);
        let is_next = index + 1 == before.len();
        assert_eq!(written(&actions, last), usize::from(is_next), "only when it starts");
        if index == 20 {
            test.restart(1);
            test.report(Report::Attached(vec![description(0)]));
            assert_eq!(test.reason(last), Some(WaitReason::After { job: before[21] }));
        }
    }
    assert_eq!(test.state(last), JobState::Preparing);
}

/// A new head could not tell any more how that one ended.
#[test]
fn what_a_job_waits_for_is_written_before_the_job_before_it_is_forgotten() {
    let retention = Retention { jobs: 1, age_ms: u64::MAX };
    let mut test = Test::attached(HeadConfig { retention, ..config(1) });
    let [first, second, third] =
        [1, 2, 3].map(|token| test.submit(narrow(token, Default::default())).0);
    let (last, _) = test.submit(after(4, &[first, second, third], false));
    assert_eq!(written(&test.succeeds(first, 0), last), 0);
    let actions = test.succeeds(second, 0);
    assert_eq!(written(&actions, last), 1);
    let forgets = position(&actions, |action| *action == HeadAction::Discard(first));
    let writes = position(
        &actions,
        |action| matches!(action, HeadAction::Persist(record) if record.spec.job == last),
    );
    assert!(writes < forgets, "{actions:?}");
    test.records.retain(|record| record.spec.job != first);
    test.restart(1);
    test.report(Report::Attached(vec![description(0)]));
    assert_eq!(test.reason(last), Some(WaitReason::After { job: third }));
    test.succeeds(third, 0);
    assert_eq!(test.state(last), JobState::Preparing);
}

#[test]
fn an_array_is_a_job_for_each_index() {
    let mut test = Test::wide(3, 8);
    let array = ArrayRange { first: 5, last: 7, most: None };
    let (first, last) = test.accepted(narrow(1, Default::default()), Some(array));
    assert_eq!(last.0 - first.0, 2);
    let indices: Vec<String> = test
        .head
        .records()
        .map(|record| {
            let env = &record.spec.request.env;
            env.iter().find(|(name, _)| name == "KUMI_ARRAY_INDEX").expect("an index").1.clone()
        })
        .collect();
    assert_eq!(indices, ["5", "6", "7"]);
    assert_eq!(test.in_state((first, last), &JobState::Preparing).len(), 3);
    // Submitted again, it is the same array.
    let again = test.accepted(narrow(1, Default::default()), Some(array));
    assert_eq!((again, test.head.records().count()), ((first, last), 3));
}

/// An array whose indices are these.
fn listed(token: u128, indices: &[u32], most: Option<u32>) -> ClientRequest {
    let request = Box::new(narrow(token, Default::default()));
    ClientRequest::SubmitArray { request, indices: ArrayIndices { indices: indices.into(), most } }
}

#[test]
fn indices_of_an_array_need_not_follow_one_another() {
    let mut test = Test::wide(3, 8);
    let ask = listed(1, &[1, 3, u32::MAX], Some(2));
    assert_eq!(test.accepts(ask.clone()), (JobId(1), JobId(3)));
    let tasks: Vec<ArrayTask> =
        test.head.records().filter_map(|record| record.spec.request.batch.task).collect();
    let task = |index| ArrayTask { array: JobId(1), index, most: Some(2) };
    assert_eq!(tasks, [task(1), task(3), task(u32::MAX)]);
    assert_eq!(test.in_state((JobId(1), JobId(3)), &JobState::Preparing), [1, 2]);
    // Submitted again, it is the same array, and no other one.
    assert_eq!(test.accepts(ask), (JobId(1), JobId(3)));
    let wrong: [&[u32]; 4] = [&[], &[1, 1], &[2, 1], &[1, 3, 4]];
    for indices in wrong {
        let actions = test.ask(&ALICE, listed(1, indices, Some(2)));
        assert_eq!(refusal(&actions), Some(RefusalKind::BadRequest), "{indices:?}");
    }
    let many: Vec<u32> = (0..=10_000).map(|index| index * 2).collect();
    let actions = test.ask(&ALICE, listed(9, &many, None));
    assert_eq!(refusal(&actions), Some(RefusalKind::BadRequest));
    assert_eq!(test.head.records().count(), 3);
}

#[test]
fn at_most_so_many_tasks_are_under_way() {
    let mut test = Test::wide(8, 8);
    let array = ArrayRange { first: 1, last: 20, most: Some(3) };
    let jobs = test.accepted(narrow(1, Default::default()), Some(array));
    assert_eq!(test.in_state(jobs, &JobState::Preparing), [1, 2, 3]);
    assert_eq!(test.reason(JobId(4)), Some(WaitReason::ArrayFull { most: 3 }));
    // However a task ends, the next one starts. One that never started frees no place.
    test.ask(&ALICE, ClientRequest::Kill { job: JobId(4), grace_ns: 0 });
    assert_eq!(test.in_state(jobs, &JobState::Preparing), [1, 2, 3]);
    test.fails(JobId(2), test.node_of(JobId(2)));
    assert_eq!(test.in_state(jobs, &JobState::Preparing), [1, 3, 5]);
    // Other jobs do not wait for it.
    let other = test.submit(narrow(99, Default::default())).0;
    assert_eq!(test.state(other), JobState::Preparing);
    test.restart(8);
    test.report(Report::Attached((0..8).map(description).collect()));
    let placed = |test: &Test| -> usize {
        let states = test.head.records().filter(|it| it.spec.request.batch.task.is_some());
        states.filter(|it| !matches!(it.state, JobState::Queued | JobState::Ended(_))).count()
    };
    assert!(placed(&test) <= 3, "a new head counts those that run");
    while let Some(job) =
        (jobs.0.0..=jobs.1.0).map(JobId).find(|&job| test.state(job) == JobState::Preparing)
    {
        test.succeeds(job, test.node_of(job));
        assert!(placed(&test) <= 3);
    }
    let over =
        (jobs.0.0..=jobs.1.0).all(|job| matches!(test.state(JobId(job)), JobState::Ended(_)));
    assert!(over, "no task is left behind");
}

#[test]
fn nothing_of_a_refused_array_is_kept() {
    let mut test = Test::new(1);
    for (first, last, most) in [(2, 1, None), (0, 10_000, None), (1, 2, Some(0))] {
        let request = Box::new(narrow(1, Default::default()));
        let ask =
            ClientRequest::SubmitBatch { request, array: Some(ArrayRange { first, last, most }) };
        assert_eq!(refusal(&test.ask(&ALICE, ask)), Some(RefusalKind::BadRequest));
    }
    let many = ArrayRange { first: 1, last: 5_001, most: None };
    let ask = ClientRequest::SubmitBatch {
        request: Box::new(narrow(2, Default::default())),
        array: Some(many),
    };
    assert_eq!(refusal(&test.ask(&ALICE, ask)), Some(RefusalKind::Quota));
    // Also if it is the cluster that says it.
    let mut test = Test::attached(HeadConfig { wait: WaitLimit::No, ..config(1) });
    let request = Box::new(narrow(3, Default::default()));
    let array = Some(ArrayRange { first: 1, last: 2, most: None });
    let ask = ClientRequest::SubmitBatch { request, array };
    assert_eq!(refusal(&test.ask(&ALICE, ask)), Some(RefusalKind::BadRequest));
    assert_eq!(test.head.records().count(), 0);
}

#[test]
fn an_array_that_is_submitted_again_is_the_same_or_refused() {
    let mut test = Test::new(1);
    let range = |first, last| Some(ArrayRange { first, last, most: None });
    let jobs = test.accepted(narrow(1, Default::default()), range(3, 5));
    assert_eq!(test.accepted(narrow(1, Default::default()), range(3, 5)), jobs);
    test.accepted(narrow(100, Default::default()), None);
    for (token, array) in [(1, range(3, 6)), (1, range(4, 5)), (100, range(1, 2))] {
        let request = Box::new(narrow(token, Default::default()));
        let actions = test.ask(&ALICE, ClientRequest::SubmitBatch { request, array });
        assert_eq!(refusal(&actions), Some(RefusalKind::BadRequest), "{token}");
    }
}

/// The quota checks that nothing is left of it when nothing is left of any job.
#[test]
fn what_a_job_no_longer_waits_for_is_refunded_too() {
    let mut test = Test::new(1);
    let (first, _) = test.accepted(narrow(1, Default::default()), None);
    let (second, _) = test.accepted(after(2, &[first], true), None);
    let (last, _) = test.accepted(after(3, &[first, second], true), None);
    for job in [first, second, last] {
        test.succeeds(job, 0);
    }
    let ended = JobState::Ended(Outcome::Success);
    assert_eq!(test.in_state((first, last), &ended), [first.0, second.0, last.0]);
}

#[test]
fn who_waits_for_a_job_learns_how_it_ended() {
    let mut test = Test::new(1);
    let (job, _) = test.accepted(narrow(1, Default::default()), None);
    assert!(
        !test
            .ask(&ALICE, ClientRequest::Wait { job })
            .iter()
            .any(|action| matches!(action, HeadAction::ToClient(..)))
    );
    let ended = ClientReply::Ended { job, outcome: Outcome::Success, not_kept: 0 };
    assert!(replied(&test.succeeds(job, 0), &ended));
    assert!(replied(&test.ask(&ALICE, ClientRequest::Wait { job }), &ended), "also afterwards");
    assert_eq!(
        refusal(&test.ask(&BOB, ClientRequest::Wait { job })),
        Some(RefusalKind::NotPermitted)
    );
}

#[test]
fn a_program_that_came_with_its_request_needs_no_client() {
    let mut test = Test::new(2);
    let content = b"#!/bin/sh\n".to_vec();
    let wide = JobRequest {
        batch: BatchOptions { content: Some(content.clone()), ..Default::default() },
        ..request(1, 2, Some(2))
    };
    let (job, _) = test.accepted(wide, None);
    test.event(HeadEvent::ClientGone(CLIENT));
    test.prepare(job, [(0, 1)]);
    let actions = test.report(Report::ProgramWanted { job, hash: HASH, nodes: set([1]) });
    let chunk = Command::ProgramChunk { hash: HASH, offset: 0, total: 10, data: content };
    assert!(commands(&actions).contains(&(&set([1]), &chunk)));
    let actions = test.prepare(job, [(1, 1)]);
    assert_eq!(test.state(job), JobState::Running);
    let end = Command::Input { job, data: Vec::new() };
    assert!(commands(&actions).contains(&(&set([0]), &end)), "nobody gives it input");
    let wrong = narrow(2, BatchOptions { content: Some(vec![0; 9]), ..Default::default() });
    let ask = ClientRequest::SubmitBatch { request: Box::new(wrong), array: None };
    assert_eq!(refusal(&test.ask(&ALICE, ask)), Some(RefusalKind::BadRequest));
}

/// What holds at every moment: limits of arrays are kept, and a job with nodes has nothing left to wait for.
fn check_held(test: &Test) {
    let mut under_way = std::collections::BTreeMap::new();
    for record in test.head.records() {
        let batch = &record.spec.request.batch;
        let placed = !matches!(record.state, JobState::Queued | JobState::Ended(_));
        assert!(!placed || batch.after.is_empty(), "job {} started too early", record.spec.job);
        if let Some((task, most)) =
            batch.task.and_then(|task| Some((task, task.most?))).filter(|_| placed)
        {
            let count = under_way.entry(task.array).or_insert(0);
            *count += 1;
            assert!(*count <= most, "array {} has too many tasks", task.array);
        }
    }
}

#[test]
fn whatever_ends_in_whichever_order_nothing_is_held_for_ever() {
    for seed in 0..200 {
        let (mut draws, nodes) = (Random::new(seed), 3);
        let mut test = Test::wide(nodes, 2);
        for token in 1..=12 {
            let last = test.head.records().map(|record| record.spec.job.0).max().unwrap_or(0);
            let mut wanted = after(token * 100, &[], false);
            for _ in 0..draws.below(3).min(last) {
                let (job, however) = (JobId(1 + draws.below(last)), draws.below(2) == 0);
                wanted.batch.after.push(After { job, however });
            }
            let array = (draws.below(3) == 0).then(|| ArrayRange {
                first: 1,
                last: 1 + draws.below(5) as u32,
                most: Some(1 + draws.below(2) as u32),
            });
            // Some are refused, because a job before them has failed.
            test.ask(&ALICE, ClientRequest::SubmitBatch { request: Box::new(wanted), array });
            check_held(&test);
        }
        for _ in 0..1_000 {
            let live =
                test.head.records().filter(|record| !matches!(record.state, JobState::Ended(_)));
            let live: Vec<JobId> = live.map(|record| record.spec.job).collect();
            if live.is_empty() {
                break;
            }
            let job = live[draws.below(live.len() as u64) as usize];
            match (test.state(job), draws.below(20)) {
                (_, 0) => {
                    test.restart(nodes);
                    test.report(Report::Attached((0..nodes).map(description).collect()));
                }
                (JobState::Preparing, 1..=4) => test.fails(job, test.node_of(job)),
                (JobState::Preparing, _) => drop(test.succeeds(job, test.node_of(job))),
                (JobState::Queued, 1) => {
                    drop(test.ask(&ALICE, ClientRequest::Kill { job, grace_ns: 0 }));
                }
                _ => {}
            }
            check_held(&test);
        }
        let left = test.head.records().filter(|record| !matches!(record.state, JobState::Ended(_)));
        assert_eq!(left.count(), 0, "seed {seed}: a job is left");
    }
}
