//! The head against nodes that the test speaks for: what it asks of them, in which order, and what
//! it refuses.

use kumi_control::head::{ClientId, Head, HeadAction, HeadConfig, HeadEvent, LinkId};
use kumi_control::message::{
    ClientReply, ClientRequest, Command, ContentHash, JobRecord, JobRequest, JobState,
    NodeDescription, NodeSample, NodeSet, Outcome, PreparedNode, PreparedRanks, Program,
    RankAddress, RankStatus, RefusalKind, Report, Stream, SwitchSample, Up, User,
};
use kumi_sched::{JobId, Mode, NodeId};

const MS: u64 = 1_000_000;
const ALICE: User = User { uid: 1000, gid: 1000 };
const BOB: User = User { uid: 1001, gid: 1001 };
const OWNER: User = User { uid: 500, gid: 500 };
const LINK: LinkId = LinkId(1);
const CLIENT: ClientId = ClientId(1);
const HASH: ContentHash = ContentHash([7; 32]);

struct Test {
    head: Head,
    now: u64,
    records: Vec<JobRecord>,
}

fn config(nodes: u32) -> HeadConfig {
    HeadConfig {
        cluster_name: "test".into(),
        nodes: (0..nodes).map(|node| format!("n{node}")).collect(),
        mode: Mode::Gang { force_switch: false },
        slice_ns: 10 * MS,
        max_jobs_per_node: 2,
        owner_uid: 500,
        lease_ns: 3_000 * MS,
        detach_grace_ns: 1_000 * MS,
    }
}

fn description(node: u32) -> NodeDescription {
    NodeDescription {
        node: NodeId(node),
        incarnation: 1,
        name: format!("n{node}"),
        processors: 2,
        max_ranks: 8,
        limits: Vec::new(),
        jobs: Vec::new(),
        path: Vec::new(),
    }
}

fn request(token: u128, ranks: u32, nodes: Option<u32>) -> JobRequest {
    JobRequest {
        token,
        name: "job".into(),
        program: Program { path: "/bin/true".into(), hash: HASH, size: 10 },
        args: vec!["true".into()],
        env: vec![("SECRET".into(), "x".into())],
        cwd: "/".into(),
        ranks,
        nodes,
    }
}

fn set(nodes: impl IntoIterator<Item = u32>) -> NodeSet {
    NodeSet::from_nodes(nodes.into_iter().map(NodeId))
}

impl Test {
    /// A head whose nodes are all attached.
    fn new(nodes: u32) -> Self {
        let mut test = Self::without_nodes(nodes);
        test.report(Report::Attached((0..nodes).map(description).collect()));
        test
    }

    fn without_nodes(nodes: u32) -> Self {
        let head = Head::new(config(nodes), Vec::new(), [1; 32]);
        let mut test = Self { head, now: MS, records: Vec::new() };
        assert_eq!(test.head.next_timeout(), Some(0));
        test.event(HeadEvent::Timeout);
        test.event(HeadEvent::ChildUp(LINK));
        test
    }

    fn event(&mut self, event: HeadEvent) -> Vec<HeadAction> {
        self.now += 1000;
        self.head.handle(self.now, 1_700_000_000_000 + self.now / MS, event);
        let actions: Vec<HeadAction> = std::iter::from_fn(|| self.head.poll_action()).collect();
        for action in &actions {
            if let HeadAction::Persist(record) = action {
                self.records.retain(|known| known.spec.job != record.spec.job);
                self.records.push((**record).clone());
            }
        }
        actions
    }

    fn report(&mut self, report: Report) -> Vec<HeadAction> {
        self.event(HeadEvent::Child(LINK, Up::Report(report)))
    }

    fn ask(&mut self, user: &User, request: ClientRequest) -> Vec<HeadAction> {
        self.event(HeadEvent::Client(CLIENT, user.clone(), request))
    }

    fn submit(&mut self, request: JobRequest) -> (JobId, Vec<HeadAction>) {
        let actions = self.ask(&ALICE, ClientRequest::Submit(Box::new(request)));
        let job = actions.iter().find_map(|action| match action {
            HeadAction::ToClient(_, ClientReply::Submitted { job }) => Some(*job),
            _ => None,
        });
        (job.unwrap_or_else(|| panic!("not submitted: {actions:?}")), actions)
    }

