//! What daemons report. They are authenticated, and still believed only as far as it makes sense.

use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::jobs::{Job, PartState};
use super::{Head, HeadAction};
use crate::message::{
    ClientReply, Command, JobState, NodeSet, Outcome, PreparedNode, RankStatus, Report, Stream,
};
use crate::tree::LinkId;

impl Head {
    pub(super) fn child_report(&mut self, link: LinkId, report: Report) {
        self.messages += 1;
        if !self.links.contains(&link) {
            return;
        }
        match report {
            Report::Attached(nodes) => self.attached(link, nodes),
            Report::Detached(nodes) => {
                let lost = self.routes.detach(link, &nodes);
                self.detached(&lost);
            }
            Report::Prepared { job, nodes } => self.prepared(job, nodes),
            Report::ProgramWanted { job, hash, nodes } => {
                let nodes = self.members(job, &nodes);
                self.program_wanted(job, hash, &nodes);
            }
            Report::RankFailed { job, rank, node, status } => {
                self.rank_failed(job, rank, node, status);
            }
            Report::Abandoned { job, nodes } => {
                for node in self.members(job, &nodes) {
                    self.end(job, Outcome::NodeLost(node));
                }
            }
            Report::Freed { job, nodes } => self.freed(link, job, &nodes),
            Report::Output { job, rank, stream, data } => self.output(job, rank, stream, data),
            Report::Samples { request, nodes } => self.samples(request, nodes),
            Report::Idle(report) => self.idle(link, &report),
        }
    }

    /// The job's own nodes of a set from the wire.
    fn members(&self, id: JobId, nodes: &NodeSet) -> Vec<NodeId> {
        let parts = self.jobs.get(&id).into_iter().flat_map(|job| job.parts.keys().copied());
        parts.filter(|&node| nodes.contains(node)).collect()
    }

    fn prepared(&mut self, id: JobId, nodes: Vec<PreparedNode>) {
        for PreparedNode { node, result } in nodes {
            let Some(job) = self.jobs.get_mut(&id) else { return };
            let count = job.record.spec.layout.iter().find(|part| part.node == node);
            let count = count.map_or(0, |part| part.count as usize);
            let Some(part) = job.parts.get_mut(&node) else { continue };
            part.wanted = None;
            match result {
                Ok(ranks) if ranks.addresses.len() == count => part.prepared = Some(ranks),
                Ok(ranks) => {
                    let message = alloc::format!(
                        "node {node} prepared {} ranks of job {id} instead of {count}; \
                         look into its log",
                        ranks.addresses.len()
                    );
                    let kind = crate::message::RefusalKind::Internal;
                    self.end(id, Outcome::Refused(super::jobs::refusal(kind, message)));
                }
                Err(refusal) => self.end(id, Outcome::Refused(refusal)),
            }
        }
        self.program_ready(id);
        self.start_if_prepared(id);
    }

    fn rank_failed(&mut self, id: JobId, rank: u32, node: NodeId, status: RankStatus) {
        let Some(job) = self.jobs.get(&id) else { return };
        let runs = |part: &&crate::message::NodeRanks| {
            part.node == node && rank >= part.first && rank - part.first < part.count
        };
        if !status.success() && job.record.spec.layout.iter().any(|part| runs(&part)) {
            self.end_by_rank(id, Outcome::RankFailed { rank, node, status });
        }
    }

    fn freed(&mut self, link: LinkId, id: JobId, nodes: &NodeSet) {
        if self.jobs.get(&id).is_none_or(Job::is_over) {
            // Said again by nodes that missed that it is recorded.
            let known = NodeSet::from_nodes(self.routes.among(link, nodes));
            if !known.is_empty() {
                self.send_on(link, known, Command::Forget { job: id });
            }
            return;
        }
        for node in self.members(id, nodes) {
            // Before the start nothing ends by itself.
            let preparing =
                self.jobs.get(&id).is_some_and(|job| job.record.state == JobState::Preparing);
            if preparing {
                self.end(id, Outcome::NodeLost(node));
            }
            self.part_over(id, node, PartState::Freed);
        }
    }

    fn output(&mut self, id: JobId, rank: u32, stream: Stream, data: Vec<u8>) {
        let Some(job) = self.jobs.get(&id) else { return };
        let spooled = !job.is_over() && !job.spool_failed;
        if spooled && rank < job.record.spec.request.ranks && !data.is_empty() {
            self.push(HeadAction::Spool { job: id, rank, stream, data });
        }
    }

    pub(super) fn spooled(&mut self, id: JobId, end: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.spool_end = end;
        }
    }

    /// The job goes on without its output being kept; those who follow it are told.
    pub(super) fn spool_failed(&mut self, id: JobId, reason: &str) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if core::mem::replace(&mut job.spool_failed, true) {
            return;
        }
        let line = alloc::format!(
            "kumi: output of job {id} is no longer kept ({reason}); the job goes on\n"
        );
        let (offset, followers) = (job.spool_end, job.followers.clone());
        for client in followers {
            let data = line.clone().into_bytes();
            let stream = Stream::Err;
            self.reply(client, ClientReply::Output { job: id, rank: 0, stream, data, offset });
        }
    }
}
