//! What the head of a cluster does, as a pure state machine.
//!
//! A job's life is `Queued → Preparing → Running → Ending → Ended`, and each step is recorded
//! ([`HeadAction::Persist`]) before anything is done about it. Ranks start in two phases: all nodes
//! prepare; when all have, the timetable that has the job and then `Start` go out.
//!
//! *Repair.* No message is acknowledged. When a node attaches (again) it says which jobs it has
//! anything of, and repeats its reports on them; from that the head knows what the node missed and
//! sends it again: `Prepare` to a node that never got it, `Start` to one that has the job prepared,
//! `Kill` for jobs that are over. All of these do no harm if they come twice. A running job of
//! which a node knows nothing is lost there (its daemon was restarted), and fails. The same happens
//! when a node stays away longer than the grace. After a restart of the head every node attaches
//! again, so its jobs are reconciled the same way, with a longer grace for the nodes to come.
//!
//! *Idle jobs.* A running job that has nothing to do on any of its nodes is idle: it keeps its nodes
//! and has no slot. Nodes say so and say when that ends; of a node that is away or attaches again nothing
//! is known until it says it again, and meanwhile its jobs take their turns.
//!
//! *Clients.* A job belongs to the cluster, not to the client that submitted it: when that goes
//! away the job runs on, and can be followed and killed by others of the same user. The exception
//! is a program that only the client can supply.

mod clients;
mod idle;
mod jobs;
mod nodes;
mod placement;
mod policy;
mod quota;
mod reports;
mod sampling;
mod timetable;
mod transfers;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::{ClusterTime, JobId, Mode, NodeId, Policy, Timetable};

use crate::message::{
    ClientReply, ClientRequest, Command, ContentHash, JobRecord, Nanos, NodeSet, Outcome, Stream,
    Up, User,
};
use crate::stall_tolerant_clock::StallTolerantClock;
pub use crate::tree::LinkId;
use crate::tree::Routes;

use jobs::Job;
use nodes::Node;
pub use policy::{PolicyError, check_policy};
use sampling::SampleRequest;
use transfers::Transfer;

/// How often the head looks while it waits for a node that is away. What a look comes late by does not count as
/// the node's absence: the head itself was not run.
const WATCH: Nanos = 100_000_000;

/// What a head is told at its start.
#[derive(Clone, Debug)]
pub struct HeadConfig {
    /// Shown to people.
    pub cluster_name: String,
    /// Names of all nodes; a node's number is its place.
    pub nodes: Vec<String>,
    /// How processors are shared at first.
    pub mode: Mode,
    /// Length of a slice at first, in nanoseconds.
    pub slice_ns: u64,
    /// Name of the scheduling policy at first, see [`kumi_sched::registry`].
    pub policy: String,
    /// Most jobs on one node at once, where they share time.
    pub max_jobs_per_node: u32,
    /// The highest priority that jobs of others than the owner and root may have.
    pub max_priority: u16,
    /// The priority of jobs that do not say.
    pub priority: u16,
    /// The estimate of jobs that do not say, in nanoseconds.
    pub estimate_ns: Option<u64>,
    /// Who owns the cluster, beside root.
    pub owner_uid: u32,
    /// How long a node runs jobs without hearing from the head, in nanoseconds.
    pub lease_ns: Nanos,
    /// How long a node may be away before its jobs fail, in nanoseconds.
    pub detach_grace_ns: Nanos,
    /// Whether packets of jobs that do not say are encrypted.
    pub encrypt: bool,
    /// Environment variables of jobs that do not set them.
    pub env: Vec<(String, String)>,
}

/// A client's connection; given by the driver, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What happened to the head.
#[derive(Clone, Debug)]
pub enum HeadEvent {
    /// A daemon connected.
    ChildUp(LinkId),
    /// A daemon's link is gone.
    ChildDown(LinkId),
    /// A daemon said this. `Up::ClockProbe` and `Up::Disclosed` are the driver's affair and ignored here.
    Child(LinkId, Up),
    /// A client asked this, as this user.
    Client(ClientId, User, ClientRequest),
    /// A client's connection is gone.
    ClientGone(ClientId),
    /// The output of a job is written to its spool up to this byte.
    Spooled {
        /// The job.
        job: JobId,
        /// Length of the spool.
        end: u64,
    },
    /// Output could not be kept. The job goes on; no more of its output is spooled.
    SpoolFailed {
        /// The job.
        job: JobId,
        /// What the system said.
        reason: String,
    },
    /// The time that [`Head::next_timeout`] named has come. Harmless at any other time.
    Timeout,
}