    fn prepare(
        &mut self,
        job: JobId,
        nodes: impl IntoIterator<Item = (u32, usize)>,
    ) -> Vec<HeadAction> {
        let prepared = nodes.into_iter().map(|(node, ranks)| PreparedNode {
            node: NodeId(node),
            result: Ok(PreparedRanks {
                addresses: vec![RankAddress { ip: [10, 0, 0, node as u8], port: 9 }; ranks],
                max_datagram: 1400 + node as u16,
            }),
        });
        let nodes = prepared.collect();
        self.report(Report::Prepared { job, nodes })
    }

    /// One rank on each of these nodes, running.
    fn running(&mut self, token: u128, nodes: u32) -> JobId {
        let (job, _) = self.submit(request(token, nodes, Some(nodes)));
        self.prepare(job, (0..nodes).map(|node| (node, 1)));
        assert_eq!(self.state(job), JobState::Running);
        job
    }

    fn state(&self, job: JobId) -> JobState {
        self.head.records().find(|record| record.spec.job == job).expect("known").state.clone()
    }

    fn advance(&mut self, time: u64) -> Vec<HeadAction> {
        let until = self.now + time;
        let mut actions = Vec::new();
        while let Some(at) = self.head.next_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            actions.extend(self.event(HeadEvent::Timeout));
        }
        self.now = until;
        actions
    }
}

fn commands(actions: &[HeadAction]) -> Vec<(&NodeSet, &Command)> {
    actions.iter().filter_map(command_of).collect()
}

fn command_of(action: &HeadAction) -> Option<(&NodeSet, &Command)> {
    match action {
        HeadAction::ToChild(_, nodes, command) => Some((nodes, command)),
        _ => None,
    }
}

fn refusal(actions: &[HeadAction]) -> Option<RefusalKind> {
    actions.iter().find_map(|action| match action {
        HeadAction::ToClient(_, ClientReply::Refused(refusal)) => Some(refusal.kind),
        _ => None,
    })
}

fn replied(actions: &[HeadAction], reply: &ClientReply) -> bool {
    actions.iter().any(|a| matches!(a, HeadAction::ToClient(_, given) if given == reply))
}

fn position(actions: &[HeadAction], wanted: impl Fn(&HeadAction) -> bool) -> usize {
    actions.iter().position(wanted).unwrap_or_else(|| panic!("not among {actions:#?}"))
}

fn is_state(action: &HeadAction, state: &JobState) -> bool {
    matches!(action, HeadAction::Persist(record) if record.state == *state)
}

#[test]
fn a_job_from_submission_to_its_end() {
    let mut test = Test::new(3);
    let (job, actions) = test.submit(request(1, 5, None));
    let prepare = position(&actions, |a| matches!(command_of(a), Some((_, Command::Prepare(_)))));
    assert!(position(&actions, |a| is_state(a, &JobState::Preparing)) < prepare);
    let Some((nodes, Command::Prepare(spec))) = command_of(&actions[prepare]) else { panic!() };
    assert_eq!(*nodes, set(0..3), "two processors a node");
    let layout: Vec<_> = spec.layout.iter().map(|p| (p.node.0, p.first, p.count)).collect();
    assert_eq!(layout, [(0, 0, 2), (1, 2, 2), (2, 4, 1)]);
    assert!(actions.iter().any(|a| matches!(a, HeadAction::Follow { offset: 0, wait: true, .. })));

    assert!(commands(&test.prepare(job, [(0, 2), (2, 1)])).is_empty(), "one is not prepared");
    let actions = test.prepare(job, [(1, 2)]);
    let persisted = position(&actions, |a| is_state(a, &JobState::Running));
    let timetable =
        position(&actions, |a| matches!(command_of(a), Some((_, Command::Timetable(_)))));
    let start = position(&actions, |a| matches!(command_of(a), Some((_, Command::Start { .. }))));
    assert!(persisted < timetable && timetable < start);
    let Some((_, Command::Timetable(sent))) = command_of(&actions[timetable]) else { panic!() };
    assert!(sent.start.0 > test.now && sent.start.0 < test.now + 10 * MS);
    assert!(sent.columns.iter().all(|column| column.sole_job() == Some(job)));
    let Some((_, Command::Start { addresses, max_datagram, .. })) = command_of(&actions[start])
    else {
        panic!()
    };
    let owners: Vec<u8> = addresses.iter().map(|address| address.ip[3]).collect();
    assert_eq!((owners, *max_datagram), (vec![0, 0, 1, 1, 2], 1400));

    let data = b"hello\n".to_vec();
    let output = Report::Output { job, rank: 4, stream: Stream::Out, data: data.clone() };
    let spool = HeadAction::Spool { job, rank: 4, stream: Stream::Out, data };
    assert_eq!(test.report(output), [spool]);
    assert!(test.report(Report::Freed { job, nodes: set([0, 1]) }).is_empty());
    let actions = test.report(Report::Freed { job, nodes: set([2]) });
    let ended = position(&actions, |a| is_state(a, &JobState::Ended(Outcome::Success)));
    let spool = HeadAction::EndSpool { job, outcome: Outcome::Success };
    assert!(ended < position(&actions, |a| *a == spool));
    assert!(commands(&actions).contains(&(&set(0..3), &Command::Forget { job })));
    assert!(test.head.timetable().columns.is_empty());
}

