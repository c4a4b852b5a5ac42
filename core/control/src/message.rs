//! Messages of the control tree (head ↔ daemons) and between clients and the head.
//!
//! One definition for the daemon, the head, the command and the simulated cluster. The drivers
//! carry these as length-prefixed postcard frames; nothing here knows how.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use kumi_sched::{ClusterTime, JobId, NodeId, Timetable};
use serde::{Deserialize, Serialize};

pub use crate::batch::{BatchOptions, LONGEST_GRACE, USUAL_GRACE};
pub use crate::channel_sample::{ChannelPeer, ChannelReading, ChannelSample, ChannelState};
pub use crate::client_message::{ClientReply, ClientRequest};
pub use crate::deadlock::{DeadlockReport, Verdict};
pub use crate::disclosure::NodeFacts;
pub use crate::drain::Drain;
pub use crate::exchange::{Contribution, ExchangeId, ExchangeReport, RelayReport};
pub use crate::idle_report::IdleReport;
pub use crate::job_record::JobRecord;
pub use crate::jobs_page::{JobsPage, JobsQuery, MOST_PAGED, StateKind};
pub use crate::key::SealKey;
pub use crate::link_frame::{Down, Up};
pub use crate::load_sample::{JobLoad, LoadSample, MOST_SLICES, MachineSample, SliceBegin};
pub use crate::node_condition::{ConditionReport, NodeCondition};
pub use crate::node_set::NodeSet;
pub use crate::outcome::{AbandonCause, EndRequest, Outcome, RankStatus};
pub use crate::process_limits::{Limit, ProcessLimits, Resource, UNLIMITED};
pub use crate::resources::{Binding, DeviceCount, Resources};
pub use crate::sample::{NodeSample, PeerSample, RankSample};
pub use crate::sample::{Percentiles, SwitchBegin, SwitchSample};
pub use crate::standing_report::StandingReport;
pub use crate::status::{ClusterStatus, HeadStatus, HeadTroubles, NodeStatus, NodeUse};
pub use crate::terminal::WindowSize;
pub use crate::trace_sample::{
    MOST_TRACE_EVENTS, TraceAllocation, TraceEvent, TraceKind, TraceSample,
};
pub use crate::traffic::{ControlMessage, MessageCounts, MessageKind};
pub use crate::usage::{JobUsage, JobUse, PartUse, UseReport};
pub use crate::usage::{MOST_USAGE_ROWS, UsageBy, UsagePage, UsageQuery, UsageRow, UsageSums};
pub use crate::user::User;
pub use crate::waiting::{JobList, WaitLimit, WaitReason};

/// Version of everything in this module. Peers of the version before are understood, see [`crate::compat`]; all others are
/// refused by name.
pub const CONTROL_VERSION: u32 = 16;

/// The highest priority of a job.
pub const MOST_PRIORITY: u16 = 100;

/// The longest estimate of a job's run time: a year, in nanoseconds.
pub const LONGEST_ESTIMATE: u64 = 365 * 86_400 * 1_000_000_000;

/// Nanoseconds on some monotonic clock of the process at hand.
pub type Nanos = u64;

/// The content of a program file, by which nodes cache it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentHash(pub [u8; 32]);

/// The program to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// As the user named it after path search: absolute. Shown, and given as `argv[0]`'s origin.
    pub path: String,
    /// BLAKE3 of the file; nodes run the file at `path` if its content is this, otherwise their
    /// cached copy, otherwise they ask for it (`Report::ProgramWanted`).
    pub hash: ContentHash,
    /// Size of the file in bytes.
    pub size: u64,
}

/// The ranks one node runs: `first .. first + count`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRanks {
    /// The node.
    pub node: NodeId,
    /// Its lowest rank.
    pub first: u32,
    /// How many, at least 1.
    pub count: u32,
    /// The job's processors there, by their places in the node's list. The first ones are those of its lowest rank. If the job
    /// has more ranks than these serve, ranks share them in turn. None means all of the node.
    pub processors: Vec<u32>,
}

