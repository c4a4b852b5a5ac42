//! Head of a cluster, as a pure state machine.
//!
//! [`Head`] only routes events and collects actions. The state has owners, each in its file:
//!
//! | file | owns |
//! |---|---|
//! | `membership` | nodes, links, leases, and who is away |
//! | `job_table`, `job` | the jobs, and what is left of each on its nodes |
//! | `scheduler` | the policy, and so which job runs next and where |
//! | `timetable` | the timetable in force |
//! | `transfers` | programs on their way from clients to nodes |
//! | `subscribers` | clients that wait for news of jobs |
//! | `sampling`, `shared_samples` | requests for samples, and the last of all nodes |
//! | `idle` | jobs that have nothing to do |
//! | `lost_parts` | what may still run on nodes that are lost |
//! | `exchanges` | what the nodes of a job tell each other |
//! | `output` | how far the output of jobs has come |
//! | `waiting` | when waiting jobs are withdrawn, and what their followers know |
//! | `held` | jobs that may not start before others are over |
//! | `quota` | memory kept for each user |
//! | `revocations` | certificates that are revoked |
//! | `time`, `keys`, `shutdown`, `actions` | clocks, keys of jobs, the shutdown, what is to be done |
//!
//! `listing`, `paging` and `privacy` decide what each user sees of the jobs, `taken` says what these have of the nodes, `channels` which
//! nodes have a job's channels, `usage` what jobs have used.
//!
//! Events that concern several owners are in `requests` (of clients), `reports` (of daemons),
//! `reconciliation` (nodes that come and go), `submission`, `lifecycle`, `preparation` and `ending` (of jobs).
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
//! when a node stays away longer than the grace; the job stays `Ending` until that node's lease is over, because until
//! then its ranks may run there. After a restart of the head every node attaches
//! again, so its jobs are reconciled the same way, with a longer grace for the nodes to come.
//!
//! *Idle jobs.* A running job that has nothing to do on any of its nodes is idle: it keeps its nodes
//! and has no slot. Nodes say so and say when that ends; of a node that is away or attaches again nothing
//! is known until it says it again, and meanwhile its jobs take their turns. A job that has come back is interactive for a
//! while, and rounds are short then.
//!
//! *Clients.* A job belongs to the cluster, not to the client that submitted it: when that goes
//! away the job runs on, and can be followed and killed by others of the same user. The exception
//! is a program that only the client can supply.

mod actions;
mod admission;
mod capacity;
mod channels;
mod conditions;
mod configured;
mod deadlines;
mod drains;
mod ending;
mod exchanges;
mod held;
mod idle;
mod job;
mod job_table;
mod keys;
mod lifecycle;
mod listing;
mod lost_parts;
mod membership;
mod node_numbers;
mod output;
mod paging;
mod placed;
mod policy;
mod preparation;
mod privacy;
mod quota;
mod reconciliation;
mod reports;
mod requests;
mod restarting;
mod revocations;
mod sampling;
mod scheduler;
mod shared_samples;
mod shares;
mod shutdown;
mod sizing;
mod starts;
mod submission;
mod subscribers;
mod taken;
mod time;
mod timetable;
mod traces;
mod transfers;
mod usage;
mod verdicts;
mod waiting;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::{JobId, Mode, NodeId, SliceLength, Timetable};

use crate::message::{
    ClientReply, ClientRequest, Command, Drain, JobRecord, Nanos, NodeSet, Outcome, Refusal,
    RefusalKind, Resources, Revocation, Stream, Up, User, WaitLimit,
};
use crate::shares::ShareConfig;
use crate::subtree::columns_of;
pub use crate::tree::LinkId;

