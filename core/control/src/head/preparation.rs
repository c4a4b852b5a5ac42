//! Preparation of a job on its nodes: programs that they lack, and the start when all are ready.

use alloc::format;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::transfers::{Chunk, ChunkOutcome, ProgramSource};
use super::{ClientId, Head, refusal};
use crate::message::{
    ClientReply, Command, ContentHash, JobState, NodeSet, Outcome, PreparedNode, RefusalKind,
};

impl Head {
    /// Nodes have answered `Prepare`.
    pub(super) fn prepared(&mut self, id: JobId, nodes: Vec<PreparedNode>) {
        for PreparedNode { node, result } in nodes {
            let Some(job) = self.jobs.get_mut(id) else { return };
            let count = job.record.spec.layout.iter().find(|part| part.node == node);
            let count = count.map_or(0, |part| part.count as usize);
            let Some(part) = job.parts.get_mut(&node) else { continue };
            part.wanted = None;
            match result {
                Ok(ranks) if ranks.addresses.len() == count => part.prepared = Some(ranks),
                Ok(ranks) => {
                    let message = format!(
                        "node {node} prepared {} ranks of job {id} instead of {count}; \
                         see the node's log",
                        ranks.addresses.len()
                    );
                    self.end(id, Outcome::Refused(refusal(RefusalKind::Internal, message)));
                }
                Err(refusal) => self.end(id, Outcome::Refused(refusal.bounded())),
            }
        }
        self.supply_program(id);
        self.start_if_prepared(id);
    }

    /// All nodes are prepared: the timetable that has the job goes out, then `Start`. A large timetable may go out a little later; the
    /// ranks wait for their turn then.
    fn start_if_prepared(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let Some(start) = job.start_command() else { return };
        if job.record.state == JobState::Preparing
            && let Some([one, other]) = job.nodes_of_two_families()
        {
            let message = format!(
                "job {id} is on node {one} with an IPv4 address and on node {other} with an IPv6 address, \
                 whose ranks cannot send to each other; run it on fewer nodes, or give all nodes \
                 addresses of one family in cluster.toml"
            );
            return self.end(id, Outcome::Refused(refusal(RefusalKind::BadRequest, message)));
        }
        match job.record.state {
            JobState::Preparing => {
                job.record.started_ms = Some(self.time.wall_ms());
                let (uid, waited) = (job.uid(), job.input_bytes());
                let input = core::mem::take(&mut job.input);
                let (nodes, detached) = (job.live_nodes(), job.record.spec.request.batch.detached);
                self.quota.refund(uid, 0, waited);
                self.enter(id, &JobState::Running);
                self.set_active(id, true);
                self.limit_run(id);
                self.publish_timetable();
                self.send(&nodes, &start);
                for data in input {
                    self.send_input(id, data);
                }
                if detached {
                    self.send_input(id, Vec::new());
                }
            }
            // The head before this one may have sent it to some nodes and not to others.
            JobState::Running if job.restored => {
                job.restored = false;
                let nodes = job.live_nodes();
                self.send(&nodes, &start);
            }
            _ => {}
        }
    }

