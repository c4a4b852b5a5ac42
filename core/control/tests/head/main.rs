//! The head against nodes that the test speaks for: what it asks of them, in which order, and what
//! it refuses.

use kumi_control::head::{ClientId, Head, HeadAction, HeadConfig, HeadEvent, LinkId, Retention};
use kumi_control::message::{
    AbandonCause, ClientReply, ClientRequest, Command, ContentHash, Hop, IdleReport, JobRecord,
    JobRequest, JobState, JobsPage, JobsQuery, KeptOutput, MessageCounts, NodeDescription,
    NodeSample, NodeSet, Outcome, PreparedNode, PreparedRanks, Program, RankAddress, RankStatus,
    Refusal, RefusalKind, Report, Resources, Stream, SwitchSample, Up, User, WaitLimit, WindowSize,
};
use kumi_sched::{ClusterTime, JobId, Mode, NodeId, SliceLength, Timetable};

mod admission;
mod batch;
mod clients;
mod conditions;
mod configured;
mod drains;
mod ending;
mod exchanges;
mod idle;
mod keys;
mod large;
mod life;
mod listing;
mod many;
mod nodes;
mod output;
mod paging;
mod policy;
mod privacy;
mod processors;
mod random;
mod restarts;
mod revocations;
mod same;
mod shares;
mod slice;
mod usage;
mod verdicts;
mod waiting;

const MS: u64 = 1_000_000;
const ALICE: User = User { uid: 1000, gid: 1000, name: String::new() };
const BOB: User = User { uid: 1001, gid: 1001, name: String::new() };
const OWNER: User = User { uid: 500, gid: 500, name: String::new() };
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
        mode: Mode::Gang { force_switch: false, fill: true },
        slice: SliceLength::Fixed(10 * MS),
        retention: Retention { jobs: 4096, age_ms: u64::MAX },
        max_jobs_per_user: 5_000,
        max_jobs_per_processor: 2,
        owner_uid: 500,
        root_jobs: false,
        show_others: Default::default(),
        lease_ns: 3_000 * MS,
        detach_grace_ns: 1_000 * MS,
        encrypt: false,
        policy: "dqt".into(),
        max_priority: 4,
        priority: 1,
        estimate_ns: None,
        time_limit_ns: None,
        wait: WaitLimit::Forever,
        env: Vec::new(),
        resources: Resources::default(),
        revoked: Vec::new(),
        drains: Vec::new(),
        removed: Vec::new(),
        shares: None,
    }
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
        path: Vec::new(),
    }
}

fn request(token: u128, ranks: u32, nodes: Option<u32>) -> JobRequest {
    let program = Program { path: "/bin/true".into(), hash: HASH, size: 10 };
    let env = vec![("SECRET".into(), "x".into())];
    JobRequest { env, nodes, ..JobRequest::new(token, "job", program, ranks) }
}

fn set(nodes: impl IntoIterator<Item = u32>) -> NodeSet {
    NodeSet::from_nodes(nodes.into_iter().map(NodeId))
}

impl Test {
    /// A head whose nodes are all attached.
    fn new(nodes: u32) -> Self {
        Self::attached(config(nodes))
    }

    /// The same with another policy than the usual one.
    fn with_policy(nodes: u32, policy: &str) -> Self {
        Self::attached(HeadConfig { policy: policy.into(), ..config(nodes) })
    }

    /// The same with another limit of jobs on a node.
    fn wide(nodes: u32, max_jobs_per_processor: u32) -> Self {
        Self::attached(HeadConfig { max_jobs_per_processor, ..config(nodes) })
    }

    fn attached(config: HeadConfig) -> Self {
        let processors = vec![1; config.nodes.len()];
        Self::with_processors(config, &processors)
    }

    /// The same; each node has so many processors.
    fn with_processors(config: HeadConfig, processors: &[u32]) -> Self {
        let mut test = Self::from_config(config);
        let nodes = (0..)
            .zip(processors)
            .map(|(node, &processors)| NodeDescription { processors, ..description(node) });
        test.report(Report::Attached(nodes.collect()));
        test
    }

    fn without_nodes(nodes: u32) -> Self {
        Self::from_config(config(nodes))
    }

    fn from_config(config: HeadConfig) -> Self {
        let head = Head::new(config, Vec::new(), [1; 32]).expect("a policy");
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
                addresses: vec![RankAddress { ip: [10, 0, 0, node as u8].into(), port: 9 }; ranks],
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

fn refused(actions: Vec<HeadAction>) -> Refusal {
    let found = actions.into_iter().find_map(|action| match action {
        HeadAction::ToClient(_, ClientReply::Refused(refusal)) => Some(refusal),
        _ => None,
    });
    found.expect("a refusal")
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

/// A sample of a node on which nothing runs.
fn sample(node: u32) -> NodeSample {
    NodeSample {
        node: NodeId(node),
        machine_clock: String::new(),
        ranks: Vec::new(),
        channels: Vec::new(),
        traces: Vec::new(),
        load: None,
        switching: SwitchSample::default(),
        control_messages: MessageCounts::default(),
        refused: Vec::new(),
    }
}
