//! An agent between a parent and children that the test speaks for.

use kumi_control::agent::{Agent, AgentAction, AgentConfig, AgentEvent, LinkId};
use kumi_control::message::StandingReport;
use kumi_control::message::{
    AbandonCause, Command, ContentHash, Down, Hop, IdleReport, JobRequest, JobSpec, KeptOutput,
    MessageCounts, NodeDescription, NodeRanks, NodeSample, NodeSet, PreparedNode, PreparedRanks,
    Program, RankAddress, RankStatus, Refusal, RefusalKind, Report, Stream, SwitchSample, Up, User,
};
use kumi_sched::{ClusterTime, Column, JobId, Mode, NodeId, Timetable};
use kumi_verdict::{FINAL_ROUND, Standing, Summary};

mod adoption;
mod conditions;
mod exchanges;
mod output;
mod usage;

const MS: u64 = 1_000_000;
const JOB: JobId = JobId(4);
const LEFT: LinkId = LinkId(1);
const RIGHT: LinkId = LinkId(2);
const HASH: ContentHash = ContentHash([7; 32]);

/// Node 0, with node 1 (and 3 behind it) to the left and node 2 to the right.
struct Test {
    agent: Agent,
    now: u64,
}

fn description(node: u32) -> NodeDescription {
    NodeDescription {
        node: NodeId(node),
        incarnation: 1,
        name: format!("n{node}"),
        processors: 1,
        memory: 0,
        devices: Vec::new(),
        max_ranks: 8,
        limits: Vec::new(),
        jobs: Vec::new(),
        path: vec![Hop { incarnation: 1, attachment: 1 }],
    }
}

fn set(nodes: impl IntoIterator<Item = u32>) -> NodeSet {
    NodeSet::from_nodes(nodes.into_iter().map(NodeId))
}

fn prepared(node: u32) -> PreparedNode {
    PreparedNode { node: NodeId(node), result: Ok(ranks(node)) }
}

fn ranks(node: u32) -> PreparedRanks {
    PreparedRanks {
        addresses: vec![RankAddress { ip: [10, 0, 0, node as u8].into(), port: 1 }],
        max_datagram: 1400,
    }
}

/// A job with one rank on each of four nodes.
fn spec() -> JobSpec {
    JobSpec {
        job: JOB,
        user: User { uid: 1, gid: 1, name: String::new() },
        request: JobRequest::new(
            1,
            "job",
            Program { path: "/bin/true".into(), hash: HASH, size: 1 },
            4,
        ),
        layout: (0..4)
            .map(|n| NodeRanks { node: NodeId(n), first: n, count: 1, processors: vec![0] })
            .collect(),
        channel_key: 1,
        seal_key: None,
    }
}

impl Test {
    fn new() -> Self {
        let mut test =
            Self { agent: Agent::new(AgentConfig { description: description(0) }), now: MS };
        test.event(AgentEvent::ParentUp);
        test.event(AgentEvent::ChildUp(LEFT));
        test.event(AgentEvent::ChildUp(RIGHT));
        test.child(LEFT, Report::Attached(vec![description(1), description(3)]));
        test.child(RIGHT, Report::Attached(vec![description(2)]));
        test.lease();
        test
    }

    /// The head grants three seconds.
    fn lease(&mut self) -> Vec<AgentAction> {
        let until = ClusterTime(self.now + 3_000 * MS);
        self.command(set(0..4), Command::Lease { until, nanos: 3_000 * MS })
    }

    fn event(&mut self, event: AgentEvent) -> Vec<AgentAction> {
        self.now += 1000;
        self.agent.handle(self.now, event);
        std::iter::from_fn(|| self.agent.poll_action()).collect()
    }

    fn command(&mut self, nodes: NodeSet, command: Command) -> Vec<AgentAction> {
        self.event(AgentEvent::Parent(Down::Command(nodes, command)))
    }

