//! Transfers of programs from clients to nodes that lack them.
//!
//! The head asks a client that submitted a job for a program once, and sends each chunk to all
//! nodes that lack it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::ClientId;
use super::job::Job;
use super::time::HeadTime;
use crate::message::{ContentHash, Nanos, NodeSet};

/// How long a client may take over the next chunk.
const PATIENCE: Nanos = 30_000_000_000;
/// Nanoseconds that a client may take over each KiB of the whole: jobs of others may wait for the same program.
const PER_KIB: Nanos = 8_000_000;

/// The content of one program on its way from a client to nodes.
#[derive(Debug)]
struct Transfer {
    source: ClientId,
    /// The job whose submitter the source is.
    job: JobId,
    receivers: BTreeSet<NodeId>,
    size: u64,
    next: u64,
    deadline: Nanos,
    /// When it has to be over.
    latest: Nanos,
}

/// A chunk as it came from a client.
pub(super) struct Chunk {
    pub(super) hash: ContentHash,
    pub(super) offset: u64,
    pub(super) total: u64,
    pub(super) data: Vec<u8>,
}

/// Outcome of a chunk.
pub(super) enum ChunkOutcome {
    /// Nobody asked for it, or only a transfer that was given up did.
    Ignored,
    /// It is not of this program: the transfer is over, and this job is refused.
    Wrong(JobId),
    /// It goes to these nodes.
    Forward(NodeSet),
    /// It goes to these nodes, which then have the whole program. The transfer is over.
    Last(NodeSet),
}

/// Where a job's program can come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramSource {
    /// The client that submitted the job.
    Client(ClientId),
    /// A client that has submitted the job to an earlier head, and may still come.
    Expected,
    /// Nobody.
    Gone,
}

/// The transfers under way, and the clients that can supply programs.
#[derive(Debug, Default)]
pub(super) struct ProgramTransfers {
    transfers: BTreeMap<ContentHash, Transfer>,
    /// The connected clients that submitted jobs.
    submitters: BTreeMap<JobId, ClientId>,
    /// Jobs that were submitted to an earlier head, and whose clients have not come to this one.
    orphans: BTreeSet<JobId>,
}

impl ProgramTransfers {
    /// This client has submitted the job.
    pub(super) fn set_submitter(&mut self, job: JobId, client: ClientId) {
        self.submitters.insert(job, client);
        self.orphans.remove(&job);
    }

    /// The job was submitted to an earlier head.
    pub(super) fn add_orphan(&mut self, job: JobId) {
        self.orphans.insert(job);
    }

    /// The jobs of an earlier head whose clients have not come, ascending.
    pub(super) fn orphans(&self) -> Vec<JobId> {
        self.orphans.iter().copied().collect()
    }

    pub(super) fn is_under_way(&self, hash: ContentHash) -> bool {
        self.transfers.contains_key(&hash)
    }

    /// Where the program of a job can come from.
    pub(super) fn source(&self, job: JobId, time: &HeadTime) -> ProgramSource {
        match self.submitters.get(&job) {
            Some(&client) => ProgramSource::Client(client),
            None if self.orphans.contains(&job) && time.is_starting() => ProgramSource::Expected,
            None => ProgramSource::Gone,
        }
    }

    /// Begins a transfer of the job's program from a client, which is asked for it next.
    pub(super) fn begin(
        &mut self,
        job: &Job,
        source: ClientId,
        receivers: BTreeSet<NodeId>,
        now: Nanos,
    ) {
        let size = job.record.spec.request.program.size;
        let deadline = now.saturating_add(PATIENCE);
        let latest = deadline.saturating_add((size / 1024).saturating_mul(PER_KIB));
        let transfer =
            Transfer { source, job: job.id(), receivers, size, next: 0, deadline, latest };
        self.transfers.insert(job.program(), transfer);
    }

    /// Takes a chunk from a client. A wrong one, and the last one, end the transfer.
    pub(super) fn receive(&mut self, client: ClientId, chunk: &Chunk, now: Nanos) -> ChunkOutcome {
        let &Chunk { hash, offset, total, ref data } = chunk;
        let transfer = self.transfers.get_mut(&hash);
        let Some(transfer) = transfer.filter(|transfer| transfer.source == client) else {
            return ChunkOutcome::Ignored;
        };
        let end = offset.saturating_add(data.len() as u64);
        let progress = !data.is_empty() || total == 0;
        if total != transfer.size || end > total || !progress {
            let job = transfer.job;
            self.transfers.remove(&hash);
            return ChunkOutcome::Wrong(job);
        }
        if offset != transfer.next {
            // The rest of what an earlier transfer asked for; what this one asked for comes behind it.
            return ChunkOutcome::Ignored;
        }
        transfer.next = end;
        transfer.deadline = now.saturating_add(PATIENCE).min(transfer.latest);
        let receivers = NodeSet::from_nodes(transfer.receivers.iter().copied());
        if end < total {
            return ChunkOutcome::Forward(receivers);
        }
        self.transfers.remove(&hash);
        ChunkOutcome::Last(receivers)
    }

    /// A node left, or attached again and may have missed chunks: it is served anew when it asks.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        for transfer in self.transfers.values_mut() {
            transfer.receivers.remove(&node);
        }
    }

    /// The job needs nothing any more. Returns the transfers that were for it.
    pub(super) fn transfers_for(&self, job: JobId) -> Vec<ContentHash> {
        self.hashes(|transfer| transfer.job == job)
    }

    /// The client is gone. Returns its jobs, which have no submitter any more.
    pub(super) fn forget_client(&mut self, client: ClientId) -> Vec<JobId> {
        let jobs = self.submitters.iter().filter(|&(_, &submitter)| submitter == client);
        let jobs: Vec<JobId> = jobs.map(|(&job, _)| job).collect();
        for job in &jobs {
            self.submitters.remove(job);
        }
        jobs
    }

    /// The programs that come from this client.
    pub(super) fn transfers_from(&self, client: ClientId) -> Vec<ContentHash> {
        self.hashes(|transfer| transfer.source == client)
    }

    fn hashes(&self, matches: impl Fn(&Transfer) -> bool) -> Vec<ContentHash> {
        self.transfers.iter().filter(|(_, t)| matches(t)).map(|(&hash, _)| hash).collect()
    }

    /// Ends a transfer that is not complete.
    pub(super) fn cancel(&mut self, hash: ContentHash) {
        self.transfers.remove(&hash);
    }

    /// The job is over: its submitter need not supply anything.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.submitters.remove(&job);
        self.orphans.remove(&job);
    }

    /// Clients that have not sent in time what they were asked for.
    pub(super) fn late_clients(&self, now: Nanos) -> Vec<ClientId> {
        let late = self.transfers.values().filter(|transfer| now >= transfer.deadline);
        late.map(|transfer| transfer.source).collect()
    }

    pub(super) fn next_deadline(&self, time: &HeadTime) -> Option<Nanos> {
        let first = self.transfers.values().map(|transfer| transfer.deadline).min();
        first.map(|deadline| time.observed().next_advance(deadline))
    }
}