/// What the head must do, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum HeadAction {
    /// Must be durable before any later action is carried out. Replaces the job's earlier record.
    Persist(Box<JobRecord>),
    /// Send to a child: for these nodes of its subtree.
    ToChild(LinkId, NodeSet, Command),
    /// Send to a client.
    ToClient(ClientId, ClientReply),
    /// Append to the job's spool; answered by [`HeadEvent::Spooled`] or
    /// [`HeadEvent::SpoolFailed`].
    Spool {
        /// The job.
        job: JobId,
        /// Which rank wrote it.
        rank: u32,
        /// Where to.
        stream: Stream,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Send the job's spool to the client from `offset` on; with `wait` also what comes later,
    /// until [`HeadAction::EndSpool`], otherwise finish with `Ended` or `Done` at its end.
    Follow {
        /// Whom to.
        client: ClientId,
        /// The job.
        job: JobId,
        /// First byte of the spool to send.
        offset: u64,
        /// Whether to wait for more.
        wait: bool,
    },
    /// No more output of the job will come: finish its followers with `Ended` once they have it
    /// all. Comes again, behind `Follow`, for a job that was over before.
    EndSpool {
        /// The job.
        job: JobId,
        /// How it ended.
        outcome: Outcome,
    },
    /// All jobs are freed and recorded, the daemons are told to stop: send what is queued, stop.
    Shutdown,
}

/// The state machine of a cluster's head.
pub struct Head {
    config: HeadConfig,
    seed: [u8; 32],
    now: Nanos,
    clock: StallTolerantClock,
    wall_ms: u64,
    /// When the first event came: local time and wall clock.
    started: Option<(Nanos, u64)>,
    jobs: BTreeMap<JobId, Job>,
    /// Ended jobs in the order of their end, oldest first.
    ended: VecDeque<JobId>,
    /// What requests of ended jobs take, in bytes.
    ended_bytes: usize,
    /// What is kept for jobs that are not over: of all, and by user.
    held: quota::Usage,
    held_by_user: BTreeMap<u32, quota::Usage>,
    tokens: BTreeMap<u128, JobId>,
    next_job: u64,
    nodes: Vec<Node>,
    /// Nodes that are away, and when their jobs fail.
    away: BTreeMap<NodeId, nodes::AbsenceDeadline>,
    links: BTreeSet<LinkId>,
    routes: Routes,
    policy: Box<dyn Policy + Send>,
    timetable: Timetable,
    timetable_stale: bool,
    /// How many ticks of the timetable the policy has been told of.
    passed: u64,
    /// The fewest processors and the lowest limit of ranks of any node that was ever attached.
    smallest_node: Option<(u32, u32)>,
    /// Nodes came or went, or are no longer waited for.
    nodes_changed: bool,
    /// Queued jobs that the policy has not been told of.
    undecided: BTreeSet<JobId>,
    /// See [`Head::considered`].
    considered: u64,
    transfers: BTreeMap<ContentHash, Transfer>,
    /// By the job whose peers are asked for; none: of all nodes.
    gatherings: BTreeMap<Option<JobId>, SampleRequest>,
    requests: u64,
    lease_due: Nanos,
    /// Just started: until when nodes that attach are waited for, and clients that may come back.
    starting: Option<Nanos>,
    /// When the first of the jobs whose ranks were asked to end has had its time.
    ends_due: Option<Nanos>,
    /// Shutting down: who asked, and when to stop waiting for the daemons.
    shutdown: Option<Shutdown>,
    messages: u64,
    actions: VecDeque<HeadAction>,
}

struct Shutdown {
    clients: Vec<ClientId>,
    deadline: Nanos,
    done: bool,
}

impl core::fmt::Debug for Head {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Head")
            .field("config", &self.config)
            .field("jobs", &self.jobs)
            .field("nodes", &self.nodes)
            .field("timetable", &self.timetable)
            .finish_non_exhaustive()
    }
}

impl Head {
    /// A head that knows these jobs from its durable table (none for a new cluster). `seed` comes
    /// from the operating system's random numbers; the keys of channels are drawn from it.
    ///
    /// # Errors
    /// No scheduling policy is called that, or it is none for a cluster.
    pub fn new(
        config: HeadConfig,
        records: Vec<JobRecord>,
        seed: [u8; 32],
    ) -> Result<Self, PolicyError> {
        let policy = policy::by_name(&config.policy, policy::limits(&config))?;
        let timetable = Timetable {
            generation: 0,
            start: ClusterTime(0),
            slice_ns: config.slice_ns.max(1),
            phase_ns: 0,
            mode: config.mode,
            columns: Vec::new(),
            idle: Vec::new(),
        };
        let nodes = config.nodes.iter().map(|_| Node::default()).collect();
        let mut head = Self {
            config,
            seed,
            now: 0,
            clock: StallTolerantClock::new(0, WATCH),
            wall_ms: 0,
            started: None,
            jobs: BTreeMap::new(),
            ended: VecDeque::new(),
            ended_bytes: 0,
            held: quota::Usage::default(),
            held_by_user: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next_job: 1,
            nodes,
            away: BTreeMap::new(),
            links: BTreeSet::new(),
            routes: Routes::default(),
            policy,
            timetable,
            timetable_stale: true,
            passed: 0,
            smallest_node: None,
            nodes_changed: false,
            undecided: BTreeSet::new(),
            considered: 0,
            transfers: BTreeMap::new(),
            gatherings: BTreeMap::new(),
            requests: 0,
            lease_due: 0,
            starting: None,
            ends_due: None,
            shutdown: None,
            messages: 0,
            actions: VecDeque::new(),
        };
        head.restore(records);
        Ok(head)
    }

