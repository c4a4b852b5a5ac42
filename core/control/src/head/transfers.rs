//! Programs that nodes lack: asked of the submitting client once, sent to all that lack them.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::jobs::{Job, PartState, refusal};
use super::{ClientId, Head};
use crate::message::{
    ClientReply, Command, ContentHash, JobState, Nanos, NodeSet, Outcome, RefusalKind,
};

/// How long a client may take over the next chunk.
const PATIENCE: Nanos = 30_000_000_000;
/// Nanoseconds that a client may take over each KiB of the whole: jobs of others may wait for the same program.
const PER_KIB: Nanos = 8_000_000;

/// The content of one program on its way from a client to nodes.
#[derive(Debug)]
pub(super) struct Transfer {
    source: ClientId,
    /// The job whose submitter the source is.
    job: JobId,
    receivers: BTreeSet<NodeId>,
    size: u64,
    next: u64,
    deadline: Nanos,
    /// When it has to be over.
    latest: Nanos,
    done: bool,
}

impl Transfer {
    pub(super) fn deadline(&self) -> Option<Nanos> {
        (!self.done).then_some(self.deadline)
    }
}

/// A chunk as it came from a client.
pub(super) struct Chunk {
    pub(super) hash: ContentHash,
    pub(super) offset: u64,
    pub(super) total: u64,
    pub(super) data: Vec<u8>,
}

