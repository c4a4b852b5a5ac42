//! Agent of a node's daemon, as a pure state machine.
//!
//! An agent has a parent (another agent, or the head), perhaps children, and the jobs of its own
//! node. Commands go down: it keeps what is for its node and passes on the rest, one copy for each
//! child. Reports go up, combined where waiting costs nothing.
//!
//! Links break, and the other end may never have got what was sent last. Therefore an agent keeps
//! what the head must not miss (answers to `Prepare`, the first failing rank, what was freed) until
//! the head says `Forget`, and repeats it after each attachment. Output of its own ranks is kept until the
//! head has acknowledged it, and sent again when the head asks. That a job is idle somewhere is kept
//! as long as it is, and repeated likewise.

mod adoption;
mod commands;
mod conditions;
mod exchanges;
mod local_jobs;
mod output;
mod reports;
mod retained_reports;
mod samples;
mod standings;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::{ClusterTime, JobId, NodeId, Timetable};
use kumi_verdict::Standing;

use crate::lease::Lease;
use crate::message::{
    Command, ContentHash, Contribution, Down, ExchangeId, Hop, JobSpec, Nanos, NodeCondition,
    NodeDescription, NodeSample, NodeSet, PartUse, PreparedRanks, RankAddress, RankStatus, Refusal,
    Report, Revocation, Stream, Up, WindowSize,
};
use crate::subtree::Subtree;
pub use crate::tree::LinkId;
pub use adoption::{AdoptedJob, AdoptedOutput};

use conditions::Conditions;
use exchanges::Exchanges;
use local_jobs::LocalJobs;
use output::OutputWindows;
use retained_reports::RetainedReports;
use samples::SampleRequests;
use standings::Standings;

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Its node. The lists of jobs and hops are ignored: a new daemon has none.
    pub description: NodeDescription,
}

/// Event at a daemon.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "events are handled one by one, never stored")]
pub enum AgentEvent {
    /// The link to a parent is there: the configured one, or an ancestor of it, or the head.
    ParentUp,
    /// The link to the parent is gone.
    ParentDown,
    /// A message of the parent. The driver handles `Down::Clock` and `Down::Disclosed`; the agent ignores them.
    Parent(Down),
    /// A child connected.
    ChildUp(LinkId),
    /// A child's link is gone.
    ChildDown(LinkId),
    /// A message of a child. The driver handles `Up::ClockProbe` and `Up::Disclosed`; the agent ignores them.
    Child(LinkId, Up),
    /// Outcome of [`AgentAction::Prepare`].
    Prepared {
        /// The job.
        job: JobId,
        /// Sockets of the ranks, or the reason for a refusal.
        result: Result<PreparedRanks, Refusal>,
    },
    /// `Prepare` found that the node lacks the program. It stays pending until the program is
    /// there, or [`AgentAction::ProgramMissing`] or [`AgentAction::Kill`] comes.
    ProgramNeeded {
        /// The job.
        job: JobId,
        /// The program.
        hash: ContentHash,
    },
    /// Outcome of [`AgentAction::Start`].
    Started {
        /// The job.
        job: JobId,
        /// Whether its ranks run.
        result: Result<(), Refusal>,
    },
    /// A rank wrote something.
    Output {
        /// The job.
        job: JobId,
        /// The rank.
        rank: u32,
        /// Where to.
        stream: Stream,
        /// The bytes.
        data: Vec<u8>,
    },
    /// A rank ended.
    RankExited {
        /// The job.
        job: JobId,
        /// The rank.
        rank: u32,
        /// How.
        status: RankStatus,
    },
    /// Nothing of the job is left: all ranks exited, all output was handed in.
    Freed {
        /// The job.
        job: JobId,
    },
    /// Outcome of [`AgentAction::Sample`], [`AgentAction::SamplePeers`], [`AgentAction::SampleChannels`] and
    /// [`AgentAction::SampleTrace`].
    Sampled {
        /// As asked.
        request: u64,
        /// The measurements.
        sample: NodeSample,
    },
    /// The time of [`Agent::next_timeout`] has come. The event does no harm at any other time.
    Timeout,
    /// A started job has had nothing to do here for a while, or has something to do again.
    Idle {
        /// The job.
        job: JobId,
        /// Nothing to do.
        idle: bool,
    },
    /// How the ranks of a started job stand here, by [`kumi_verdict::NodeWatch`].
    Standing {
        /// The job.
        job: JobId,
        /// What is to be told.
        standing: Standing,
    },
    /// This node's part of a job contributes to an exchange.
    Exchange {
        /// Which.
        id: ExchangeId,
        /// All nodes that take part.
        members: NodeSet,
        /// What it contributes.
        data: Vec<u8>,
    },
    /// The same of a job that a former daemon started, which may have said it already.
    ExchangeAgain {
        /// Which.
        id: ExchangeId,
        /// All nodes that take part.
        members: NodeSet,
        /// What this node contributes.
        data: Vec<u8>,
        /// Whether it still waits for the whole. Others may.
        awaited: bool,
    },
    /// This node's part of a job has a message for another node of the job.
    Relay {
        /// The job.
        job: JobId,
        /// The other node.
        to: NodeId,
        /// The message.
        data: Vec<u8>,
    },
    /// What a job has used here since its start. Said now and then, and at last before [`AgentEvent::Freed`].
    Used {
        /// The job.
        job: JobId,
        /// All of it.
        used: PartUse,
    },
    /// The node is in order, or is not.
    Condition(NodeCondition),
}