#[test]
fn the_first_failing_rank_ends_the_job_everywhere() {
    let mut test = Test::new(3);
    let job = test.running(1, 3);
    let status = RankStatus::Signalled(11);
    let failed = |rank, node| Report::RankFailed { job, rank, node: NodeId(node), status };
    assert!(test.report(failed(1, 2)).is_empty(), "rank 1 is not on node 2");
    assert!(test.report(failed(9, 1)).is_empty(), "there is no rank 9");
    let actions = test.report(failed(1, 1));
    let outcome = Outcome::RankFailed { rank: 1, node: NodeId(1), status };
    assert!(commands(&actions).contains(&(&set(0..3), &Command::Kill { job })));
    test.report(failed(2, 2));
    assert_eq!(test.state(job), JobState::Ending(outcome.clone()), "the first counts");
    test.report(Report::Freed { job, nodes: set(0..3) });
    assert_eq!(test.state(job), JobState::Ended(outcome));
}

#[test]
fn what_never_fits_is_refused() {
    let mut test = Test::new(4);
    let kind = |test: &mut Test, change: &dyn Fn(&mut JobRequest)| {
        let mut wrong = request(1, 4, None);
        change(&mut wrong);
        refusal(&test.ask(&ALICE, ClientRequest::Submit(Box::new(wrong))))
    };
    assert_eq!(kind(&mut test, &|r| r.nodes = Some(5)), Some(RefusalKind::TooLarge));
    assert_eq!(kind(&mut test, &|r| r.ranks = 33), Some(RefusalKind::TooLarge));
    assert_eq!(
        kind(&mut test, &|r| (r.ranks, r.nodes) = (17, Some(2))),
        Some(RefusalKind::TooLarge)
    );
    assert_eq!(kind(&mut test, &|r| r.ranks = u32::MAX), Some(RefusalKind::TooLarge));
    let bad = Some(RefusalKind::BadRequest);
    assert_eq!(kind(&mut test, &|r| r.ranks = 0), bad);
    assert_eq!(kind(&mut test, &|r| r.nodes = Some(0)), bad);
    assert_eq!(kind(&mut test, &|r| (r.ranks, r.nodes) = (1, Some(2))), bad);
    assert_eq!(kind(&mut test, &|r| r.cwd = "here".into()), bad);
    assert_eq!(kind(&mut test, &|r| r.program.path = "true".into()), bad);
    assert_eq!(kind(&mut test, &|r| r.args.clear()), bad);
    assert_eq!(kind(&mut test, &|r| r.args.push("a\0b".into())), bad);
    assert_eq!(kind(&mut test, &|r| r.args.push("x".repeat(600 << 10))), bad);
    assert_eq!(test.head.records().count(), 0, "nothing is left of a refused job");
    assert_eq!(kind(&mut test, &|r| r.ranks = 32), None, "as many as fit");
    let token = request(1, 1, None);
    let actions = test.ask(&BOB, ClientRequest::Submit(Box::new(token)));
    assert_eq!(refusal(&actions), Some(RefusalKind::NotPermitted), "another user's token");
}