/// Request of a user for a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Drawn by the client; the same token names the same job however often it is submitted.
    pub token: u128,
    /// Shown by `kumi ps`.
    pub name: String,
    /// The program.
    pub program: Program,
    /// Arguments, `argv[0]` included.
    pub args: Vec<String>,
    /// The whole environment of the ranks, to which the daemon adds `KUMI_*`.
    pub env: Vec<(String, String)>,
    /// Working directory on every node.
    pub cwd: String,
    /// Number of ranks, at least 1.
    pub ranks: u32,
    /// Number of nodes; `None` lets the head choose.
    pub nodes: Option<u32>,
    /// Whether packets between nodes are encrypted; `None` means as the cluster is configured. A job
    /// that the head has accepted says yes or no.
    pub encrypt: Option<bool>,
    /// How important it is, 1 (ordinary) to [`MOST_PRIORITY`]: [`kumi_sched::Request::priority`]. 0 means
    /// as the cluster is configured; a job that the head has accepted says what it is.
    pub priority: u16,
    /// How long its user thinks that it runs, in nanoseconds; at most [`LONGEST_ESTIMATE`]. If none is
    /// given, it is what the cluster is configured to suppose, if that is anything.
    pub estimate_ns: Option<u64>,
    /// How long it may wait in the queue; if it does not say, as the cluster is configured. A job that the head has
    /// accepted says it.
    pub wait: Option<WaitLimit>,
    /// Limits and file mode mask of its ranks. A client gives its own, and the daemon that accepts it lowers them to what
    /// the client has by the kernel and the cluster permits. `None` is what [`ProcessLimits::default`] gives.
    pub limits: Option<ProcessLimits>,
    /// What its ranks take, and how they are laid out.
    pub resources: Resources,
    /// Size of the terminal that rank 0 has; none: its streams are pipes.
    pub terminal: Option<WindowSize>,
    /// When it may start, and how long it may run.
    pub batch: BatchOptions,
}

impl JobRequest {
    /// A job of so many ranks and of priority 1, with its name as the only argument, in `/` and without an environment. The head
    /// chooses everything else.
    #[must_use]
    pub fn new(token: u128, name: &str, program: Program, ranks: u32) -> Self {
        Self {
            token,
            name: name.into(),
            program,
            args: Vec::from([name.into()]),
            env: Vec::new(),
            cwd: "/".into(),
            ranks,
            nodes: None,
            encrypt: None,
            priority: 1,
            estimate_ns: None,
            wait: None,
            limits: None,
            resources: Resources::default(),
            terminal: None,
            batch: BatchOptions::default(),
        }
    }
}

/// A placed job, as every node of it gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its number.
    pub job: JobId,
    /// The user it runs as.
    pub user: User,
    /// The request.
    pub request: JobRequest,
    /// The ranks of each node, ascending and without gaps.
    pub layout: Vec<NodeRanks>,
    /// The channel's random key, which keeps strangers' packets out.
    pub channel_key: u64,
    /// The key with which packets are encrypted; none if they are not, and when the job is over.
    pub seal_key: Option<SealKey>,
}

/// Where a rank's socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankAddress {
    /// Address of IPv4 or IPv6. The interface of a link-local one is not told: each node has its own.
    pub ip: IpAddr,
    /// UDP port.
    pub port: u16,
}

/// One node's answer to `Command::Prepare`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedNode {
    /// The node.
    pub node: NodeId,
    /// Addresses of its ranks in rank order and its largest UDP payload, or why not.
    pub result: Result<PreparedRanks, Refusal>,
}

/// Sockets of the ranks of a prepared node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedRanks {
    /// In rank order.
    pub addresses: Vec<RankAddress>,
    /// Largest UDP payload that the node's interface takes unfragmented, in bytes.
    pub max_datagram: u16,
}

/// Why something was refused; the command maps each to a sentence and an exit code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Kind of failure.
    pub kind: RefusalKind,
    /// A sentence with the particulars and what to do.
    pub message: String,
}

impl Refusal {
    /// Longest sentence, in bytes, of a refusal that another daemon or a job's processes have a part in.
    pub const MOST_MESSAGE: usize = 4 << 10;

    /// The same, with the end of its sentence cut off if that is longer than [`Refusal::MOST_MESSAGE`].
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.bound();
        self
    }

    pub(crate) fn bound(&mut self) {
        if self.message.len() > Self::MOST_MESSAGE {
            let boundary = |&at: &usize| self.message.is_char_boundary(at);
            let end = (0..=Self::MOST_MESSAGE).rev().find(boundary).unwrap_or(0);
            self.message.truncate(end);
            self.message.shrink_to_fit();
        }
    }
}

/// Kinds of refusal, each with its exit code in `docs/reference/errors.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// A request that can never succeed as it stands.
    BadRequest,
    /// More ranks or nodes than the cluster has or allows.
    TooLarge,
    /// No such program or working directory.
    NotFound,
    /// The program cannot be executed.
    NotExecutable,
    /// The user may not do this.
    NotPermitted,
    /// No such job.
    NoSuchJob,
    /// Disk, memory, processes or descriptors ran out.
    NoResources,
    /// A node is not connected or was lost.
    NodeLost,
    /// The job did not start in the time for which it may wait.
    NotNow,
    /// Nodes or head of different versions.
    Version,
    /// Something went wrong inside Kumi.
    Internal,
    /// The user has as much as one user may have.
    Quota,
    /// A job after which it was to run has failed.
    PredecessorFailed,
}