use actions::ActionQueue;
pub use capacity::MOST_DEVICE_NAMES;
use deadlines::Deadlines;
use exchanges::Exchanges;
use held::HeldJobs;
use idle::IdleJobs;
use job_table::JobTable;
pub use job_table::Retention;
use keys::KeyGenerator;
use lost_parts::LostParts;
use membership::Membership;
use output::OutputPositions;
pub use policy::{PolicyError, check_policy};
pub use privacy::ShowOthers;
use quota::Quota;
use revocations::Revocations;
use sampling::SampleRequests;
use scheduler::Scheduler;
use shared_samples::SharedSamples;
use shutdown::Shutdown;
use subscribers::Subscribers;
pub use taken::ClusterUse;
use time::HeadTime;
use timetable::{Concerned, TimetablePublisher};
use transfers::ProgramTransfers;
use verdicts::Verdicts;
use waiting::WaitingJobs;

/// Configuration of a head.
#[derive(Clone, Debug)]
pub struct HeadConfig {
    /// Name of the cluster, for people.
    pub cluster_name: String,
    /// Names of all nodes; a node's number is its place.
    pub nodes: Vec<String>,
    /// How processors are shared at first.
    pub mode: Mode,
    /// Length of a slice at first.
    pub slice: SliceLength,
    /// Name of the scheduling policy at first, see [`kumi_sched::registry`].
    pub policy: String,
    /// Most jobs on one processor at once, where they share time.
    pub max_jobs_per_processor: u32,
    /// Most jobs that are not over of a user other than the owner and root.
    pub max_jobs_per_user: u32,
    /// The highest priority that jobs of others than the owner and root may have.
    pub max_priority: u16,
    /// The priority of jobs that ask for none.
    pub priority: u16,
    /// The estimate of jobs that give none, in nanoseconds.
    pub estimate_ns: Option<u64>,
    /// How long jobs may run that do not say it, in nanoseconds.
    pub time_limit_ns: Option<u64>,
    /// How long jobs may wait in the queue that do not say it.
    pub wait: WaitLimit,
    /// The owner of the cluster, beside root.
    pub owner_uid: u32,
    /// Whether jobs of root run.
    pub root_jobs: bool,
    /// What users see of the jobs of others.
    pub show_others: ShowOthers,
    /// How long a node runs jobs without hearing from the head, in nanoseconds.
    pub lease_ns: Nanos,
    /// How long a node may be away before its jobs fail, in nanoseconds.
    pub detach_grace_ns: Nanos,
    /// Whether packets are encrypted if the job does not choose.
    pub encrypt: bool,
    /// Environment variables of jobs that do not set them.
    pub env: Vec<(String, String)>,
    /// What ranks of jobs take that do not say it.
    pub resources: Resources,
    /// Which ended jobs are kept.
    pub retention: Retention,
    /// Certificates that are revoked already.
    pub revoked: Vec<Revocation>,
    /// Nodes that are drained already.
    pub drains: Vec<Drain>,
    /// Nodes that were removed. Their numbers are not given again.
    pub removed: Vec<NodeId>,
    /// How the shares of users are reckoned, if they have any.
    pub shares: Option<ShareConfig>,
}

/// A client's connection; given by the driver, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Event at the head.
#[derive(Clone, Debug)]
pub enum HeadEvent {
    /// A daemon connected.
    ChildUp(LinkId),
    /// A daemon's link is gone.
    ChildDown(LinkId),
    /// A message of a daemon. The driver handles `Up::ClockProbe` and `Up::Disclosed`; the head ignores them.
    Child(LinkId, Up),
    /// A request of a client, as this user.
    Client(ClientId, User, ClientRequest),
    /// A client's connection is gone.
    ClientGone(ClientId),
    /// The spool has taken what was handed in of this job, and takes more.
    Spooled {
        /// The job.
        job: JobId,
    },
    /// Of the output that this head has handed in, so much is not kept now. The job goes on.
    NotKept {
        /// The job.
        job: JobId,
        /// How much. It is less than before when a disk has room again.
        bytes: u64,
        /// Why, for people.
        reason: String,
    },
    /// The configuration has other nodes: the answer to [`HeadAction::AddNode`] and [`HeadAction::RemoveNode`].
    Nodes {
        /// Names of all nodes, by number. There are never fewer than before.
        names: Vec<String>,
        /// Those that were removed.
        removed: Vec<NodeId>,
    },
    /// The time of [`Head::next_timeout`] has come. The event does no harm at any other time.
    Timeout,
}