impl Head {
    pub(super) fn program_wanted(&mut self, id: JobId, hash: ContentHash, nodes: &[NodeId]) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let preparing = job.record.state == JobState::Preparing;
        if !preparing || job.record.spec.request.program.hash != hash {
            return;
        }
        for node in nodes {
            if let Some(part) = job.parts.get_mut(node).filter(|part| part.prepared.is_none()) {
                part.wanted = Some(hash);
            }
        }
        self.program_ready(id);
    }

    /// Begins the transfer for a job once every node of it either has the program or wants it, so
    /// that all who want it get the same chunks.
    pub(super) fn program_ready(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let hash = job.record.spec.request.program.hash;
        if !self.transfers.contains_key(&hash) && wants(job) {
            self.begin_transfer(id, hash);
        }
    }

    fn begin_transfer(&mut self, id: JobId, hash: ContentHash) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(source) = job.submitter else {
            // After a restart of the head the client may still come and submit again.
            if !job.awaits_client || self.starting.is_none() {
                self.no_source(id, hash);
            }
            return;
        };
        let size = job.record.spec.request.program.size;
        let receivers = self.receivers(hash);
        let deadline = self.now.saturating_add(PATIENCE);
        let latest = deadline.saturating_add((size / 1024).saturating_mul(PER_KIB));
        let transfer =
            Transfer { source, job: id, receivers, size, next: 0, deadline, latest, done: false };
        self.transfers.insert(hash, transfer);
        self.reply(source, ClientReply::ProgramWanted(hash));
    }

    /// All nodes that wait for this content, for whichever job.
    fn receivers(&self, hash: ContentHash) -> BTreeSet<NodeId> {
        let parts = self.jobs.values().flat_map(|job| &job.parts);
        let wanting = parts.filter(|(_, part)| part.wanted == Some(hash));
        wanting.map(|(&node, _)| node).collect()
    }

    fn no_source(&mut self, id: JobId, hash: ContentHash) {
        let Some(job) = self.jobs.get(&id) else { return };
        let lacking = job.parts.iter().filter(|(_, part)| part.wanted.is_some());
        let lacking = NodeSet::from_nodes(lacking.map(|(&node, _)| node));
        let message = format!(
            "nodes of job {id} do not have {} with this content, and the client that could send \
             it is gone; run it again and stay connected until it runs",
            job.record.spec.request.program.path
        );
        // Another job's want may still be on its way.
        let same = |other: &Job| {
            other.id() != id
                && other.record.state == JobState::Preparing
                && other.record.spec.request.program.hash == hash
        };
        if !self.jobs.values().any(same) {
            self.send(&lacking, &Command::ProgramMissing(hash));
        }
        self.end(id, Outcome::Refused(refusal(RefusalKind::NotFound, message)));
    }

    /// A chunk from a client. Those not asked for are ignored; wrong ones end the transfer.
    pub(super) fn program_chunk(&mut self, client: ClientId, chunk: Chunk) {
        let Chunk { hash, offset, total, data } = chunk;
        let Some(transfer) = self.transfers.get_mut(&hash) else { return };
        if transfer.source != client || transfer.done {
            return;
        }
        let end = offset.saturating_add(data.len() as u64);
        let progress = !data.is_empty() || total == 0;
        if offset != transfer.next || total != transfer.size || end > total || !progress {
            let id = transfer.job;
            let message = format!(
                "the program of job {id} came in pieces that do not fit together (its file may \
                 have changed meanwhile); run it again"
            );
            self.transfers.remove(&hash);
            self.end(id, Outcome::Refused(refusal(RefusalKind::BadRequest, message)));
            self.begin_others(hash);
            return;
        }
        transfer.next = end;
        transfer.deadline = self.now.saturating_add(PATIENCE).min(transfer.latest);
        transfer.done = end == total;
        let done = transfer.done;
        let receivers = NodeSet::from_nodes(transfer.receivers.iter().copied());
        self.send(&receivers, &Command::ProgramChunk { hash, offset, total, data });
        if done {
            self.transfer_done(hash);
        }
    }

    /// The receivers have it all and check it; those that came to want it meanwhile are next.
    fn transfer_done(&mut self, hash: ContentHash) {
        let Some(transfer) = self.transfers.remove(&hash) else { return };
        for job in self.jobs.values_mut() {
            for (node, part) in &mut job.parts {
                if part.wanted == Some(hash) && transfer.receivers.contains(node) {
                    part.wanted = None;
                }
            }
        }
        self.begin_others(hash);
    }

    /// Begins a transfer for any job that still waits for this content.
    fn begin_others(&mut self, hash: ContentHash) {
        let others = self.jobs.values().filter(|job| wants_hash(job, hash) && wants(job));
        let others: Vec<JobId> = others.map(Job::id).collect();
        for id in others {
            self.program_ready(id);
        }
    }

    /// A node left, or attached again and may have missed chunks: it is served anew when it asks.
    pub(super) fn drop_receiver(&mut self, node: NodeId) {
        for transfer in self.transfers.values_mut() {
            transfer.receivers.remove(&node);
        }
    }

    /// The job needs nothing any more.
    pub(super) fn forget_transfers_of(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            for part in job.parts.values_mut() {
                part.wanted = None;
            }
        }
        let of_job = |transfer: &Transfer| transfer.job == id;
        let hashes: Vec<ContentHash> =
            self.transfers.iter().filter(|(_, t)| of_job(t)).map(|(&hash, _)| hash).collect();
        for hash in hashes {
            self.transfers.remove(&hash);
            self.begin_others(hash);
        }
    }

    /// The client is gone; other clients may have the same program.
    pub(super) fn source_gone(&mut self, client: ClientId) {
        let mut waiting: Vec<JobId> = Vec::new();
        for job in self.jobs.values_mut().filter(|job| job.submitter == Some(client)) {
            job.submitter = None;
            waiting.push(job.id());
        }
        let gone = self.transfers.iter().filter(|(_, transfer)| transfer.source == client);
        let gone: Vec<ContentHash> = gone.map(|(&hash, _)| hash).collect();
        for hash in gone {
            self.transfers.remove(&hash);
            self.begin_others(hash);
        }
        for id in waiting {
            self.program_ready(id);
        }
    }

    /// Clients that do not send what they were asked for, and jobs of an earlier head whose client
    /// did not come back.
    pub(super) fn check_transfers(&mut self) {
        let now = self.now;
        let late = |transfer: &&Transfer| !transfer.done && now >= transfer.deadline;
        let late: Vec<ClientId> =
            self.transfers.values().filter(late).map(|transfer| transfer.source).collect();
        for client in late {
            self.source_gone(client);
        }
        if self.starting.take_if(|until| now >= *until).is_some() {
            self.nodes_changed = true;
            let waiting = self.jobs.values().filter(|job| job.awaits_client);
            let waiting: Vec<JobId> = waiting.map(Job::id).collect();
            for id in waiting {
                self.program_ready(id);
            }
        }
    }
}

/// Every node of the job has answered or wants the program, and some want it.
fn wants(job: &Job) -> bool {
    let decided = job.parts.values().all(|part| {
        part.prepared.is_some() || part.wanted.is_some() || part.state != PartState::Live
    });
    job.record.state == JobState::Preparing
        && decided
        && job.parts.values().any(|part| part.wanted.is_some())
}

fn wants_hash(job: &Job, hash: ContentHash) -> bool {
    job.parts.values().any(|part| part.wanted == Some(hash))
}