    /// Takes an event that happened at `now` (on the machine's monotonic clock, which is the
    /// cluster's) and `wall_ms` (since the epoch). Drain [`Head::poll_action`] after each.
    pub fn handle(&mut self, now: Nanos, wall_ms: u64, event: HeadEvent) {
        self.now = now;
        self.clock.advance(now);
        self.wall_ms = wall_ms;
        if self.started.is_none() {
            self.started = Some((now, wall_ms));
            self.starting = Some(now.saturating_add(self.restart_grace()));
            self.adopt();
            self.await_restored_nodes();
        }
        match event {
            HeadEvent::ChildUp(link) => {
                self.links.insert(link);
            }
            HeadEvent::ChildDown(link) => self.child_down(link),
            HeadEvent::Child(link, Up::Report(report)) => self.child_report(link, report),
            HeadEvent::Child(_, Up::ClockProbe { .. } | Up::Disclosed(_)) | HeadEvent::Timeout => {}
            HeadEvent::Client(client, user, request) => self.client(client, &user, request),
            HeadEvent::ClientGone(client) => self.client_gone(client),
            HeadEvent::Spooled { job, end } => self.spooled(job, end),
            HeadEvent::SpoolFailed { job, reason } => self.spool_failed(job, &reason),
        }
        self.check_lost_nodes();
        self.check_ends();
        self.check_transfers();
        self.check_gathering();
        self.schedule();
        self.publish_if_stale();
        self.renew_leases();
        self.check_shutdown();
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<HeadAction> {
        self.actions.pop_front()
    }

    /// When to hand in [`HeadEvent::Timeout`] at the latest; at once after the start.
    pub fn next_timeout(&self) -> Option<Nanos> {
        if self.started.is_none() {
            return Some(0);
        }
        let due =
            |away: nodes::AbsenceDeadline| self.clock.next_advance(away.watched).min(away.latest);
        let lost = self.away.values().copied().map(due).min();
        let lease = (!self.links.is_empty()).then_some(self.lease_due);
        let transfer = self.transfers.values().filter_map(Transfer::deadline).min();
        let gathering = self.gatherings.values().map(SampleRequest::deadline).min();
        let shutdown = self.shutdown.as_ref().filter(|s| !s.done).map(|s| s.deadline);
        let times = [lost, lease, transfer, self.starting, gathering, shutdown, self.ends_due];
        times.into_iter().flatten().min()
    }

    /// The jobs that are known: all that are not over, and the last that are.
    pub fn records(&self) -> impl Iterator<Item = &JobRecord> + '_ {
        self.jobs.values().map(|job| &job.record)
    }

    /// How many jobs and nodes were looked at so far to find out how many nodes jobs want. A
    /// submission adds one, whatever else waits; a node that comes or goes one for each node and for
    /// each job that waits.
    pub fn considered(&self) -> u64 {
        self.considered
    }

    /// The timetable in force.
    pub fn timetable(&self) -> &Timetable {
        &self.timetable
    }

    /// Whether a node is attached.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.routes.link(node).is_some()
    }

    fn push(&mut self, action: HeadAction) {
        self.actions.push_back(action);
    }

    /// Sends a command to those of the nodes that are attached.
    fn send(&mut self, nodes: &NodeSet, command: &Command) {
        for (link, below) in self.routes.by_link(nodes) {
            self.send_on(link, below, command.clone());
        }
    }

    fn send_on(&mut self, link: LinkId, nodes: NodeSet, command: Command) {
        self.messages += 1;
        self.push(HeadAction::ToChild(link, nodes, command));
    }

    fn reply(&mut self, client: ClientId, reply: ClientReply) {
        self.push(HeadAction::ToClient(client, reply));
    }

    /// How long nodes have to attach again after a restart of the head: those that do not hear of
    /// it in time have stopped their jobs by then.
    fn restart_grace(&self) -> Nanos {
        self.config.lease_ns.saturating_add(self.config.detach_grace_ns)
    }
}