    /// Nodes lack the program of a job.
    pub(super) fn program_wanted(&mut self, id: JobId, hash: ContentHash, nodes: &[NodeId]) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.record.state != JobState::Preparing || job.program() != hash {
            return;
        }
        for node in nodes {
            if let Some(part) = job.parts.get_mut(node).filter(|part| part.prepared.is_none()) {
                part.wanted = Some(hash);
            }
        }
        self.supply_program(id);
    }

    /// Begins the transfer for a job once every node of it either has the program or lacks it, so
    /// that all that lack it get the same chunks.
    pub(super) fn supply_program(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let hash = job.program();
        if self.transfers.is_under_way(hash) || !job.awaits_program() {
            return;
        }
        if let Some(data) = job.record.spec.request.batch.content.clone() {
            return self.send_content(id, data);
        }
        match self.transfers.source(id, &self.time) {
            ProgramSource::Client(client) => {
                let receivers = self.jobs.nodes_without(hash);
                self.transfers.begin(job, client, receivers, self.time.observed().elapsed());
                self.actions.reply(client, ClientReply::ProgramWanted(hash));
            }
            ProgramSource::Expected => {}
            ProgramSource::Gone => self.refuse_without_program(id, hash),
        }
    }

    /// Sends the program that came with the request to the nodes that lack it. They check it against its hash.
    fn send_content(&mut self, id: JobId, data: Vec<u8>) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let (hash, total) = (job.program(), data.len() as u64);
        let mut nodes = Vec::new();
        for (&node, part) in &mut job.parts {
            if part.wanted.take_if(|wanted| *wanted == hash).is_some() {
                nodes.push(node);
            }
        }
        let nodes = NodeSet::from_nodes(nodes);
        self.send(&nodes, &Command::ProgramChunk { hash, offset: 0, total, data });
    }

    /// Nobody can supply the program of a job.
    fn refuse_without_program(&mut self, id: JobId, hash: ContentHash) {
        let Some(job) = self.jobs.get(id) else { return };
        let lacking = job.parts.iter().filter(|(_, part)| part.wanted.is_some());
        let lacking = NodeSet::from_nodes(lacking.map(|(&node, _)| node));
        let message = format!(
            "nodes of job {id} lack {} with this content, and the client that could send it \
             is not connected; put it at this path on all nodes, or use `kumi run` and stay connected until it runs",
            job.record.spec.request.program.path
        );
        // Another job's nodes may be about to ask for it.
        if !self.jobs.another_prepares(id, hash) {
            self.send(&lacking, &Command::ProgramMissing(hash));
        }
        self.end(id, Outcome::Refused(refusal(RefusalKind::NotFound, message)));
    }

    /// A chunk from a client. The head ignores one that it has not asked for.
    pub(super) fn program_chunk(&mut self, client: ClientId, chunk: Chunk) {
        let outcome = self.transfers.receive(client, &chunk, self.time.observed().elapsed());
        let Chunk { hash, offset, total, data } = chunk;
        let command = Command::ProgramChunk { hash, offset, total, data };
        match outcome {
            ChunkOutcome::Ignored => {}
            ChunkOutcome::Wrong(id) => {
                let message = format!(
                    "the program of job {id} changed while it was being sent; run the job again"
                );
                self.end(id, Outcome::Refused(refusal(RefusalKind::BadRequest, message)));
                self.supply_others(hash);
            }
            ChunkOutcome::Forward(receivers) => self.send(&receivers, &command),
            ChunkOutcome::Last(receivers) => {
                self.send(&receivers, &command);
                // The receivers check it now; nodes that asked meanwhile are next.
                for job in self.jobs.iter_mut() {
                    for (&node, part) in &mut job.parts {
                        if part.wanted == Some(hash) && receivers.contains(node) {
                            part.wanted = None;
                        }
                    }
                }
                self.supply_others(hash);
            }
        }
    }

    /// Begins a transfer for any job that still waits for this program.
    fn supply_others(&mut self, hash: ContentHash) {
        for id in self.jobs.awaiting_program(hash) {
            self.supply_program(id);
        }
    }

    /// The job needs no program any more.
    pub(super) fn cancel_transfers_for(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(id) {
            for part in job.parts.values_mut() {
                part.wanted = None;
            }
        }
        for hash in self.transfers.transfers_for(id) {
            self.transfers.cancel(hash);
            self.supply_others(hash);
        }
    }

    /// The client supplies nothing any more; other clients may have the same programs.
    pub(super) fn source_gone(&mut self, client: ClientId) {
        let jobs = self.transfers.forget_client(client);
        for hash in self.transfers.transfers_from(client) {
            self.transfers.cancel(hash);
            self.supply_others(hash);
        }
        for id in jobs {
            self.supply_program(id);
        }
    }

    /// Gives up clients that do not send what they were asked for, and clients of an earlier head
    /// that did not come back.
    pub(super) fn check_transfers(&mut self) {
        for client in self.transfers.late_clients(self.time.observed().elapsed()) {
            self.source_gone(client);
        }
        if self.time.take_end_of_start() {
            self.scheduler.set_nodes_changed();
            for id in self.transfers.orphans() {
                self.supply_program(id);
            }
        }
    }
}