/// Action that the driver of the head must carry out, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum HeadAction {
    /// Must be durable before any later action is carried out. Replaces the job's earlier record.
    Persist(Box<JobRecord>),
    /// Send to a child: for these nodes of its subtree.
    ToChild(LinkId, NodeSet, Command),
    /// Send to a client.
    ToClient(ClientId, ClientReply),
    /// Send the same to several clients. It is encoded once.
    ToClients(Vec<ClientId>, ClientReply),
    /// Append to the job's spool, and answer with [`HeadEvent::Spooled`] as soon as it may take more. Say
    /// [`HeadEvent::NotKept`] when what is not kept changes.
    Spool {
        /// The job.
        job: JobId,
        /// Which rank wrote it.
        rank: u32,
        /// Where to.
        stream: Stream,
        /// Where the bytes begin in the stream. Those between the last ones and these are lost.
        at: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Send the job's spool to the client from `offset` on; with `wait` also what comes later,
    /// until [`HeadAction::EndSpool`], otherwise finish with `Ended` or `Done` at its end.
    Follow {
        /// The receiver.
        client: ClientId,
        /// The job.
        job: JobId,
        /// First byte of the spool to send.
        offset: u64,
        /// Whether to wait for more.
        wait: bool,
        /// Whether the job waits for this follower when it is far behind.
        paces: bool,
    },
    /// The job will be started again, this often with that time. Its spool gets a mark with the reason. What comes behind it
    /// begins at the start of each stream.
    MarkRestart {
        /// The job.
        job: JobId,
        /// How often.
        restarts: u32,
        /// Why, for people.
        reason: String,
    },
    /// No more output of the job will come: finish its followers with `Ended` once they have it
    /// all. Comes again, behind `Follow`, for a job that was over before.
    EndSpool {
        /// The job.
        job: JobId,
        /// How it ended.
        outcome: Outcome,
        /// Bytes of its output that are not kept.
        not_kept: u64,
    },
    /// The ended job is not known any more: its record and its spool are to be removed. If that is missed, the next head says
    /// it again.
    Discard(JobId),
    /// Certificates are revoked: durable before any later action, and their links are to be cut.
    Revoke {
        /// Whose certificates and tokens count no more, as of now.
        node: NodeId,
        /// All revocations that there are, this one with them.
        list: Vec<Revocation>,
    },
    /// All nodes that are drained, in place of those of before: durable before any later action. Then answer the client with
    /// `Done`, or with a refusal if the list cannot be kept. It is in force either way, until the head ends.
    KeepDrains {
        /// Who changed it; none if a node did.
        client: Option<ClientId>,
        /// The nodes.
        drains: Vec<Drain>,
    },
    /// Add a node to the configuration. Then hand in [`HeadEvent::Nodes`], and answer the client with `NodeAdded`; or refuse,
    /// and leave all as it was.
    AddNode {
        /// Who asked.
        client: ClientId,
        /// The node, in TOML. Nothing in it has been checked.
        definition: String,
    },
    /// Remove a node from the configuration. Then hand in [`HeadEvent::Nodes`], and answer the client with `Done`; or refuse.
    RemoveNode {
        /// Who asked.
        client: ClientId,
        /// The node.
        node: NodeId,
    },
    /// All jobs are freed and recorded, the daemons are told to stop: send what is queued, stop.
    Shutdown,
    /// Make a token with which a machine becomes a node, keep its hash, and answer the client with `JoinToken`; or refuse.
    IssueToken {
        /// Who asked.
        client: ClientId,
        /// The node.
        node: NodeId,
        /// For how long it counts, in milliseconds.
        valid_ms: u64,
    },
}

/// How processors are shared, which a client may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorSharing {
    /// The mode.
    pub mode: Mode,
    /// How long slices are to be.
    pub slice: SliceLength,
    /// Name of the policy.
    pub policy: String,
}