/// Action that a daemon must carry out, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentAction {
    /// Send to the parent.
    ToParent(Report),
    /// Send to a child: for these nodes of its subtree.
    ToChild(LinkId, NodeSet, Command),
    /// Make cgroup, segment, sockets and stopped ranks; ends in [`AgentEvent::Prepared`], perhaps
    /// after [`AgentEvent::ProgramNeeded`].
    Prepare(Box<JobSpec>),
    /// Let the ranks of a prepared job go; ends in [`AgentEvent::Started`].
    Start {
        /// The job.
        job: JobId,
        /// By rank.
        addresses: Vec<RankAddress>,
        /// Largest UDP payload between any two nodes of the job, in bytes.
        max_datagram: u16,
    },
    /// A chunk of a program. Offset 0 begins anew whatever was there; check the hash at the end.
    StoreProgram {
        /// Which program.
        hash: ContentHash,
        /// Where the chunk belongs.
        offset: u64,
        /// Size of the whole.
        total: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Nobody can supply the program: refuse the jobs that wait for it.
    ProgramMissing(ContentHash),
    /// Send a signal to all ranks of the job.
    Signal {
        /// The job.
        job: JobId,
        /// Its number.
        signal: u8,
    },
    /// Standard input of rank 0; empty closes it.
    Input {
        /// The job.
        job: JobId,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Set the size of the job's terminal, and have its foreground draw anew if asked.
    Resize {
        /// The job.
        job: JobId,
        /// The size.
        size: WindowSize,
        /// Even if this is the size that it has.
        redraw: bool,
    },
    /// Kill and free whatever there is of the job; always ends in [`AgentEvent::Freed`], also for a
    /// job the driver does not know.
    Kill {
        /// The job.
        job: JobId,
    },
    /// Switch by this timetable from its start on. It has only this node's column, or none.
    Apply(Timetable),
    /// Measure; ends in [`AgentEvent::Sampled`].
    Sample {
        /// Number that comes back with the sample.
        request: u64,
    },
    /// The lease has run out. This is for the log; `Kill` for every job follows.
    LeaseExpired,
    /// All jobs are freed and reported: stop the daemon.
    Shutdown,
    /// Measure the ranks of a job with their peers; ends in [`AgentEvent::Sampled`].
    SamplePeers {
        /// Number that comes back with the sample.
        request: u64,
        /// The job.
        job: JobId,
    },
    /// These certificates are revoked: keep the list, and cut their links.
    Revoke(Vec<Revocation>),
    /// Look at the channels of a job's ranks here; ends in [`AgentEvent::Sampled`].
    SampleChannels {
        /// Number that comes back with the sample.
        request: u64,
        /// The job.
        job: JobId,
        /// The rank; all if none is given.
        rank: Option<u32>,
    },
    /// Measure the load of all ranks here, with the last slices if they are wanted; ends in [`AgentEvent::Sampled`].
    SampleLoad {
        /// Number that comes back with the sample.
        request: u64,
        /// Whether slices are wanted.
        slices: bool,
    },
    /// Look at the trace of a rank here, from an event of this number on; ends in [`AgentEvent::Sampled`].
    SampleTrace {
        /// Number that comes back with the sample.
        request: u64,
        /// The job, which may be over.
        job: JobId,
        /// The rank.
        rank: u32,
        /// Number of the first event.
        from: u64,
    },
    /// An exchange to which this node contributed is over.
    Exchanged {
        /// Which.
        id: ExchangeId,
        /// A contribution of each node, ascending.
        parts: Vec<Contribution>,
    },
    /// A message of another node of the job.
    Relayed {
        /// The job.
        job: JobId,
        /// The other node.
        from: NodeId,
        /// The message.
        data: Vec<u8>,
    },
    /// Read the ranks of a job again, for this round of [`kumi_verdict::Judge`].
    Confirm {
        /// The job.
        job: JobId,
        /// The round.
        round: u64,
    },
}

/// The state machine of a node's daemon.
#[derive(Debug)]
pub struct Agent {
    description: NodeDescription,
    parent_up: bool,
    /// How often it has attached.
    attachments: u64,
    subtree: Subtree,
    jobs: LocalJobs,
    reports: RetainedReports,
    output: OutputWindows,
    samples: SampleRequests,
    standings: Standings,
    exchanges: Exchanges,
    conditions: Conditions,
    lease: Lease,
    /// The cluster's clock minus that of the events, as the driver said last.
    clock_offset: i64,
    generation: u64,
    /// When the last event happened.
    now: Nanos,
    /// Shutting down: when to stop waiting for the children to go.
    stopping: Option<Nanos>,
    stopped: bool,
    actions: VecDeque<AgentAction>,
}

/// How long a stopping daemon waits for its children to stop before it does.
const CHILDREN_GRACE: Nanos = 2_000_000_000;

impl Agent {
    /// A daemon that has just started.
    pub fn new(config: AgentConfig) -> Self {
        let mut description = config.description;
        description.jobs.clear();
        description.path.clear();
        Self {
            description,
            parent_up: false,
            attachments: 0,
            subtree: Subtree::default(),
            jobs: LocalJobs::default(),
            reports: RetainedReports::default(),
            output: OutputWindows::default(),
            samples: SampleRequests::default(),
            standings: Standings::default(),
            exchanges: Exchanges::default(),
            conditions: Conditions::default(),
            lease: Lease::new(),
            clock_offset: 0,
            generation: 0,
            now: 0,
            stopping: None,
            stopped: false,
            actions: VecDeque::new(),
        }
    }

    /// Takes an event that happened at `now`, on a clock that also counts time in which the machine slept. Drain [`Agent::poll_action`] after each.
    pub fn handle(&mut self, now: Nanos, event: AgentEvent) {
        // A lease that is over is not renewed by a grant that waited while the machine slept.
        self.check_lease(now);
        self.now = now;
        match event {
            AgentEvent::ParentUp => self.parent_up(),
            AgentEvent::ParentDown => self.parent_up = false,
            AgentEvent::Parent(Down::Command(nodes, command)) => {
                self.command(now, &nodes, command);
            }
            AgentEvent::ChildUp(link) => self.subtree.add_link(link),
            AgentEvent::ChildDown(link) => self.child_down(link),
            AgentEvent::Child(link, Up::Report(report)) => self.child_report(link, report),
            AgentEvent::Parent(Down::Clock { .. } | Down::Disclosed(_))
            | AgentEvent::Child(_, Up::ClockProbe { .. } | Up::Disclosed(_))
            | AgentEvent::Timeout => {}
            AgentEvent::Prepared { job, result } => self.prepared(job, result),
            AgentEvent::ProgramNeeded { job, hash } => self.program_needed(job, hash),
            AgentEvent::Started { job, result } => self.started(job, result),
            AgentEvent::Output { job, rank, stream, data } => self.output(job, rank, stream, data),
            AgentEvent::RankExited { job, rank, status } => self.rank_exited(job, rank, status),
            AgentEvent::Freed { job } => self.freed(job),
            AgentEvent::Sampled { request, sample } => self.sampled(request, sample),
            AgentEvent::Idle { job, idle } => self.idle(job, idle),
            AgentEvent::Standing { job, standing } => self.standing(job, standing),
            AgentEvent::Exchange { id, members, data } => self.contribute(id, members, data),
            AgentEvent::ExchangeAgain { id, members, data, awaited } => {
                self.contribute_again(id, members, data, awaited);
            }
            AgentEvent::Relay { job, to, data } => self.relay(job, to, data),
            AgentEvent::Used { job, used } => self.used(job, used),
            AgentEvent::Condition(condition) => self.condition(condition),
        }
        self.check_lease(now);
        while let Some(report) = self.samples.take_due(now) {
            self.report(report);
        }
        self.check_stop(now);
    }

    /// The cluster's clock shows `cluster` at `now`. To be said before an event that may be a lease.
    pub fn set_cluster_time(&mut self, now: Nanos, cluster: ClusterTime) {
        self.clock_offset = cluster.0.wrapping_sub(now).cast_signed();
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<AgentAction> {
        self.actions.pop_front()
    }

    /// When to hand in [`AgentEvent::Timeout`] at the latest.
    pub fn next_timeout(&self) -> Option<Nanos> {
        let lease = self.lease.until().filter(|_| self.jobs.any_running());
        let samples = self.samples.next_deadline();
        // From then on it waits for events only.
        let stop = self.stopping.filter(|&deadline| !self.stopped && self.now < deadline);
        [lease, samples, stop].into_iter().flatten().min()
    }

    /// Whether the driver must stop reading the pipes of all ranks: as much output waits to be acknowledged as may be. Ask again
    /// after each [`Agent::handle`].
    pub fn output_blocked(&self) -> bool {
        self.output.is_full()
    }

    /// The jobs of which it must stop, since much of their output waits, ascending.
    pub fn blocked_jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.output.full_jobs()
    }

    /// Whether the end of a job waits until its output is acknowledged.
    pub fn awaits_acknowledgement(&self) -> bool {
        self.output.any_ended()
    }

    /// This node as it would describe itself to a parent now, jobs included.
    pub fn description(&self) -> NodeDescription {
        let mut description = self.description.clone();
        description.jobs = self.jobs.ranks();
        description
    }

    /// The nodes below this one.
    pub fn subtree(&self) -> NodeSet {
        NodeSet::from_nodes(self.subtree.routes().nodes())
    }

    /// The link to the present parent.
    fn hop(&self) -> Hop {
        Hop { incarnation: self.description.incarnation, attachment: self.attachments }
    }

    fn push(&mut self, action: AgentAction) {
        self.actions.push_back(action);
    }

    /// Sends a report if there is a parent; otherwise it is among what is kept, or outdated.
    fn report(&mut self, report: Report) {
        if self.parent_up {
            self.push(AgentAction::ToParent(report));
        }
    }

    fn node(&self) -> NodeId {
        self.description.node
    }

    /// The name people see, for messages.
    pub fn name(&self) -> &String {
        &self.description.name
    }
}
