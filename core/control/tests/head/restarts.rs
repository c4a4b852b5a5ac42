//! Jobs that are started again because a node was lost or the head was away.

use super::*;
use kumi_control::message::BatchOptions;

const SECOND: u64 = 1_000 * MS;

fn again(token: u128, requeues: u32, ranks: u32) -> JobRequest {
    JobRequest {
        batch: BatchOptions { requeues, ..Default::default() },
        ..request(token, ranks, Some(ranks))
    }
}

impl Test {
    /// A job on all nodes, one rank on each, running.
    fn running_again(&mut self, requeues: u32, nodes: u32) -> JobId {
        let (job, _) = self.submit(again(1, requeues, nodes));
        self.prepare_start(job, 0, nodes);
        assert_eq!(self.state(job), JobState::Running);
        job
    }

    /// All nodes have prepared this start of a job.
    fn prepare_start(&mut self, job: JobId, restarts: u32, nodes: u32) -> Vec<HeadAction> {
        self.prepare(job.of_start(restarts), (0..nodes).map(|node| (node, 1)))
    }

    /// The daemon of a node was started anew: it knows nothing.
    fn begins_anew(&mut self, node: u32) -> Vec<HeadAction> {
        self.report(Report::Detached(set([node])));
        let incarnation = self.now;
        let anew = NodeDescription { incarnation, ..description(node) };
        self.report(Report::Attached(vec![anew]))
    }

    fn restarts(&self, job: JobId) -> u32 {
        self.head.records().find(|record| record.spec.job == job).expect("known").restarts
    }
}

/// The start for which nodes are to prepare a job.
fn prepared_for(actions: &[HeadAction]) -> Option<JobId> {
    commands(actions).into_iter().find_map(|(_, command)| match command {
        Command::Prepare(spec) => Some(spec.job),
        _ => None,
    })
}

#[test]
fn a_job_that_lost_a_node_is_started_again_when_nothing_of_it_is_left() {
    let mut test = Test::new(2);
    let job = test.running_again(1, 2);
    let key = test.head.records().next().expect("it is known").spec.channel_key;
    let actions = test.begins_anew(1);
    assert!(commands(&actions).contains(&(&set([0]), &Command::Kill { job })));
    assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))));
    let actions = test.report(Report::Freed { job, nodes: set([0]) });
    // The record first; nodes forget the first start before they hear of the second.
    let queued = position(&actions, |action| is_state(action, &JobState::Queued));
    let forget = Command::Forget { job };
    let forgets = position(&actions, |it| command_of(it).is_some_and(|(_, it)| *it == forget));
    let marks = position(
        &actions,
        |it| matches!(it, HeadAction::MarkRestart { restarts: 1, reason, .. } if reason.contains("n1")),
    );
    let prepares = position(
        &actions,
        |it| matches!(command_of(it), Some((_, Command::Prepare(spec))) if spec.job == job.of_start(1)),
    );
    assert!(queued < forgets && forgets < prepares && marks < prepares, "{actions:#?}");
    assert_eq!((test.state(job), test.restarts(job)), (JobState::Preparing, 1));
    assert_ne!(test.head.records().next().expect("it is known").spec.channel_key, key);
    test.prepare_start(job, 1, 2);
    assert_eq!(test.state(job), JobState::Running);
    // Not a second time.
    test.begins_anew(1);
    test.report(Report::Freed { job: job.of_start(1), nodes: set([0]) });
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(1))));
}

#[test]
fn nothing_that_is_said_of_an_earlier_start_is_taken_for_the_last_one() {
    let mut test = Test::new(2);
    let job = test.running_again(2, 2);
    test.begins_anew(1);
    test.report(Report::Freed { job, nodes: set([0]) });
    test.prepare_start(job, 1, 2);
    let status = RankStatus::Exited(1);
    test.report(Report::RankFailed { job, rank: 0, node: NodeId(0), status });
    test.report(Report::Abandoned { job, nodes: set([0]), cause: AbandonCause::LeaseOver });
    let actions = test.report(Report::Freed { job, nodes: set([0, 1]) });
    assert!(commands(&actions).contains(&(&set([0, 1]), &Command::Forget { job })), "{actions:?}");
    let (rank, node, stream) = (0, NodeId(0), Stream::Out);
    let data = b"of the first start".to_vec();
    let actions = test.report(Report::Output { job, rank, node, stream, base: 0, at: 0, data });
    assert!(!actions.iter().any(|action| matches!(action, HeadAction::Spool { .. })));
    assert_eq!(test.state(job), JobState::Running);
    // A node that comes back with the first start ends that.
    let jobs = vec![(job, vec![1]), (job.of_start(1), vec![1])];
    let actions = test.report(Report::Attached(vec![NodeDescription { jobs, ..description(1) }]));
    let kills: Vec<_> = commands(&actions)
        .into_iter()
        .filter(|(_, command)| matches!(command, Command::Kill { .. }))
        .collect();
    assert_eq!(kills, [(&set([1]), &Command::Kill { job })]);
    assert_eq!(test.state(job), JobState::Running);
    // Output of the last one begins anew.
    let data = b"again".to_vec();
    let job = job.of_start(1);
    let actions = test.report(Report::Output { job, rank, node, stream, base: 0, at: 0, data });
    assert!(actions.iter().any(|action| matches!(action, HeadAction::Spool { at: 0, .. })));
}