#[test]
fn jobs_wait_for_nodes_and_rows() {
    let mut test = Test::without_nodes(2);
    let (first, actions) = test.submit(request(1, 2, Some(2)));
    assert!(actions.iter().any(|a| is_state(a, &JobState::Queued)));
    let (too_large, _) = test.submit(request(2, 16, Some(1)));
    let actions = test.report(Report::Attached(vec![description(0)]));
    assert!(matches!(test.state(too_large), JobState::Ended(Outcome::Refused(_))), "{actions:?}");
    assert_eq!(test.state(first), JobState::Queued);
    test.report(Report::Attached(vec![description(1)]));
    assert_eq!(test.state(first), JobState::Preparing);
    let (second, _) = test.submit(request(3, 2, Some(2)));
    let (third, _) = test.submit(request(4, 2, Some(2)));
    assert_eq!(test.state(second), JobState::Preparing);
    assert_eq!(test.state(third), JobState::Queued, "two rows");
    let actions = test.ask(&ALICE, ClientRequest::Kill { job: second });
    assert!(!replied(&actions, &ClientReply::Done), "something may be left");
    let actions = test.report(Report::Freed { job: second, nodes: set(0..2) });
    assert!(replied(&actions, &ClientReply::Done));
    assert_eq!(test.state(third), JobState::Preparing);
}

#[test]
fn the_same_token_is_the_same_job() {
    let mut test = Test::new(2);
    let (job, _) = test.submit(request(9, 1, None));
    let (again, actions) = test.submit(request(9, 1, None));
    assert_eq!(job, again);
    assert!(commands(&actions).is_empty());
    let head = Head::new(config(2), test.records.clone(), [2; 32]);
    let mut test = Test { head, now: test.now + MS, records: test.records };
    let (again, _) = test.submit(request(9, 1, None));
    assert_eq!(job, again, "also to a head that was started again");
    let (other, _) = test.submit(request(10, 1, None));
    assert!(other > job);
}

#[test]
fn only_those_may_who_may() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let not_permitted = Some(RefusalKind::NotPermitted);
    let requests = || {
        [
            ClientRequest::Signal { job, signal: 10 },
            ClientRequest::Input { job, data: vec![1] },
            ClientRequest::Follow { job, offset: 0, wait: false },
            ClientRequest::Kill { job },
        ]
    };
    for request in requests() {
        let actions = test.ask(&BOB, request);
        assert_eq!(refusal(&actions), not_permitted);
        assert_eq!(actions.len(), 1);
    }
    for request in requests() {
        assert_eq!(refusal(&test.ask(&OWNER, request)), None);
    }
    assert_eq!(test.state(job), JobState::Ending(Outcome::Killed));
    let configure = ClientRequest::Configure { mode: None, slice_ns: Some(MS) };
    for request in [configure.clone(), ClientRequest::Shutdown] {
        assert_eq!(refusal(&test.ask(&ALICE, request)), not_permitted);
    }
    assert!(replied(&test.ask(&OWNER, configure), &ClientReply::Done));
    let unknown = ClientRequest::Kill { job: JobId(77) };
    assert_eq!(refusal(&test.ask(&ALICE, unknown)), Some(RefusalKind::NoSuchJob));
}