/// The state machine of a cluster's head: hands each event to the owners of its state, and collects
/// what there is to do.
pub struct Head {
    config: HeadConfig,
    time: HeadTime,
    membership: Membership,
    jobs: JobTable,
    scheduler: Scheduler,
    timetable: TimetablePublisher,
    transfers: ProgramTransfers,
    subscribers: Subscribers,
    samples: SampleRequests,
    shared_samples: SharedSamples,
    idle: IdleJobs,
    lost_parts: LostParts,
    verdicts: Verdicts,
    exchanges: Exchanges,
    output: OutputPositions,
    waiting: WaitingJobs,
    held: HeldJobs,
    /// When running jobs have run for as long as they may.
    run_limits: Deadlines,
    quota: Quota,
    keys: KeyGenerator,
    revocations: Revocations,
    shutdown: Option<Shutdown>,
    actions: ActionQueue,
}

impl core::fmt::Debug for Head {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Head")
            .field("config", &self.config)
            .field("jobs", &self.jobs)
            .field("membership", &self.membership)
            .field("timetable", &self.timetable)
            .finish_non_exhaustive()
    }
}

impl Head {
    /// A head that knows these jobs from its durable table (none for a new cluster). `seed` comes
    /// from the operating system's random numbers; the keys of jobs are derived from it.
    ///
    /// # Errors
    /// No scheduling policy is called that, or clusters cannot use it.
    pub fn new(
        config: HeadConfig,
        records: Vec<JobRecord>,
        seed: [u8; 32],
    ) -> Result<Self, PolicyError> {
        let keys = KeyGenerator::new(seed);
        let mut head = Self {
            time: HeadTime::new(),
            membership: Membership::new(&config),
            jobs: JobTable::new(config.nodes.len(), config.retention),
            scheduler: Scheduler::new(&config)?,
            timetable: TimetablePublisher::new(&config, keys.head_number()),
            transfers: ProgramTransfers::default(),
            subscribers: Subscribers::default(),
            samples: SampleRequests::default(),
            shared_samples: SharedSamples::default(),
            idle: IdleJobs::default(),
            lost_parts: LostParts::default(),
            verdicts: Verdicts::default(),
            exchanges: Exchanges::default(),
            output: OutputPositions::default(),
            waiting: WaitingJobs::default(),
            held: HeldJobs::default(),
            run_limits: Deadlines::default(),
            quota: Quota::new(config.max_jobs_per_user),
            keys,
            revocations: Revocations::new(&config.revoked),
            shutdown: None,
            actions: ActionQueue::default(),
            config,
        };
        head.restore(records);
        Ok(head)
    }

    /// Takes an event that happened at `now` (on the machine's monotonic clock, which is the
    /// cluster's) and `wall_ms` (since the epoch). Drain [`Head::poll_action`] after each.
    pub fn handle(&mut self, now: Nanos, wall_ms: u64, event: HeadEvent) {
        self.time.advance(now, wall_ms);
        if self.time.start(self.membership.restart_grace()) {
            self.credit_past_shares();
            self.renew_policy();
            self.await_restored_nodes();
            self.limit_restored_waits();
            self.restore_end_requests();
            self.limit_restored_runs();
        }
        match event {
            HeadEvent::ChildUp(link) => self.membership.tree_mut().add_link(link),
            HeadEvent::ChildDown(link) => self.child_down(link),
            HeadEvent::Child(link, Up::Report(report)) => self.child_report(link, report),
            HeadEvent::Child(_, Up::ClockProbe { .. } | Up::Disclosed(_)) | HeadEvent::Timeout => {}
            HeadEvent::Client(client, user, request) => self.request(client, &user, request),
            HeadEvent::ClientGone(client) => self.client_gone(client),
            HeadEvent::Spooled { job } => self.spooled(job),
            HeadEvent::Nodes { names, removed } => self.nodes_configured(names, &removed),
            HeadEvent::NotKept { job, bytes, reason } => self.not_kept(job, bytes, &reason),
        }
        self.check_lost_nodes();
        self.check_lost_parts();
        self.check_delayed_ends();
        self.check_deadlocks();
        self.check_transfers();
        self.check_samples();
        self.check_run_limits();
        self.place_and_withdraw();
        self.tell_reasons();
        self.check_interactive();
        self.publish_timetable();
        self.renew_leases();
        self.acknowledge_output();
        self.discard_old();
        self.check_shutdown();
        self.time.set_watched(self.membership.tree().has_links());
    }