/// A first start may come to a node after the head took it for gone there. What that wrote would wait for ever.
#[test]
fn output_of_the_last_start_that_is_not_acknowledged_is_dropped() {
    let mut test = Test::new(2);
    let job = test.running_again(5, 2);
    let (rank, node, stream) = (0, NodeId(0), Stream::Out);
    let wrote = |at: u64, data: &[u8]| {
        let data = data.to_vec();
        Report::Output { job, rank, node, stream, base: 0, at, data }
    };
    test.begins_anew(1);
    test.report(wrote(0, b"acknowledged at once"));
    // The next acknowledgement waits a little, and meanwhile the job goes back to the queue.
    test.report(wrote(20, b"late"));
    let actions = test.report(Report::Freed { job, nodes: set([0]) });
    assert_eq!(test.restarts(job), 1);
    let drop = Command::DropOutput { job };
    let forget = Command::Forget { job };
    let place = |wanted: &Command| {
        let found = commands(&actions).into_iter().position(|(_, command)| command == wanted);
        found.unwrap_or_else(|| panic!("no {wanted:?}: {actions:#?}"))
    };
    assert!(place(&drop) < place(&forget));
    assert!(commands(&actions).contains(&(&set([0]), &drop)), "{actions:#?}");
}

#[test]
fn a_job_that_ends_by_itself_or_is_killed_is_not_started_again() {
    let mut test = Test::new(1);
    let job = test.running_again(5, 1);
    let status = RankStatus::Exited(3);
    test.report(Report::RankFailed { job, rank: 0, node: NodeId(0), status });
    test.report(Report::Freed { job, nodes: set([0]) });
    assert!(matches!(test.state(job), JobState::Ended(Outcome::RankFailed { .. })));
    // Also if it was ending because a node was lost, and by a new head.
    for restarted in [false, true] {
        let mut test = Test::new(2);
        let job = test.running_again(5, 2);
        test.begins_anew(1);
        let actions = test.ask(&ALICE, ClientRequest::Kill { job, grace_ns: 10 * SECOND });
        assert!(actions.iter().any(|action| matches!(action, HeadAction::Persist(_))));
        if restarted {
            test.head = Head::new(config(2), test.records.clone(), [2; 32]).expect("a policy");
            test.event(HeadEvent::Timeout);
            test.event(HeadEvent::ChildUp(LINK));
            let jobs = vec![(job, vec![0])];
            let first = NodeDescription { jobs, ..description(0) };
            test.report(Report::Attached(vec![first, description(1)]));
        }
        test.report(Report::Freed { job, nodes: set([0]) });
        assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(1))));
    }
}

/// Nothing of it can run any more only then.
#[test]
fn a_job_waits_for_the_lease_of_the_node_that_it_lost() {
    let mut test = Test::new(2);
    let job = test.running_again(1, 2);
    test.report(Report::Detached(set([1])));
    test.advance(SECOND + 100 * MS);
    test.report(Report::Freed { job, nodes: set([0]) });
    assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))));
    test.advance(10 * SECOND);
    assert_eq!((test.state(job), test.restarts(job)), (JobState::Queued, 1));
    let actions = test.report(Report::Attached(vec![description(1)]));
    assert_eq!(prepared_for(&actions), Some(job.of_start(1)));
}

#[test]
fn a_new_head_knows_the_last_start() {
    let mut test = Test::new(2);
    let job = test.running_again(1, 2);
    test.begins_anew(1);
    test.report(Report::Freed { job, nodes: set([0]) });
    test.prepare_start(job, 1, 2);
    test.head = Head::new(config(2), test.records.clone(), [2; 32]).expect("a policy");
    test.event(HeadEvent::Timeout);
    test.event(HeadEvent::ChildUp(LINK));
    let jobs = |node| vec![(job.of_start(1), vec![node])];
    let nodes = (0..2).map(|node| NodeDescription { jobs: jobs(node), ..description(node) });
    test.report(Report::Attached(nodes.collect()));
    assert_eq!((test.state(job), test.restarts(job)), (JobState::Running, 1));
    test.report(Report::Freed { job: job.of_start(1), nodes: set([0, 1]) });
    assert_eq!(test.state(job), JobState::Ended(Outcome::Success));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut test = Test::new(1);
    let many = ClientRequest::Submit(Box::new(again(1, 1_001, 1)));
    assert_eq!(refusal(&test.ask(&ALICE, many)), Some(RefusalKind::BadRequest));
    let terminal = JobRequest { terminal: Some(WindowSize::default()), ..again(2, 1, 1) };
    let terminal = ClientRequest::Submit(Box::new(terminal));
    assert_eq!(refusal(&test.ask(&ALICE, terminal)), Some(RefusalKind::BadRequest));
    // Whoever sends it input all the same changes nothing: each start finds the end of it.
    let (job, _) = test.submit(again(3, 1, 1));
    test.ask(&ALICE, ClientRequest::Input { job, data: b"lost".to_vec() });
    let actions = test.prepare_start(job, 0, 1);
    let end = Command::Input { job, data: Vec::new() };
    let inputs =
        commands(&actions).into_iter().filter(|(_, it)| matches!(it, Command::Input { .. }));
    assert!(inputs.map(|(_, command)| command).eq([&end]));
}