/// Where a job is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// Waits for nodes.
    Queued,
    /// Its nodes make cgroups, segments and sockets.
    Preparing,
    /// Its ranks run (or are stopped between slices).
    Running,
    /// Being killed and freed; ends with this outcome.
    Ending(Outcome),
    /// Over; nothing of it is left on any node.
    Ended(Outcome),
}

/// One of the links between a node and whoever hears of it, named by the daemon below it: its
/// incarnation, and how often it has attached. Later links of a daemon compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hop {
    /// Of the daemon below the link.
    pub incarnation: u64,
    /// How often it has attached, this time included.
    pub attachment: u64,
}

/// Description of a node, which its daemon sends when it attaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    /// Its number.
    pub node: NodeId,
    /// Rises with each start of the daemon.
    pub incarnation: u64,
    /// Name shown to people.
    pub name: String,
    /// Processors that ranks may use.
    pub processors: u32,
    /// Bytes of memory that ranks may use; 0 if it is not known.
    pub memory: u64,
    /// Devices that ranks may use.
    pub devices: Vec<DeviceCount>,
    /// Most ranks of one job it takes.
    pub max_ranks: u32,
    /// Limits of the machine and what the daemon does instead: a sentence each.
    pub limits: Vec<String>,
    /// Jobs it has anything of, with the ranks not yet reported as exited; also jobs of which it
    /// still keeps final reports, with no ranks. A job not listed is not known to the node.
    pub jobs: Vec<(JobId, Vec<u32>)>,
    /// The links to whoever reads this, from the node upwards; filled in by the agents. Tells an
    /// outdated announcement from a new one when they arrive in the wrong order.
    pub path: Vec<Hop>,
}

/// Certificates of a node that are believed no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// The node.
    pub node: NodeId,
    /// Those that were issued up to this time, in microseconds since the epoch.
    pub until_us: u64,
}

/// Commands from the head to nodes. Each travels with the set of nodes it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Make cgroup, segment, sockets and stopped ranks for the job; answered by `Prepared`.
    Prepare(Box<JobSpec>),
    /// Content of a program file some node asked for. Chunks come in order; `total` ends it.
    ProgramChunk {
        /// Which program.
        hash: ContentHash,
        /// Where the chunk belongs.
        offset: u64,
        /// Size of the whole file.
        total: u64,
        /// The bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// The content wanted for this job cannot be had; jobs waiting for it are refused.
    ProgramMissing(ContentHash),
    /// Let the ranks go. Addresses of all ranks in rank order; largest datagram for all.
    Start {
        /// The job.
        job: JobId,
        /// By rank.
        addresses: Vec<RankAddress>,
        /// Largest UDP payload between any two nodes of the job, in bytes.
        max_datagram: u16,
    },
    /// Send a signal to every rank.
    Signal {
        /// The job.
        job: JobId,
        /// Its number.
        signal: u8,
    },
    /// Kill what is left of the job and free everything; answered by `Freed`. Also for unknown jobs.
    Kill {
        /// The job.
        job: JobId,
    },
    /// Standard input of rank 0; empty data closes it.
    Input {
        /// The job.
        job: JobId,
        /// The bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// Size of the window of the job's terminal.
    Resize {
        /// The job.
        job: JobId,
        /// The size.
        size: WindowSize,
        /// Have the programs in the foreground draw anew, even if this is the size that it has.
        redraw: bool,
    },
    /// The timetable from its start time on; each receiver forwards the columns below it.
    Timetable(Timetable),
    /// The head lived when it sent this, and grants a lease.
    Lease {
        /// Its end on the cluster's clock. So one that was long on its way grants no more.
        until: ClusterTime,
        /// Its length in nanoseconds: from receipt it lasts no longer, whatever the clocks say.
        nanos: Nanos,
    },
    /// Answer with `Sample`, for `kumi top` and `kumi stats`.
    Sample {
        /// Returned with the answer.
        request: u64,
    },
    /// Kill every job, free everything, report `Freed` for each, then stop the daemon.
    Shutdown,
    /// The job is over and recorded as such: final reports on it, which a node keeps so as to
    /// repeat them after its link or the head was lost, may be forgotten.
    Forget {
        /// The job.
        job: JobId,
    },
    /// Answer with `Sample`: only ranks of this job, with their peers but without counters and load.
    SamplePeers {
        /// Returned with the answer.
        request: u64,
        /// The job.
        job: JobId,
    },
    /// Answer with `Sample`: only the channels of this job's ranks, or of one of them.
    SampleChannels {
        /// Returned with the answer.
        request: u64,
        /// The job.
        job: JobId,
        /// The rank; all of the job on these nodes if none is given.
        rank: Option<u32>,
    },
    /// All certificates that are revoked.
    Revoked(Vec<Revocation>),
    /// Answer with `Sample`: only a part of the trace of a rank, which may be of a job that is over.
    SampleTrace {
        /// Returned with the answer.
        request: u64,
        /// The job.
        job: JobId,
        /// The rank.
        rank: u32,
        /// Number of the first event.
        from: u64,
    },
    /// Answer with `Sample`: only the load of all ranks, and the last slices if they are wanted.
    SampleLoad {
        /// Returned with the answer.
        request: u64,
        /// Whether slices are wanted.
        slices: bool,
    },
    /// All nodes have contributed to this exchange.
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
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// Read the job's ranks again and answer with [`Report::Standing`] of this round, see [`kumi_verdict`].
    Confirm {
        /// The job.
        job: JobId,
        /// The round.
        round: u64,
    },
    /// How far the streams of a job's ranks have come: nodes need keep nothing before that.
    OutputKept {
        /// The job.
        job: JobId,
        /// Of those that have something, or something new.
        kept: Vec<KeptOutput>,
        /// Send again all that is not acknowledged.
        again: bool,
    },
    /// Nobody wants output of this job any more: nodes need keep none of it.
    DropOutput {
        /// The job.
        job: JobId,
    },
}

/// How far a stream of a rank has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptOutput {
    /// The rank.
    pub rank: u32,
    /// Which stream.
    pub stream: Stream,
    /// The first byte that has not come.
    pub next: u64,
}

