//! Reports of daemons, and the checks that each must pass.
//!
//! Daemons are authenticated, and still the head believes them only as far as a report makes sense.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::Head;
use super::job::{Job, PartState};
use super::output::Origin;
use crate::message::{
    ClientReply, Command, IdleReport, JobState, NodeSet, Outcome, RankStatus, Report,
};
use crate::tree::LinkId;

impl Head {
    pub(super) fn child_report(&mut self, link: LinkId, mut report: Report) {
        self.actions.count_report();
        self.actions.starts.incoming(&mut report);
        if !self.membership.tree().has_link(link) {
            return;
        }
        match report {
            Report::Attached(nodes) => self.attached(link, nodes),
            Report::Detached(nodes) => {
                let lost = self.membership.tree_mut().detach(link, &nodes);
                self.detached(&lost);
            }
            Report::Prepared { job, nodes } => {
                let by = NodeSet::from_nodes(nodes.iter().map(|prepared| prepared.node));
                self.kill_what_is_not_to_begin(link, job, &by);
                self.prepared(job, nodes);
            }
            Report::ProgramWanted { job, hash, nodes } => {
                self.kill_what_is_not_to_begin(link, job, &nodes);
                let nodes = self.members(job, &nodes);
                self.program_wanted(job, hash, &nodes);
            }
            Report::RankFailed { job, rank, node, status } => {
                self.rank_failed(job, rank, node, status);
            }
            Report::Abandoned { job, nodes, cause } => {
                for node in self.members(job, &nodes) {
                    self.end(job, cause.outcome(node));
                }
            }
            Report::Freed { job, nodes } => self.freed(link, job, &nodes),
            Report::Output { job, rank, node, stream, base, at, data } => {
                self.take_output(job, Origin { rank, node, stream, base, at }, data);
            }
            Report::Samples { request, nodes } => self.samples.add(request, nodes),
            Report::Idle(report) => self.idle_report(link, &report),
            Report::Exchange(report) => self.exchange(link, report),
            Report::Relay(report) => self.relay(link, report),
            Report::Standing(report) => self.standing_report(link, report),
            Report::Used(report) => self.used(report),
            Report::Condition(report) => self.node_condition(link, report),
        }
    }

    /// A job begins on nodes where it is over, or that it was lost with. The order waited for the job's record, and by the time that
    /// it came the job had ended without these nodes.
    fn kill_what_is_not_to_begin(&mut self, link: LinkId, id: JobId, nodes: &NodeSet) {
        let job = self.jobs.get(id);
        let ended = |node: &NodeId| {
            job.and_then(|job| job.part(*node)).is_none_or(|part| part.state != PartState::Live)
        };
        let reached = self.membership.tree().routes().among(link, nodes);
        let ended = NodeSet::from_nodes(reached.into_iter().filter(ended));
        if !ended.is_empty() {
            self.actions.send_on(link, ended, Command::Kill { job: id });
        }
    }

    /// The job's own nodes of a set from the wire.
    fn members(&self, id: JobId, nodes: &NodeSet) -> Vec<NodeId> {
        let parts = self.jobs.get(id).into_iter().flat_map(|job| job.parts.keys().copied());
        parts.filter(|&node| nodes.contains(node)).collect()
    }

    fn rank_failed(&mut self, id: JobId, rank: u32, node: NodeId, status: RankStatus) {
        let Some(job) = self.jobs.get(id) else { return };
        if !status.success() && job.has_rank(rank, node) {
            self.end_by_rank(id, Outcome::RankFailed { rank, node, status });
        }
    }

    fn freed(&mut self, link: LinkId, id: JobId, nodes: &NodeSet) {
        if self.jobs.get(id).is_none_or(Job::is_over) {
            // Said again by nodes that missed that it is recorded.
            let known = NodeSet::from_nodes(self.membership.tree().routes().among(link, nodes));
            if !known.is_empty() {
                self.actions.send_on(link, known, Command::Forget { job: id });
            }
            return;
        }
        for node in self.members(id, nodes) {
            // Before the start nothing ends by itself.
            let preparing =
                self.jobs.get(id).is_some_and(|job| job.record.state == JobState::Preparing);
            if preparing {
                self.end(id, Outcome::NodeLost(node));
            }
            self.part_freed(id, node);
        }
    }

    /// Nodes report whether a job has something to do there. The head believes it of nodes that are
    /// reached through the link on which it came: an older report may come later by another way.
    fn idle_report(&mut self, link: LinkId, report: &IdleReport) {
        let nodes = self.membership.tree().routes().among(link, &report.nodes);
        let Some(job) = self.jobs.get(report.job) else { return };
        self.idle.report(job, &nodes, report.idle);
        if self.update_idle(report.job) == Some(false) {
            self.idle.came_back(report.job, self.time.now());
        }
    }

    /// The job goes on without all of its output being kept; those who follow it are told once. The record has it at once when
    /// it begins and when it is over, and meanwhile each time that the amount has doubled.
    pub(super) fn not_kept(&mut self, id: JobId, bytes: u64, reason: &str) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let now = job.not_kept_before.saturating_add(bytes);
        job.record.output_not_kept = now;
        let recorded = job.not_kept_recorded;
        let much = (recorded == 0) != (now == 0) || now / 2 >= recorded || job.is_over();
        let told = core::mem::replace(&mut job.not_kept_told, true);
        if much && now != recorded {
            job.not_kept_recorded = now;
            self.persist(id);
        }
        if told {
            return;
        }
        for client in self.subscribers.followers(id) {
            let reason = reason.to_owned();
            self.actions.reply(client, ClientReply::NotKept { job: id, reason });
        }
    }
}