    /// Places what can be placed, and then withdraws what has waited for too long. Either may end jobs on which others depend.
    fn place_and_withdraw(&mut self) {
        loop {
            self.settle_held();
            self.schedule();
            self.check_wait_limits();
            if !self.held.has_news() {
                return;
            }
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<HeadAction> {
        self.actions.pop()
    }

    /// When to hand in [`HeadEvent::Timeout`] at the latest; at once after the start.
    pub fn next_timeout(&self) -> Option<Nanos> {
        if !self.time.has_started() {
            return Some(0);
        }
        let times = [
            self.membership.next_deadline(&self.time),
            self.transfers.next_deadline(&self.time),
            self.time.starting_until(),
            self.samples.next_deadline(),
            self.shutdown.as_ref().and_then(Shutdown::deadline),
            self.jobs.end_due(),
            self.waiting.next_deadline(),
            self.run_limits.first(),
            self.idle.next_deadline(),
            self.verdicts.next_deadline(),
            self.output.next_deadline(),
            self.next_discard(),
            self.time.next_look(),
            self.lost_parts.next_end(),
            self.timetable.next_deadline(),
            self.scheduler.next_order(),
        ];
        times.into_iter().flatten().min()
    }

    /// The jobs that are known: all that are not over, and the last that are.
    pub fn records(&self) -> impl Iterator<Item = &JobRecord> + '_ {
        self.jobs.records()
    }

    /// The timetable in force.
    pub fn timetable(&self) -> &Timetable {
        self.timetable.published()
    }

    /// How processors are shared.
    pub fn sharing(&self) -> ProcessorSharing {
        ProcessorSharing {
            mode: self.timetable.mode(),
            slice: self.timetable.slice(),
            policy: self.scheduler.name().into(),
        }
    }

    /// Whether a node is attached.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.membership.is_attached(node)
    }

    fn owns_cluster(&self, user: &User) -> bool {
        user.uid == 0 || user.uid == self.config.owner_uid
    }

    /// Sends a command to those of the nodes that are attached.
    fn send(&mut self, nodes: &NodeSet, command: &Command) {
        self.actions.send(self.membership.tree().routes(), nodes, command);
    }

    /// Sends a new timetable to the nodes that it concerns, unless it says what the last one says.
    fn publish_timetable(&mut self) {
        if !self.timetable.take_stale(self.time.now()) {
            return;
        }
        let idle = self.idle.running(&self.jobs);
        let interactive = self.idle.is_any_interactive();
        let (time, scheduler) = (&self.time, &mut self.scheduler);
        let Some(concerned) = self.timetable.renew(time, scheduler, idle, interactive) else {
            return;
        };
        let nodes = match concerned {
            Concerned::All => self.membership.attached(),
            Concerned::Columns { nodes, idle } => {
                let of_jobs = idle.into_iter().flat_map(|job| self.jobs.layout(job));
                NodeSet::from_nodes(nodes.into_iter().chain(of_jobs.map(|part| part.node)))
            }
        };
        for (link, below) in self.membership.tree().routes().by_link(&nodes) {
            self.send_timetable(link, below);
        }
    }

    /// Sends nodes below `link` their part of the timetable in force.
    fn send_timetable(&mut self, link: LinkId, nodes: NodeSet) {
        let timetable = self.timetable.published();
        if timetable.generation > 0 {
            let mut part = columns_of(timetable, &nodes);
            part.idle = self.jobs.among(&timetable.idle, &nodes);
            self.actions.send_on(link, nodes, Command::Timetable(part));
        }
    }
}

fn refusal(kind: RefusalKind, message: String) -> Refusal {
    Refusal { kind, message }
}