#[test]
fn the_program_is_asked_for_once_and_sent_to_those_who_lack_it() {
    let mut test = Test::new(4);
    let (job, _) = test.submit(request(1, 4, Some(4)));
    let wanted = |nodes| Report::ProgramWanted { job, hash: HASH, nodes };
    assert!(test.report(wanted(set([1]))).is_empty());
    assert!(test.prepare(job, [(0, 1), (3, 1)]).is_empty());
    let actions = test.report(wanted(set([2])));
    assert_eq!(actions, [HeadAction::ToClient(CLIENT, ClientReply::ProgramWanted(HASH))]);
    let chunk = |offset, data: &[u8]| ClientRequest::ProgramChunk {
        hash: HASH,
        offset,
        total: 10,
        data: data.to_vec(),
    };
    let stranger = HeadEvent::Client(ClientId(2), BOB, chunk(0, b"evil"));
    assert!(test.event(stranger).is_empty(), "nobody asked for it");
    for (offset, data) in [(0, b"01234"), (5, b"56789")] {
        let actions = test.ask(&ALICE, chunk(offset, data));
        let command = Command::ProgramChunk { hash: HASH, offset, total: 10, data: data.to_vec() };
        assert_eq!(actions, [HeadAction::ToChild(LINK, set([1, 2]), command)]);
    }
    assert!(test.ask(&ALICE, chunk(0, b"again")).is_empty(), "it is all there");
    test.prepare(job, [(1, 1), (2, 1)]);
    assert_eq!(test.state(job), JobState::Running);
}

#[test]
fn a_program_that_cannot_be_had_refuses_the_job() {
    let refused = |test: &Test, job, wanted: RefusalKind| match test.state(job) {
        JobState::Ending(Outcome::Refused(refusal)) => assert_eq!(refusal.kind, wanted),
        other => panic!("{other:?}"),
    };
    let begin = |token| {
        let mut test = Test::new(1);
        let (job, _) = test.submit(request(token, 1, None));
        let nodes = set([0]);
        let actions = test.report(Report::ProgramWanted { job, hash: HASH, nodes });
        assert!(replied(&actions, &ClientReply::ProgramWanted(HASH)));
        (test, job)
    };
    let (mut test, job) = begin(1);
    let actions = test.event(HeadEvent::ClientGone(CLIENT));
    refused(&test, job, RefusalKind::NotFound);
    let sent = commands(&actions);
    assert!(sent.contains(&(&set([0]), &Command::ProgramMissing(HASH))));
    assert!(sent.contains(&(&set([0]), &Command::Kill { job })));

    let (mut test, job) = begin(2);
    let data = vec![0; 11];
    test.ask(&ALICE, ClientRequest::ProgramChunk { hash: HASH, offset: 0, total: 11, data });
    refused(&test, job, RefusalKind::BadRequest);

    let (mut test, job) = begin(3);
    test.advance(29_000 * MS);
    assert_eq!(test.state(job), JobState::Preparing);
    test.advance(2_000 * MS);
    refused(&test, job, RefusalKind::NotFound);
}

#[test]
fn a_lost_node_takes_its_jobs_with_it_after_the_grace() {
    let mut test = Test::new(3);
    let job = test.running(1, 2);
    test.report(Report::Detached(set([1])));
    test.advance(900 * MS);
    assert_eq!(test.state(job), JobState::Running);
    let mut back = description(1);
    back.jobs = vec![(job, vec![1])];
    let actions = test.report(Report::Attached(vec![back.clone()]));
    assert!(commands(&actions).iter().any(|(_, c)| matches!(c, Command::Start { .. })));
    test.advance(5_000 * MS);
    assert_eq!(test.state(job), JobState::Running, "it came back in time");

    test.report(Report::Detached(set([1])));
    let actions = test.advance(1_100 * MS);
    assert!(commands(&actions).contains(&(&set([0]), &Command::Kill { job })));
    test.report(Report::Freed { job, nodes: set([0]) });
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(1))));
    let actions = test.report(Report::Attached(vec![back]));
    assert!(commands(&actions).contains(&(&set([1]), &Command::Kill { job })), "half alive there");
    let actions = test.report(Report::Freed { job, nodes: set([1]) });
    assert_eq!(commands(&actions), [(&set([1]), &Command::Forget { job })]);
}

#[test]
fn a_daemon_started_again_has_lost_its_jobs() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let (preparing, _) = test.submit(request(2, 2, Some(2)));
    let mut fresh = description(1);
    fresh.incarnation = 2;
    let actions = test.report(Report::Attached(vec![fresh]));
    assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))));
    let again = |(nodes, command): &(&NodeSet, &Command)| {
        **nodes == set([1]) && matches!(command, Command::Prepare(spec) if spec.job == preparing)
    };
    assert!(commands(&actions).iter().any(again), "what had not begun can begin");
}

