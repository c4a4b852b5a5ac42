//! Messages between a client (`kumi run`, `kumi ps`, …) and the head.
//!
//! Their version is that of [`crate::message`], which also says how drivers carry them.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use kumi_sched::{JobId, Mode, NodeId, SliceLength};
use serde::{Deserialize, Serialize};

use crate::batch::{ArrayIndices, ArrayRange};
use crate::message::{
    ClusterStatus, ContentHash, DeadlockReport, HeadStatus, HeadTroubles, JobRequest, JobState,
    JobsPage, JobsQuery, Nanos, NodeSample, Outcome, Refusal, Stream, UsagePage, UsageQuery,
    Verdict, WaitReason, WindowSize,
};
use crate::shares::SharesReport;

/// Request of a client to the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientRequest {
    /// First frame of a client: its version.
    Hello {
        /// `CONTROL_VERSION` of the client.
        version: u32,
    },
    /// Run a job and follow it: `Submitted`, `Output`..., `Ended`.
    Submit(Box<JobRequest>),
    /// Follow a job: output from byte `offset` of its spool on, then `Ended`.
    Follow {
        /// The job.
        job: JobId,
        /// Bytes of the spool already seen.
        offset: u64,
        /// Wait for more while the job runs; otherwise stop at what there is.
        wait: bool,
    },
    /// Content of a program that the head asked for.
    ProgramChunk {
        /// Which.
        hash: ContentHash,
        /// Where.
        offset: u64,
        /// Whole size.
        total: u64,
        /// Bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// Standard input for rank 0; empty closes it.
    Input {
        /// The job.
        job: JobId,
        /// Bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
    },
    /// Size of the window that shows the job's terminal. Before the job runs it says nothing.
    Resize {
        /// The job.
        job: JobId,
        /// The size.
        size: WindowSize,
        /// Have the programs in the foreground draw anew, even if this is the size that it has.
        redraw: bool,
    },
    /// A signal for every rank.
    Signal {
        /// The job.
        job: JobId,
        /// Number.
        signal: u8,
    },
    /// End the job; answered by `Done` once nothing of it is left. Its ranks get SIGTERM, and SIGKILL when the grace is over.
    Kill {
        /// The job.
        job: JobId,
        /// Nanoseconds from SIGTERM to SIGKILL, at most [`crate::message::LONGEST_GRACE`]; 0: SIGKILL at once.
        grace_ns: Nanos,
    },
    /// A page of jobs, the newest first asked for. Of other users' jobs only the cluster's owner and root get arguments,
    /// folders and the reasons of refusals.
    Jobs(JobsQuery),
    /// The cluster: nodes, their links, the mode.
    Cluster,
    /// A sample of every node.
    Sample,
    /// Change how processors are shared. Only the cluster's owner and root may. A refusal leaves
    /// everything as it was.
    Configure {
        /// Mode.
        mode: Option<Mode>,
        /// Slice.
        slice: Option<SliceLength>,
        /// Name of the scheduling policy.
        policy: Option<String>,
    },
    /// Kill all jobs and stop all daemons and the head. Only the cluster's owner and root may.
    Shutdown,
    /// Revoke the certificates that a node has now. Only the cluster's owner and root may.
    Revoke {
        /// The node.
        node: NodeId,
    },
    /// A sample of the nodes of a job: only its ranks, with their peers but without counters and load.
    SamplePeers {
        /// The job.
        job: JobId,
    },
    /// A sample of the nodes of a job: only the channels of its ranks, as their daemons see them. Only the job's user, the
    /// cluster's owner and root may ask.
    SampleChannels {
        /// The job.
        job: JobId,
        /// The rank; all of the job if none is given.
        rank: Option<u32>,
    },
    /// A ticket with which a browser shows the cluster to this user, once.
    WebTicket {
        /// Whether the browser may stop and kill the user's jobs, not only look.
        act: bool,
    },
    /// A sample of every node: only the load of ranks, and the last slices if they are wanted.
    SampleLoad {
        /// Whether slices are wanted.
        slices: bool,
    },
    /// A sample of the node of a rank: only a part of the rank's trace, also of a job that is over. Only the job's user, the
    /// cluster's owner and root may ask.
    SampleTrace {
        /// The job.
        job: JobId,
        /// The rank.
        rank: u32,
        /// Number of the first event.
        from: u64,
    },
    /// The verdict on a job, with reasons if it is stopped. Only the job's user, the cluster's owner and root may ask.
    Explain {
        /// The job.
        job: JobId,
    },
    /// Run a job, or an array of them, that the client does not follow; answered by `Accepted`.
    SubmitBatch {
        /// The job, or what all of the array have in common.
        request: Box<JobRequest>,
        /// The indices.
        array: Option<ArrayRange>,
    },
    /// Answer with `Ended` when the job is over.
    Wait {
        /// The job.
        job: JobId,
    },
    /// Give these nodes no new jobs; those that they have go on. Only the cluster's owner and root may.
    Drain {
        /// The nodes.
        nodes: Vec<NodeId>,
        /// Why, for people: see [`crate::drain::check_reason`].
        reason: String,
    },
    /// Give these nodes jobs again. Only the cluster's owner and root may.
    Resume {
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// A page of what jobs have used, those that are over long ago too.
    Usage(UsageQuery),
    /// Add a node; answered by `NodeAdded`. Only the cluster's owner and root may.
    AddNode {
        /// The node as the head's configuration has it, in TOML.
        definition: String,
    },
    /// Remove a node. Only the cluster's owner and root may.
    RemoveNode {
        /// The node.
        node: NodeId,
        /// End the jobs that are there; otherwise it is refused while there are any.
        force: bool,
    },
    /// A token with which a machine becomes this node; answered by `JoinToken`. Only the cluster's owner and root may.
    JoinToken {
        /// The node.
        node: NodeId,
        /// For how long it counts, in milliseconds: see [`crate::join::check_validity`].
        valid_ms: u64,
    },
    /// What users have spent, and whose jobs come first.
    Shares,
    /// The same as `Cluster`, but the timetable has few columns: they are by far the most of it where there are many jobs.
    Overview {
        /// Nodes of lower numbers have theirs.
        columns: u32,
    },
    /// The heads, if there are several.
    Heads,
    /// As `SubmitBatch`, an array whose indices do not follow one another.
    SubmitArray {
        /// What all of the array have in common.
        request: Box<JobRequest>,
        /// The indices.
        indices: ArrayIndices,
    },
    /// What the head cannot write now.
    Troubles,
}

impl ClientRequest {
    /// The job that it submits, if it submits one.
    pub fn submission(&mut self) -> Option<&mut JobRequest> {
        match self {
            Self::Submit(request)
            | Self::SubmitBatch { request, .. }
            | Self::SubmitArray { request, .. } => Some(request.as_mut()),
            _ => None,
        }
    }

    /// Whether it submits a job.
    pub fn is_submission(&self) -> bool {
        matches!(self, Self::Submit(_) | Self::SubmitBatch { .. } | Self::SubmitArray { .. })
    }
}

/// Reply of the head to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientReply {
    /// Answer to `Hello`.
    Welcome {
        /// `CONTROL_VERSION` of the head.
        version: u32,
    },
    /// The job's number.
    Submitted {
        /// The job.
        job: JobId,
    },
    /// The job changed its state.
    State {
        /// The job.
        job: JobId,
        /// Its state.
        state: JobState,
    },
    /// Some node lacks the program: send it.
    ProgramWanted(ContentHash),
    /// Output; `offset` is where in the spool the *next* byte will be.
    Output {
        /// The job.
        job: JobId,
        /// The rank.
        rank: u32,
        /// The stream.
        stream: Stream,
        /// Bytes.
        #[serde(with = "crate::bytes")]
        data: Vec<u8>,
        /// Spool position after this.
        offset: u64,
    },
    /// The job is over and all its output was sent.
    Ended {
        /// The job.
        job: JobId,
        /// How.
        outcome: Outcome,
        /// Bytes of its output that are not kept.
        not_kept: u64,
    },
    /// A job that the client follows is still queued, and this is why. Comes after a second, and again when the
    /// reason is of another kind.
    Waits {
        /// The job.
        job: JobId,
        /// What it waits for.
        reason: WaitReason,
    },
    /// Answer to `Jobs`.
    Jobs(JobsPage),
    /// Answer to `Cluster` and `Overview`.
    Cluster(ClusterStatus),
    /// Answer to `Sample`.
    Samples(Vec<NodeSample>),
    /// Done.
    Done,
    /// Refused. Clients and heads of all versions understand this and [`ClientRequest::Hello`], so their places stay.
    Refused(Refusal),
    /// What a user should know of a submission, in a sentence. The job itself is answered besides.
    Note(String),
    /// All output that there was when a client began to follow the job has been sent. Comes once, to clients that wait for more.
    Current {
        /// The job.
        job: JobId,
    },
    /// Answer to `WebTicket`.
    WebTicket {
        /// The ticket.
        ticket: String,
        /// Where browsers reach the head, as `https://ADDRESS:PORT`, if it listens for them beside its local socket.
        url: Option<String>,
    },
    /// A job that the client follows is stopped: its ranks wait for each other for ever.
    Deadlock {
        /// The job.
        job: JobId,
        /// Why.
        report: Box<DeadlockReport>,
    },
    /// Answer to `Explain`.
    Explanation {
        /// The verdict, if the job runs.
        verdict: Option<Verdict>,
        /// Why, if it is stopped.
        report: Option<Box<DeadlockReport>>,
    },
    /// Output is missing between what came before and what comes next.
    OutputLost {
        /// The job.
        job: JobId,
        /// How much.
        bytes: u64,
        /// Spool position after it.
        offset: u64,
    },
    /// Output of a job that the client follows is not kept, or not all of it. What comes is sent all the same.
    NotKept {
        /// The job.
        job: JobId,
        /// Why.
        reason: String,
    },
    /// Answer to `SubmitBatch` and `SubmitArray`: the numbers of the jobs follow one another.
    Accepted {
        /// The first.
        first: JobId,
        /// The last.
        last: JobId,
    },
    /// The job that the client follows was started again. What comes next is output of that start.
    StartedAgain {
        /// The job.
        job: JobId,
        /// How often it was started again with that time.
        restarts: u32,
        /// Why.
        reason: String,
        /// Spool position after it.
        offset: u64,
    },
    /// Answer to `Usage`.
    Usage(UsagePage),
    /// Answer to `AddNode`.
    NodeAdded {
        /// The number of the new node.
        node: NodeId,
    },
    /// Answer to `JoinToken`.
    JoinToken {
        /// The token. It is a secret.
        token: String,
        /// Its end, in milliseconds since the epoch.
        until_ms: u64,
    },
    /// Answer to `Shares`.
    Shares(SharesReport),
    /// Answer to `Heads`: all of them, or none if there is only one.
    Heads(Vec<HeadStatus>),
    /// Answer to `Troubles`.
    Troubles(HeadTroubles),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::RefusalKind;

    #[test]
    fn who_has_another_version_reads_that_it_is_refused() {
        assert_eq!(postcard::to_allocvec(&ClientRequest::Hello { version: 5 }).unwrap(), [0, 5]);
        let refusal = Refusal { kind: RefusalKind::Version, message: "x".into() };
        let bytes = postcard::to_allocvec(&ClientReply::Refused(refusal)).unwrap();
        assert_eq!(bytes, [11, 9, 1, b'x'], "what versions before and after read");
    }
}