    fn child(&mut self, link: LinkId, report: Report) -> Vec<AgentAction> {
        self.event(AgentEvent::Child(link, Up::Report(report)))
    }

    fn prepare(&mut self) -> Vec<AgentAction> {
        self.command(set(0..4), Command::Prepare(Box::new(spec())))
    }

    fn start(&mut self) -> Vec<AgentAction> {
        let addresses = vec![RankAddress { ip: [10, 0, 0, 1].into(), port: 1 }; 4];
        self.command(set(0..4), Command::Start { job: JOB, addresses, max_datagram: 1400 })
    }

    /// The job prepared everywhere and started.
    fn running() -> Self {
        let mut test = Self::new();
        test.prepare();
        test.event(AgentEvent::Prepared { job: JOB, result: Ok(ranks(0)) });
        test.child(LEFT, Report::Prepared { job: JOB, nodes: vec![prepared(1), prepared(3)] });
        test.child(RIGHT, Report::Prepared { job: JOB, nodes: vec![prepared(2)] });
        test.start();
        test
    }

    fn advance(&mut self, time: u64) -> Vec<AgentAction> {
        let until = self.now + time;
        let mut actions = Vec::new();
        while let Some(at) = self.agent.next_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            actions.extend(self.event(AgentEvent::Timeout));
        }
        self.now = until;
        actions
    }
}

fn up(report: Report) -> AgentAction {
    AgentAction::ToParent(report)
}

fn freed(nodes: impl IntoIterator<Item = u32>) -> Report {
    Report::Freed { job: JOB, nodes: set(nodes) }
}

fn output(data: &[u8]) -> AgentEvent {
    AgentEvent::Output { job: JOB, rank: 0, stream: Stream::Out, data: data.to_vec() }
}

/// The report of what rank 0 wrote.
fn wrote(base: u64, at: u64, data: &[u8]) -> Report {
    let (job, rank, node, stream) = (JOB, 0, NodeId(0), Stream::Out);
    Report::Output { job, rank, node, stream, base, at, data: data.to_vec() }
}

impl Test {
    /// The head has so much of what rank 0 wrote.
    fn kept(&mut self, next: u64, again: bool) -> Vec<AgentAction> {
        let kept = vec![KeptOutput { rank: 0, stream: Stream::Out, next }];
        self.command(set([0]), Command::OutputKept { job: JOB, kept, again })
    }
}