#[test]
fn abandoned_is_not_success() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    test.report(Report::Abandoned { job, nodes: set([1]) });
    test.report(Report::Freed { job, nodes: set(0..2) });
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(1))));
}

#[test]
fn a_new_head_goes_on_with_what_runs() {
    let mut test = Test::new(2);
    let running = test.running(1, 2);
    let (queued, _) = test.submit(request(2, 2, Some(2)));
    let (later, _) = test.submit(request(3, 2, Some(2)));
    let generation = test.head.timetable().generation;
    let head = Head::new(config(2), test.records.clone(), [2; 32]);
    let mut test = Test { head, now: test.now + 500 * MS, records: test.records };
    test.event(HeadEvent::Timeout);
    assert!(test.head.timetable().generation > generation);
    assert_eq!(test.head.timetable().columns.len(), 2, "what ran has its slots");
    test.event(HeadEvent::ChildUp(LINK));
    let mut nodes: Vec<_> = (0..2).map(description).collect();
    nodes[0].jobs = vec![(running, vec![0]), (JobId(99), vec![5])];
    nodes[1].jobs = vec![(running, vec![])];
    let actions = test.report(Report::Attached(nodes));
    let sent = commands(&actions);
    assert!(sent.contains(&(&set([0]), &Command::Kill { job: JobId(99) })), "nobody knows it");
    assert_eq!(test.state(running), JobState::Running);
    let again =
        |(_, c): &(&NodeSet, &Command)| matches!(c, Command::Prepare(spec) if spec.job == queued);
    assert!(sent.iter().any(again), "it was being prepared, and the nodes know nothing of it");
    assert_eq!(test.state(later), JobState::Queued);
    test.prepare(running, [(0, 1), (1, 1)]);
    test.report(Report::Freed { job: running, nodes: set(0..2) });
    assert_eq!(test.state(running), JobState::Ended(Outcome::Success));
    assert_eq!(test.state(later), JobState::Preparing);
}

#[test]
fn a_new_head_gives_up_on_nodes_that_do_not_come() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let head = Head::new(config(2), test.records.clone(), [2; 32]);
    let mut test = Test { head, now: test.now, records: test.records };
    test.event(HeadEvent::Timeout);
    test.advance(3_900 * MS);
    assert_eq!(test.state(job), JobState::Running);
    test.advance(200 * MS);
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(0))));
}

#[test]
fn a_new_head_may_have_fewer_nodes() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let head = Head::new(config(1), test.records.clone(), [2; 32]);
    let mut test = Test { head, now: test.now, records: test.records };
    test.event(HeadEvent::Timeout);
    assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))));
    test.event(HeadEvent::ChildUp(LINK));
    let mut node = description(0);
    node.jobs = vec![(job, vec![0])];
    let actions = test.report(Report::Attached(vec![node]));
    assert!(commands(&actions).contains(&(&set([0]), &Command::Kill { job })));
    test.report(Report::Freed { job, nodes: set([0]) });
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(1))));
}