/// Whoever is asked to end by its limit of time ends because of that, whatever its nodes do meanwhile.
#[test]
fn a_job_over_its_limit_of_time_is_not_started_again() {
    let mut test = Test::new(2);
    let mut request = again(1, 1, 2);
    request.batch.time_limit_ns = Some(60 * SECOND);
    let (job, _) = test.submit(request);
    test.prepare_start(job, 0, 2);
    test.advance(60 * SECOND);
    assert_eq!(test.state(job), JobState::Running, "it has its grace");
    test.begins_anew(1);
    let outcome = Outcome::TimeLimit(60 * SECOND);
    assert_eq!(test.state(job), JobState::Ending(outcome.clone()));
    test.report(Report::Freed { job, nodes: set([0]) });
    assert_eq!((test.state(job), test.restarts(job)), (JobState::Ended(outcome), 0));
}

impl Test {
    /// Rank 0 says that it cannot go on.
    fn first_rank_fails(&mut self, job: JobId) {
        let status = RankStatus::Exited(1);
        self.report(Report::RankFailed { job, rank: 0, node: NodeId(0), status });
        assert!(matches!(self.state(job), JobState::Ending(Outcome::RankFailed { .. })));
    }
}

/// A rank sees before the head that its peer's node is gone.
#[test]
fn a_rank_that_fails_for_a_lost_node_is_no_reason_of_its_own() {
    for comes_back in [true, false] {
        let mut test = Test::new(2);
        let job = test.running_again(1, 2);
        test.first_rank_fails(job);
        test.report(Report::Freed { job, nodes: set([0]) });
        assert!(matches!(test.state(job), JobState::Ending(_)), "nothing is known of node 1");
        if comes_back {
            test.begins_anew(1);
        } else {
            test.report(Report::Detached(set([1])));
            test.advance(SECOND + 100 * MS);
            assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))));
            test.advance(10 * SECOND);
        }
        assert_eq!(test.restarts(job), 1, "comes back: {comes_back}");
    }
}

#[test]
fn a_rank_that_fails_by_itself_is_the_end() {
    // Its peer's node lives, and says so.
    let mut test = Test::new(2);
    let job = test.running_again(1, 2);
    test.first_rank_fails(job);
    test.report(Report::Freed { job, nodes: set([1]) });
    test.begins_anew(1);
    test.report(Report::Freed { job, nodes: set([0]) });
    assert!(matches!(test.state(job), JobState::Ended(Outcome::RankFailed { .. })));
    // Its own node is lost afterwards.
    let mut test = Test::new(2);
    let job = test.running_again(1, 2);
    test.first_rank_fails(job);
    test.report(Report::Freed { job, nodes: set([1]) });
    test.begins_anew(0);
    assert!(matches!(test.state(job), JobState::Ended(Outcome::RankFailed { .. })));
    // It is not to be started again: the first thing that was seen is what is told.
    let mut test = Test::new(2);
    let job = test.running_again(0, 2);
    test.first_rank_fails(job);
    test.report(Report::Freed { job, nodes: set([0]) });
    test.begins_anew(1);
    assert!(matches!(test.state(job), JobState::Ended(Outcome::RankFailed { .. })));
}

/// The account has what each start held.
#[test]
fn what_earlier_starts_held_counts() {
    let mut test = Test::new(2);
    let job = test.running_again(1, 2);
    test.advance(5 * SECOND);
    test.begins_anew(1);
    test.report(Report::Freed { job, nodes: set([0]) });
    let held = |test: &Test| {
        test.head
            .records()
            .find(|record| record.spec.job == job)
            .expect("known")
            .used
            .held_before_us
    };
    // Two processors for a little over five seconds.
    let before = held(&test);
    assert!((10_000_000..10_100_000).contains(&before), "{before}");
    test.prepare_start(job, 1, 2);
    test.report(Report::Freed { job: job.of_start(1), nodes: set([0, 1]) });
    assert_eq!(test.state(job), JobState::Ended(Outcome::Success));
    assert_eq!(held(&test), before, "the last start has its own times");
}