#[test]
fn commands_go_where_they_belong_once() {
    let mut test = Test::new();
    let actions = test.prepare();
    let below: Vec<_> = actions
        .iter()
        .filter_map(|action| match action {
            AgentAction::ToChild(link, nodes, Command::Prepare(_)) => Some((*link, nodes.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(below, [(LEFT, set([1, 3])), (RIGHT, set([2]))]);
    assert!(actions.contains(&AgentAction::Prepare(Box::new(spec()))));
    let actions = test.command(set([3, 9]), Command::Signal { job: JOB, signal: 2 });
    let signal = Command::Signal { job: JOB, signal: 2 };
    assert_eq!(actions, [AgentAction::ToChild(LEFT, set([3]), signal)]);
}

#[test]
fn answers_are_combined() {
    let mut test = Test::new();
    test.prepare();
    assert!(test.event(AgentEvent::Prepared { job: JOB, result: Ok(ranks(0)) }).is_empty());
    let left = Report::Prepared { job: JOB, nodes: vec![prepared(1), prepared(3)] };
    assert!(test.child(LEFT, left).is_empty());
    let right = Report::Prepared { job: JOB, nodes: vec![prepared(2), prepared(3)] };
    let all = Report::Prepared { job: JOB, nodes: (0..4).map(prepared).collect() };
    assert_eq!(test.child(RIGHT, right), [up(all)], "3 is not to the right, and was heard of");
}

#[test]
fn a_refusal_does_not_wait() {
    let mut test = Test::new();
    test.prepare();
    let refusal = Refusal { kind: RefusalKind::NotFound, message: "no such directory".into() };
    let result = Err(refusal.clone());
    let actions = test.event(AgentEvent::Prepared { job: JOB, result: Err(refusal) });
    let nodes = vec![PreparedNode { node: NodeId(0), result }];
    assert_eq!(actions, [up(Report::Prepared { job: JOB, nodes })]);
}

#[test]
fn a_lost_child_is_not_waited_for() {
    let mut test = Test::new();
    test.prepare();
    test.event(AgentEvent::Prepared { job: JOB, result: Ok(ranks(0)) });
    test.child(RIGHT, Report::Prepared { job: JOB, nodes: vec![prepared(2)] });
    let actions = test.event(AgentEvent::ChildDown(LEFT));
    let nodes = vec![prepared(0), prepared(2)];
    let detached = up(Report::Detached(set([1, 3])));
    assert_eq!(actions, [up(Report::Prepared { job: JOB, nodes }), detached]);
}

#[test]
fn who_lacks_the_program_is_told_together_and_holds_nobody_up() {
    let mut test = Test::new();
    test.prepare();
    let wanted = |nodes| Report::ProgramWanted { job: JOB, hash: HASH, nodes };
    assert!(test.event(AgentEvent::ProgramNeeded { job: JOB, hash: HASH }).is_empty());
    assert!(test.child(LEFT, wanted(set([1, 3]))).is_empty());
    let right = Report::Prepared { job: JOB, nodes: vec![prepared(2)] };
    let actions = test.child(RIGHT, right.clone());
    assert_eq!(actions, [up(right), up(wanted(set([0, 1, 3])))]);
}

#[test]
fn nothing_starts_twice() {
    let mut test = Test::running();
    let own = |actions: Vec<AgentAction>| -> Vec<AgentAction> {
        actions.into_iter().filter(|a| !matches!(a, AgentAction::ToChild(..))).collect()
    };
    assert!(own(test.start()).is_empty());
    let again = own(test.prepare());
    let nodes = (0..4).map(prepared).collect();
    assert_eq!(again, [up(Report::Prepared { job: JOB, nodes })], "only the answer comes again");
    test.command(set([0]), Command::Kill { job: JOB });
    assert!(own(test.start()).is_empty());
    test.event(AgentEvent::Freed { job: JOB });
    assert!(own(test.start()).is_empty());
    assert!(own(test.prepare()).iter().all(|a| !matches!(a, AgentAction::Prepare(_))));
}

#[test]
fn the_first_failure_is_told_and_killed_ranks_are_no_failures() {
    let mut test = Test::running();
    let status = RankStatus::Exited(3);
    let actions = test.event(AgentEvent::RankExited { job: JOB, rank: 0, status });
    let failed = |rank, node| Report::RankFailed { job: JOB, rank, node: NodeId(node), status };
    assert_eq!(actions, [up(failed(0, 0))]);
    assert!(test.child(LEFT, failed(3, 3)).is_empty(), "the head needs one");
    let mut test = Test::running();
    let actions = test.command(set([0]), Command::Kill { job: JOB });
    assert_eq!(actions, [AgentAction::Kill { job: JOB }]);
    let status = RankStatus::Signalled(9);
    assert!(test.event(AgentEvent::RankExited { job: JOB, rank: 0, status }).is_empty());
    assert!(test.event(AgentEvent::Freed { job: JOB }).is_empty());
    assert!(test.child(RIGHT, freed([2])).is_empty());
    assert_eq!(test.child(LEFT, freed([1, 3])), [up(freed(0..4))], "gone everywhere, said once");
}

#[test]
fn a_lost_child_does_not_hold_up_the_end_either() {
    let mut test = Test::running();
    test.command(set(0..4), Command::Kill { job: JOB });
    test.event(AgentEvent::Freed { job: JOB });
    test.child(RIGHT, freed([2]));
    let actions = test.event(AgentEvent::ChildDown(LEFT));
    assert_eq!(actions, [up(freed([0, 2])), up(Report::Detached(set([1, 3])))]);
}

#[test]
fn what_matters_is_said_again_until_it_may_be_forgotten() {
    let mut test = Test::running();
    test.event(AgentEvent::ParentDown);
    assert!(test.event(output(b"one")).is_empty());
    let status = RankStatus::Exited(0);
    test.event(AgentEvent::RankExited { job: JOB, rank: 0, status });
    assert!(test.event(AgentEvent::Freed { job: JOB }).is_empty());
    assert!(test.child(LEFT, freed([3])).is_empty());
    let actions = test.event(AgentEvent::ParentUp);
    let [AgentAction::ToParent(Report::Attached(nodes)), rest @ ..] = &actions[..] else {
        panic!("{actions:?}")
    };
    let jobs: Vec<_> = nodes.iter().map(|node| (node.node.0, node.jobs.clone())).collect();
    let with = |ranks: &[u32]| vec![(JOB, ranks.to_vec())];
    assert_eq!(jobs, [(0, with(&[])), (1, with(&[1])), (2, with(&[2])), (3, with(&[]))]);
    let expected =
        [up(Report::Prepared { job: JOB, nodes: (0..4).map(prepared).collect() }), up(freed([3]))];
    assert_eq!(rest, expected, "the head does not have the output yet");
    let last = up(wrote(0, 3, b""));
    assert_eq!(test.kept(0, true), [up(wrote(0, 0, b"one")), last]);
    let actions = test.kept(3, false);
    assert_eq!(actions, [], "others are not freed");

    test.child(LEFT, freed([1]));
    assert_eq!(test.child(RIGHT, freed([2])), [up(freed(0..3))]);
    test.command(set(0..4), Command::Forget { job: JOB });
    test.event(AgentEvent::ParentDown);
    let actions = test.event(AgentEvent::ParentUp);
    let [AgentAction::ToParent(Report::Attached(nodes))] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert!(nodes.iter().all(|node| node.jobs.is_empty()));
}

#[test]
fn without_a_lease_all_jobs_are_given_up() {
    let mut test = Test::running();
    test.event(AgentEvent::ParentDown);
    assert!(test.advance(2_900 * MS).is_empty());
    let actions = test.advance(200 * MS);
    assert_eq!(actions, [AgentAction::LeaseExpired, AgentAction::Kill { job: JOB }]);
    let status = RankStatus::Signalled(9);
    test.event(AgentEvent::RankExited { job: JOB, rank: 0, status });
    test.event(AgentEvent::Freed { job: JOB });
    let actions = test.event(AgentEvent::ParentUp);
    let (nodes, cause) = (set([0]), AbandonCause::LeaseOver);
    let abandoned = Report::Abandoned { job: JOB, nodes, cause };
    assert!(actions.ends_with(&[up(abandoned), up(freed([0]))]), "{actions:?}");
    assert_eq!(test.agent.next_timeout(), None);
}

#[test]
fn leases_are_renewed_and_passed_on() {
    let mut test = Test::running();
    for _ in 0..10 {
        assert!(test.advance(1_000 * MS).is_empty());
        let actions = test.lease();
        assert_eq!(actions.len(), 2, "one message a child");
    }
}

#[test]
fn a_job_that_vanishes_is_not_a_success() {
    let mut test = Test::running();
    let actions = test.event(AgentEvent::Freed { job: JOB });
    let (nodes, cause) = (set([0]), AbandonCause::Vanished);
    assert_eq!(actions, [up(Report::Abandoned { job: JOB, nodes, cause })]);
}

#[test]
fn samples_of_the_subtree_come_together_or_late() {
    let sample = |node| NodeSample {
        node: NodeId(node),
        ranks: Vec::new(),
        channels: Vec::new(),
        traces: Vec::new(),
        load: None,
        machine_clock: String::new(),
        switching: SwitchSample::default(),
        control_messages: MessageCounts::default(),
        refused: Vec::new(),
    };
    let samples = |nodes: Vec<NodeSample>| Report::Samples { request: 8, nodes };
    let mut test = Test::new();
    let actions = test.command(set(0..4), Command::Sample { request: 8 });
    assert!(actions.contains(&AgentAction::Sample { request: 8 }));
    assert!(test.event(AgentEvent::Sampled { request: 8, sample: sample(0) }).is_empty());
    assert!(test.child(RIGHT, samples(vec![sample(2)])).is_empty());
    let actions = test.advance(600 * MS);
    assert_eq!(actions, [up(samples(vec![sample(0), sample(2)]))]);
    let late = test.child(LEFT, samples(vec![sample(1), sample(3)]));
    assert_eq!(late, [up(samples(vec![sample(1), sample(3)]))]);
}

#[test]
fn everybody_gets_their_columns() {
    let column = |node| Column { node: NodeId(node), slots: vec![vec![JOB]] };
    let timetable = |generation, nodes: &[u32]| Timetable {
        generation,
        start: ClusterTime(5),
        slice_ns: 10,
        phase_ns: 0,
        mode: Mode::OperatingSystem,
        columns: nodes.iter().map(|&node| column(node)).collect(),
        idle: vec![JOB],
    };
    let mut test = Test::new();
    let actions = test.command(set(0..4), Command::Timetable(timetable(2, &[0, 1, 2, 3])));
    let expected = [
        AgentAction::ToChild(LEFT, set([1, 3]), Command::Timetable(timetable(2, &[1, 3]))),
        AgentAction::ToChild(RIGHT, set([2]), Command::Timetable(timetable(2, &[2]))),
        AgentAction::Apply(timetable(2, &[0])),
    ];
    assert_eq!(actions, expected);
    assert!(test.command(set([0]), Command::Timetable(timetable(2, &[]))).is_empty());
    assert!(test.command(set([0]), Command::Timetable(timetable(1, &[]))).is_empty());
    let actions = test.command(set([0]), Command::Timetable(timetable(3, &[])));
    assert_eq!(actions, [AgentAction::Apply(timetable(3, &[]))]);
}

#[test]
fn a_daemon_stops_when_its_jobs_and_children_are_gone() {
    let mut test = Test::running();
    let actions = test.command(set(0..4), Command::Shutdown);
    assert!(actions.contains(&AgentAction::Kill { job: JOB }));
    assert!(test.event(AgentEvent::ChildDown(LEFT)).iter().all(|a| *a != AgentAction::Shutdown));
    let actions = test.event(AgentEvent::Freed { job: JOB });
    assert!(actions.is_empty());
    let actions = test.event(AgentEvent::ChildDown(RIGHT));
    let expected = [up(freed([0])), up(Report::Detached(set([2]))), AgentAction::Shutdown];
    assert_eq!(actions, expected);
    assert_eq!(test.agent.next_timeout(), None);
}

#[test]
fn children_that_do_not_stop_are_left_behind() {
    let mut test = Test::running();
    assert!(!test.command(set([0]), Command::Shutdown).contains(&AgentAction::Shutdown));
    test.event(AgentEvent::Freed { job: JOB });
    assert!(test.advance(1_900 * MS).is_empty());
    assert_eq!(test.advance(200 * MS), [up(freed([0])), AgentAction::Shutdown]);
}

/// Its timer would go off again and again.
#[test]
fn a_daemon_that_stops_and_has_a_job_for_long_waits_for_events_only() {
    let mut test = Test::running();
    test.command(set([0]), Command::Shutdown);
    assert!(test.advance(10_000 * MS).iter().all(|action| *action != AgentAction::Shutdown));
    assert!(test.agent.next_timeout().is_none_or(|at| at > test.now), "{:?}", test.agent);
    let actions = test.event(AgentEvent::Freed { job: JOB });
    assert!(actions.contains(&AgentAction::Shutdown), "{actions:?}");
}

fn idle(nodes: impl IntoIterator<Item = u32>, idle: bool) -> Report {
    Report::Idle(IdleReport { job: JOB, nodes: set(nodes), idle })
}

#[test]
fn that_a_job_is_idle_is_said_for_all_at_once_and_taken_back_at_once() {
    let mut test = Test::running();
    let own = |idle| AgentEvent::Idle { job: JOB, idle };
    assert!(test.event(own(true)).is_empty());
    assert!(test.child(LEFT, idle([1, 3], true)).is_empty());
    assert!(test.child(LEFT, idle([2], true)).is_empty(), "not its node");
    assert_eq!(test.child(RIGHT, idle([2], true)), [up(idle(0..4, true))]);
    assert!(test.event(own(true)).is_empty(), "said before");
    assert_eq!(test.child(LEFT, idle([3], false)), [up(idle([3], false))]);
    assert_eq!(test.event(own(false)), [up(idle([0], false))]);
    assert!(test.event(own(false)).is_empty(), "said before");
    // What became idle and stirred while others did not wait is nobody's business.
    assert!(test.child(LEFT, idle([3], true)).is_empty());
    assert!(test.child(LEFT, idle([3], false)).is_empty());
    assert!(test.child(LEFT, idle([3], true)).is_empty());
    assert_eq!(test.event(own(true)), [up(idle([0, 3], true))]);
}

#[test]
fn what_is_idle_is_said_again_to_another_parent() {
    let mut test = Test::running();
    test.event(AgentEvent::Idle { job: JOB, idle: true });
    test.child(LEFT, idle([1, 3], true));
    test.event(AgentEvent::ParentDown);
    assert!(test.child(RIGHT, idle([2], true)).is_empty());
    test.child(LEFT, idle([3], false));
    let said = |actions: &[AgentAction]| -> Vec<Report> {
        let reports = actions.iter().filter_map(|action| match action {
            AgentAction::ToParent(report @ Report::Idle(_)) => Some(report.clone()),
            _ => None,
        });
        reports.collect()
    };
    assert_eq!(said(&test.event(AgentEvent::ParentUp)), [], "node 3 has something to do");
    assert_eq!(test.child(LEFT, idle([3], true)), [up(idle(0..4, true))]);
    // Of a node that leaves nothing is known, and the others need not wait for it.
    test.child(LEFT, idle([1], false));
    let actions = test.event(AgentEvent::ChildDown(LEFT));
    assert_eq!(said(&actions), []);
    test.child(RIGHT, idle([2], false));
    assert_eq!(test.child(RIGHT, idle([2], true)), [up(idle([2], true))]);
    // A job that ends somewhere has nothing to do there; one that is killed says no more.
    test.event(AgentEvent::Idle { job: JOB, idle: false });
    let actions = test.event(AgentEvent::Freed { job: JOB });
    assert_eq!(said(&actions), []);
    test.child(RIGHT, idle([2], false));
    assert_eq!(said(&test.child(RIGHT, idle([2], true))), [idle([2], true)]);
    test.command(set(0..4), Command::Forget { job: JOB });
    assert!(test.child(RIGHT, idle([2], false)).is_empty(), "over and forgotten");
}

#[test]
fn only_jobs_that_run_here_are_idle() {
    let mut test = Test::new();
    test.prepare();
    assert!(test.event(AgentEvent::Idle { job: JOB, idle: true }).is_empty());
    let mut test = Test::running();
    for link in [LEFT, RIGHT] {
        test.event(AgentEvent::ChildDown(link));
    }
    test.command(set([0]), Command::Kill { job: JOB });
    assert!(test.event(AgentEvent::Idle { job: JOB, idle: true }).is_empty());
    assert!(test.event(AgentEvent::Idle { job: JobId(99), idle: false }).is_empty());
}

/// A daemon below makes up jobs while there is no parent that would have them forgotten.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn reports_on_more_jobs_than_there_can_be_are_not_kept() {
    let mut test = Test::running();
    test.event(AgentEvent::ParentDown);
    for job in 1_000..31_000 {
        let job = JobId(job);
        test.child(LEFT, Report::Freed { job, nodes: set([1]) });
    }
    // Jobs that are known have theirs all the same.
    let status = RankStatus::Exited(1);
    test.child(RIGHT, Report::RankFailed { job: JOB, rank: 2, node: NodeId(2), status });
    let actions = test.event(AgentEvent::ParentUp);
    let freed = actions
        .iter()
        .filter(|action| matches!(action, AgentAction::ToParent(Report::Freed { .. })));
    assert_eq!(freed.count(), 20_000 - 1);
    let failed = |action: &AgentAction| {
        matches!(action, AgentAction::ToParent(Report::RankFailed { job: JOB, .. }))
    };
    assert!(actions.iter().any(failed));
}

fn stands(nodes: impl IntoIterator<Item = u32>, standing: Standing) -> Report {
    Report::Standing(StandingReport { job: JOB, nodes: set(nodes), standing })
}

fn settled(round: u64, ranks: u32, sent: u64) -> Standing {
    Standing::Settled(Summary { round, ranks, waiting: ranks, sent, ..Summary::EMPTY })
}

#[test]
fn standings_go_up_together_and_changes_at_once() {
    let mut test = Test::running();
    let own = |standing| AgentEvent::Standing { job: JOB, standing };
    assert!(test.event(own(settled(0, 1, 5))).is_empty());
    assert!(test.child(LEFT, stands([1, 3], settled(0, 2, 1))).is_empty());
    assert!(test.child(LEFT, stands([2], settled(0, 9, 9))).is_empty(), "not its node");
    let all = test.child(RIGHT, stands([2], settled(0, 1, 1)));
    assert_eq!(all, [up(stands(0..4, settled(0, 4, 7)))]);
    // A round is over once all have answered.
    assert!(test.child(LEFT, stands([1, 3], settled(1, 2, 1))).is_empty());
    assert!(test.event(own(settled(1, 1, 5))).is_empty());
    let answer = test.child(RIGHT, stands([2], settled(1, 1, 1)));
    assert_eq!(answer, [up(stands(0..4, settled(1, 4, 7)))]);
    // What is told of all is taken back of all.
    let changed = test.child(LEFT, stands([3], Standing::Changed));
    assert_eq!(changed, [up(stands(0..4, Standing::Changed))]);
    assert!(test.event(own(Standing::Changed)).is_empty(), "told already");
    assert!(test.child(LEFT, stands([1, 3], settled(0, 2, 1))).is_empty());
    let again = test.event(own(settled(0, 1, 5)));
    assert_eq!(again, [up(stands(0..4, settled(0, 4, 7)))]);
    // A node whose ranks have ended has not answered a round, whatever the others did.
    let over = test.child(RIGHT, stands([2], settled(FINAL_ROUND, 1, 2)));
    let together = stands(0..4, settled(0, 4, 8));
    assert_eq!(over, [up(stands(0..4, Standing::Changed)), up(together)]);
}

#[test]
fn standings_are_told_again_to_another_parent() {
    let mut test = Test::running();
    test.event(AgentEvent::Standing { job: JOB, standing: settled(0, 1, 0) });
    test.child(LEFT, stands([1, 3], settled(0, 2, 0)));
    test.child(RIGHT, stands([2], settled(0, 1, 0)));
    test.event(AgentEvent::ParentDown);
    let told = test.event(AgentEvent::ParentUp);
    assert!(told.contains(&up(stands(0..4, settled(0, 4, 0)))), "{told:?}");
}