#[test]
fn input_waits_for_the_job() {
    let mut test = Test::new(2);
    let (job, _) = test.submit(request(1, 2, Some(2)));
    let input = |data: &[u8]| ClientRequest::Input { job, data: data.to_vec() };
    assert!(test.ask(&ALICE, input(b"one")).is_empty());
    assert!(test.ask(&ALICE, input(b"two")).is_empty());
    assert_eq!(
        refusal(&test.ask(&ALICE, input(&vec![0; 1 << 20]))),
        Some(RefusalKind::NoResources)
    );
    let actions = test.prepare(job, [(0, 1), (1, 1)]);
    let inputs: Vec<_> = commands(&actions)
        .into_iter()
        .filter_map(|(nodes, command)| match command {
            Command::Input { data, .. } => Some((nodes.clone(), data.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(inputs, [(set([0]), b"one".to_vec()), (set([0]), b"two".to_vec())]);
    let actions = test.ask(&ALICE, input(b""));
    let closed = Command::Input { job, data: Vec::new() };
    assert_eq!(actions, [HeadAction::ToChild(LINK, set([0]), closed)]);
}

#[test]
fn signals_end_what_does_not_run_yet() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    let actions = test.ask(&ALICE, ClientRequest::Signal { job, signal: 2 });
    assert_eq!(commands(&actions), [(&set([0]), &Command::Signal { job, signal: 2 })]);
    let actions = test.ask(&ALICE, ClientRequest::Signal { job, signal: 0 });
    assert_eq!(refusal(&actions), Some(RefusalKind::BadRequest));
    test.running(2, 1);
    let (queued, _) = test.submit(request(3, 1, Some(1)));
    test.ask(&ALICE, ClientRequest::Signal { job: queued, signal: 10 });
    assert_eq!(test.state(queued), JobState::Queued);
    let actions = test.ask(&ALICE, ClientRequest::Signal { job: queued, signal: 2 });
    assert_eq!(test.state(queued), JobState::Ended(Outcome::Killed));
    let outcome = Outcome::Killed;
    assert!(actions.contains(&HeadAction::EndSpool { job: queued, outcome }));
}

#[test]
fn the_timetable_goes_out_once_per_change() {
    let timetables = |actions: &[HeadAction]| {
        commands(actions).iter().filter(|(_, c)| matches!(c, Command::Timetable(_))).count()
    };
    let mut test = Test::new(2);
    let (job, _) = test.submit(request(1, 2, Some(2)));
    assert_eq!(timetables(&test.prepare(job, [(0, 1), (1, 1)])), 1);
    let actions = test.advance(10_000 * MS);
    assert_eq!(timetables(&actions), 0, "slices cost nothing");
    let leases =
        commands(&actions).iter().filter(|(_, c)| matches!(c, Command::Lease { .. })).count();
    assert!((9..=11).contains(&leases), "{leases}");
    let configure = |mode, slice_ns| ClientRequest::Configure { mode, slice_ns };
    assert_eq!(timetables(&test.ask(&OWNER, configure(None, Some(10 * MS)))), 0, "as it was");
    assert_eq!(timetables(&test.ask(&OWNER, configure(Some(Mode::OperatingSystem), None))), 1);
    assert_eq!(timetables(&test.ask(&OWNER, configure(None, Some(250_000)))), 1);
    let too_short = test.ask(&OWNER, configure(None, Some(1)));
    assert_eq!(refusal(&too_short), Some(RefusalKind::BadRequest));
    let attached = test.report(Report::Attached(vec![description(1)]));
    assert!(timetables(&attached) >= 1, "whoever attaches gets it");
}

#[test]
fn samples_are_gathered_for_a_second() {
    let sample = |node| NodeSample {
        node: NodeId(node),
        ranks: Vec::new(),
        switching: SwitchSample::default(),
        control_messages: 1,
        refused: Vec::new(),
    };
    let mut test = Test::new(3);
    let actions = test.ask(&ALICE, ClientRequest::Sample);
    assert_eq!(commands(&actions), [(&set(0..3), &Command::Sample { request: 1 })]);
    assert!(test.event(HeadEvent::Client(ClientId(2), BOB, ClientRequest::Sample)).is_empty());
    let nodes = vec![sample(2), sample(0), sample(2)];
    assert!(test.report(Report::Samples { request: 1, nodes }).is_empty());
    let actions = test.advance(1_100 * MS);
    let answer = ClientReply::Samples(vec![sample(0), sample(2)]);
    let clients: Vec<ClientId> = actions
        .iter()
        .filter_map(|action| match action {
            HeadAction::ToClient(client, reply) if *reply == answer => Some(*client),
            _ => None,
        })
        .collect();
    assert_eq!(clients, [CLIENT, ClientId(2)], "whoever asked meanwhile is answered too");
    assert!(test.report(Report::Samples { request: 1, nodes: vec![sample(1)] }).is_empty());
}

#[test]
fn lists_tell_no_secrets() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    let over = test.running(2, 1);
    test.report(Report::Freed { job: over, nodes: set([0]) });
    let listed = |test: &mut Test, all| {
        let actions = test.ask(&BOB, ClientRequest::Jobs { all });
        match actions.into_iter().next() {
            Some(HeadAction::ToClient(_, ClientReply::Jobs(records))) => records,
            other => panic!("{other:?}"),
        }
    };
    let records = listed(&mut test, true);
    assert_eq!(records.iter().map(|r| r.spec.job).collect::<Vec<_>>(), [job, over]);
    assert!(records.iter().all(|r| r.spec.request.env.is_empty() && r.spec.channel_key == 0));
    assert_eq!(listed(&mut test, false).len(), 1);
}

#[test]
fn nonsense_from_daemons_does_no_harm() {
    let mut test = Test::new(2);
    let job = test.running(1, 1);
    let all = all_numbers();
    test.report(Report::Freed { job: JobId(5), nodes: all.clone() });
    test.report(Report::Detached(set([])));
    test.report(Report::Attached(vec![description(2), description(u32::MAX)]));
    test.report(Report::Freed { job, nodes: set([1]) });
    assert_eq!(test.state(job), JobState::Running, "node 1 is not its node");
    let unknown = Report::Output { job: JobId(9), rank: 0, stream: Stream::Out, data: vec![1] };
    assert!(test.report(unknown).is_empty());
    let no_rank = Report::Output { job, rank: 1, stream: Stream::Out, data: vec![1] };
    assert!(test.report(no_rank).is_empty());
    let stranger = Up::Report(Report::Detached(all.clone()));
    assert!(test.event(HeadEvent::Child(LinkId(9), stranger)).is_empty(), "no such link");
    assert!(test.head.is_up(NodeId(0)));
    let (short, _) = test.submit(request(2, 4, Some(2)));
    test.prepare(short, [(0, 1)]);
    match test.state(short) {
        JobState::Ending(Outcome::Refused(refusal)) => {
            assert_eq!(refusal.kind, RefusalKind::Internal);
        }
        other => panic!("{other:?}"),
    }
    test.report(Report::Detached(all));
    assert!(!test.head.is_up(NodeId(0)));
}

/// A set that names every number there is, as only the wire can bring it.
fn all_numbers() -> NodeSet {
    postcard::from_bytes(&postcard::to_allocvec(&vec![(0u32, u32::MAX)]).unwrap()).unwrap()
}

#[test]
fn output_that_cannot_be_kept_is_told_once() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    test.event(HeadEvent::Spooled { job, end: 17 });
    let failed = || HeadEvent::SpoolFailed { job, reason: "no space left".into() };
    let actions = test.event(failed());
    let [HeadAction::ToClient(CLIENT, ClientReply::Output { offset: 17, data, .. })] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert!(String::from_utf8_lossy(data).contains("no space left"));
    assert!(test.event(failed()).is_empty());
    let output = Report::Output { job, rank: 0, stream: Stream::Out, data: vec![1] };
    assert!(test.report(output).is_empty());
    assert_eq!(test.state(job), JobState::Running);
}

#[test]
fn following_a_job_that_is_over_ends_at_once() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    test.report(Report::Freed { job, nodes: set([0]) });
    let head = Head::new(config(1), test.records.clone(), [2; 32]);
    let mut test = Test { head, now: test.now, records: test.records };
    let actions = test.ask(&ALICE, ClientRequest::Follow { job, offset: 3, wait: true });
    let follow = HeadAction::Follow { client: CLIENT, job, offset: 3, wait: true };
    assert_eq!(actions, [follow, HeadAction::EndSpool { job, outcome: Outcome::Success }]);
    assert!(replied(&test.ask(&ALICE, ClientRequest::Kill { job }), &ClientReply::Done));
}

#[test]
fn versions_must_agree() {
    let mut test = Test::new(1);
    let version = kumi_control::message::CONTROL_VERSION;
    let hello = |version| ClientRequest::Hello { version };
    assert!(replied(&test.ask(&ALICE, hello(version)), &ClientReply::Welcome { version }));
    assert_eq!(refusal(&test.ask(&ALICE, hello(version + 1))), Some(RefusalKind::Version));
}