/// Reports from nodes to the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// These nodes are now reached through the link on which this comes.
    Attached(Vec<NodeDescription>),
    /// These nodes are no longer reached through the sender.
    Detached(NodeSet),
    /// Answers to `Prepare`, combined on the way up.
    Prepared {
        /// The job.
        job: JobId,
        /// In any order.
        nodes: Vec<PreparedNode>,
    },
    /// A node lacks the program; sent once per node, job and hash, and again after re-attachment.
    ProgramWanted {
        /// For which job.
        job: JobId,
        /// Which program.
        hash: ContentHash,
        /// The nodes that lack it.
        nodes: NodeSet,
    },
    /// A rank ended otherwise than with code 0; sent at once.
    RankFailed {
        /// The job.
        job: JobId,
        /// The rank.
        rank: u32,
        /// Its node.
        node: NodeId,
        /// How.
        status: RankStatus,
    },
    /// On these nodes all ranks have ended, all output is acknowledged and nothing of the job is left.
    Freed {
        /// The job.
        job: JobId,
        /// Combined on the way up as they come.
        nodes: NodeSet,
    },
    /// Output of a rank. The node has it until [`Command::OutputKept`]. Without bytes: all has come of the job there.
    Output {
        /// The job.
        job: JobId,
        /// The rank.
        rank: u32,
        /// Its node.
        node: NodeId,
        /// Which stream.
        stream: Stream,
        /// Bytes of the stream before this can not be sent again.
        base: u64,
        /// Where its bytes begin in the stream.
        at: u64,
        /// The bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// Answers to `Sample`.
    Samples {
        /// As asked.
        request: u64,
        /// One per node.
        nodes: Vec<NodeSample>,
    },
    /// Their part of the job ended on these nodes without an order: the job failed, though no rank
    /// of it did. `Freed` follows.
    Abandoned {
        /// The job.
        job: JobId,
        /// The nodes that gave it up.
        nodes: NodeSet,
        /// Why.
        cause: AbandonCause,
    },
    /// Whether a job has something to do on some nodes.
    Idle(IdleReport),
    /// Contributions of nodes to an exchange, combined on the way up.
    Exchange(ExchangeReport),
    /// A message of a node for another node of the same job.
    Relay(RelayReport),
    /// Whether the ranks of a job wait for each other on some nodes.
    Standing(StandingReport),
    /// What a job has used on some nodes; comes now and then, and at its end before `Freed`.
    Used(UseReport),
    /// Whether a node is in order.
    Condition(ConditionReport),
}

/// A standard output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}
