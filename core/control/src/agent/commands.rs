//! Commands of the head at an agent: each goes on to the children and is carried out on the node.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kumi_sched::{ClusterTime, JobId, NodeId};

use super::local_jobs::LocalPhase;
use super::{Agent, AgentAction, CHILDREN_GRACE};
use crate::message::{
    AbandonCause, Command, JobSpec, Nanos, NodeSet, PreparedNode, PreparedRanks, RankAddress,
    Refusal, RefusalKind, Report,
};
use crate::subtree::columns_of;
use crate::timetable_generation::replaces;

impl Agent {
    /// A command for some nodes: each child gets its part, and this node's is carried out. Nodes
    /// that are not below here any more are passed over; the head hears that they left, and makes
    /// up for it when they attach again.
    pub(super) fn command(&mut self, now: Nanos, nodes: &NodeSet, command: Command) {
        self.before_forwarding(now, nodes, &command);
        let children = self.subtree.routes().by_link(nodes);
        for (link, below) in children {
            let command = match &command {
                Command::Timetable(timetable) => Command::Timetable(columns_of(timetable, &below)),
                other => other.clone(),
            };
            self.push(AgentAction::ToChild(link, below, command));
        }
        if nodes.contains(self.node()) {
            self.carry_out(now, command);
        }
    }

    /// Those of a command's nodes that are here or below.
    fn reached(&self, nodes: &NodeSet) -> BTreeSet<NodeId> {
        let here = core::iter::once(self.node());
        self.subtree.routes().nodes().chain(here).filter(|&node| nodes.contains(node)).collect()
    }

    /// Notes what a command means for the nodes below.
    fn before_forwarding(&mut self, now: Nanos, nodes: &NodeSet, command: &Command) {
        match command {
            Command::Prepare(spec) => self.await_prepared(spec, nodes),
            Command::Sample { request }
            | Command::SamplePeers { request, .. }
            | Command::SampleChannels { request, .. }
            | Command::SampleLoad { request, .. }
            | Command::SampleTrace { request, .. } => {
                self.samples.begin(*request, self.reached(nodes), now);
            }
            Command::Forget { job } => {
                for node in self.reached(nodes) {
                    self.subtree.routes_mut().job_ends(node, *job, true);
                }
                self.reports.forget(*job, nodes);
                self.standings.forget(*job);
                self.exchanges.forget(*job);
            }
            Command::Exchanged { id, .. } => self.exchange_passes(*id),
            _ => {}
        }
    }

    fn await_prepared(&mut self, spec: &JobSpec, nodes: &NodeSet) {
        let reached = self.reached(nodes);
        for part in spec.layout.iter().filter(|part| reached.contains(&part.node)) {
            let ranks = rank_numbers(part.first, part.count);
            self.subtree.routes_mut().job_begins(part.node, spec.job, ranks);
        }
        self.reports.expect_answers(spec.job, &reached);
        self.send_answers_if_complete(spec.job);
    }

    /// This node's part of a command.
    fn carry_out(&mut self, now: Nanos, command: Command) {
        match command {
            Command::Prepare(spec) => self.prepare(spec),
            Command::ProgramChunk { hash, offset, total, data } => {
                self.push(AgentAction::StoreProgram { hash, offset, total, data });
            }
            Command::ProgramMissing(hash) => self.push(AgentAction::ProgramMissing(hash)),
            Command::Start { job, addresses, max_datagram } => {
                self.start(job, addresses, max_datagram);
            }
            Command::Signal { job, signal } => {
                if self.jobs.phase(job) == Some(LocalPhase::Started) {
                    self.push(AgentAction::Signal { job, signal });
                }
            }
            Command::Input { job, data } => {
                let phase = self.jobs.phase(job);
                if matches!(phase, Some(LocalPhase::Prepared | LocalPhase::Started)) {
                    self.push(AgentAction::Input { job, data });
                }
            }
            Command::Resize { job, size, redraw } => {
                if self.jobs.phase(job) == Some(LocalPhase::Started) {
                    self.push(AgentAction::Resize { job, size, redraw });
                }
            }
            Command::Kill { job } => self.kill(job),
            Command::Timetable(timetable) => {
                if replaces(timetable.generation, self.generation) {
                    self.generation = timetable.generation;
                    let own = columns_of(&timetable, &NodeSet::from_nodes([self.node()]));
                    self.push(AgentAction::Apply(own));
                }
            }
            Command::Lease { until, nanos } => {
                let cluster = ClusterTime(now.saturating_add_signed(self.clock_offset));
                self.lease.grant(now, cluster, until, nanos);
            }
            command @ (Command::Sample { .. }
            | Command::SamplePeers { .. }
            | Command::SampleChannels { .. }
            | Command::SampleLoad { .. }
            | Command::SampleTrace { .. }) => self.measure(&command),
            Command::Exchanged { id, parts } => self.exchanged(id, parts),
            Command::Relayed { job, from, data } => {
                if self.jobs.phase(job) == Some(LocalPhase::Started) {
                    self.push(AgentAction::Relayed { job, from, data });
                }
            }
            Command::Confirm { job, round } => self.push(AgentAction::Confirm { job, round }),
            Command::Revoked(list) => self.push(AgentAction::Revoke(list)),
            Command::Shutdown => self.shut_down(now),
            Command::Forget { job } => self.forget(job),
            Command::OutputKept { job, kept, again } => self.output_kept(job, &kept, again),
            Command::DropOutput { job } => self.drop_output(job),
        }
    }

    /// The head has recorded the end of the job.
    fn forget(&mut self, job: JobId) {
        self.jobs.forget(job);
        if self.jobs.phase(job).is_none() {
            self.output.forget(job);
        }
    }

    /// Has the driver measure something; of other commands nothing.
    fn measure(&mut self, command: &Command) {
        self.push(match *command {
            Command::Sample { request } => AgentAction::Sample { request },
            Command::SamplePeers { request, job } => AgentAction::SamplePeers { request, job },
            Command::SampleChannels { request, job, rank } => {
                AgentAction::SampleChannels { request, job, rank }
            }
            Command::SampleLoad { request, slices } => AgentAction::SampleLoad { request, slices },
            Command::SampleTrace { request, job, rank, from } => {
                AgentAction::SampleTrace { request, job, rank, from }
            }
            _ => return,
        });
    }

    fn prepare(&mut self, spec: Box<JobSpec>) {
        let (id, node) = (spec.job, self.node());
        if let Some(phase) = self.jobs.phase(id) {
            // Asked twice. While it is being prepared the answer is to come; if there is none when
            // that is over, `Freed` comes instead.
            if phase == LocalPhase::Freed {
                self.report_freed(id, &[node]);
            }
            return;
        }
        let Some(part) = spec.layout.iter().find(|part| part.node == node) else {
            return self.refuse(id, "it has no rank on this node");
        };
        if self.stopping.is_some() {
            return self.refuse(id, "this node is shutting down; try again later");
        }
        self.jobs.begin(id, rank_numbers(part.first, part.count));
        self.push(AgentAction::Prepare(spec));
    }

    fn refuse(&mut self, job: JobId, why: &str) {
        let message = alloc::format!("job {job} cannot be prepared on node {}: {why}", self.node());
        let refusal = Refusal { kind: RefusalKind::Internal, message };
        self.answer(job, Err(refusal));
    }

    /// This node's answer to `Prepare`.
    pub(super) fn answer(&mut self, job: JobId, result: Result<PreparedRanks, Refusal>) {
        let node = self.node();
        let result = result.map_err(Refusal::bounded);
        self.report_prepared(job, Vec::from([PreparedNode { node, result }]));
    }

    /// A second `Start` (the head repeats it when it cannot know) starts nothing.
    fn start(&mut self, job: JobId, addresses: Vec<RankAddress>, max_datagram: u16) {
        if self.jobs.advance(job, LocalPhase::Prepared, LocalPhase::Started) {
            self.push(AgentAction::Start { job, addresses, max_datagram });
        }
    }

    fn kill(&mut self, job: JobId) {
        match self.jobs.kill(job) {
            LocalPhase::Killing | LocalPhase::Draining => {}
            LocalPhase::Freed => {
                let node = self.node();
                self.report_freed(job, &[node]);
            }
            LocalPhase::Preparing | LocalPhase::Prepared | LocalPhase::Started => {
                self.push(AgentAction::Kill { job });
            }
        }
    }

    /// Kills all jobs while the lease is over, also those that were to begin: the head may have called this node lost.
    pub(super) fn check_lease(&mut self, now: Nanos) {
        if !self.lease.is_over(now) {
            return;
        }
        let jobs = self.jobs.running();
        if jobs.is_empty() {
            return;
        }
        self.push(AgentAction::LeaseExpired);
        let node = self.node();
        for job in jobs {
            self.report_abandoned(job, &[node], AbandonCause::LeaseOver);
            self.kill(job);
        }
    }

    fn shut_down(&mut self, now: Nanos) {
        self.stopping.get_or_insert(now.saturating_add(CHILDREN_GRACE));
        for job in self.jobs.running() {
            self.kill(job);
        }
    }

    /// Stops once no job and no child is left, and the head knows it, or that takes too long.
    pub(super) fn check_stop(&mut self, now: Nanos) {
        let Some(deadline) = self.stopping else { return };
        let alone = !self.subtree.has_links() || now >= deadline;
        let reported = self.parent_up || now >= deadline;
        if now >= deadline && !self.parent_up {
            // Nobody is there to acknowledge anything.
            for job in self.output.give_up() {
                self.gone(job);
            }
        }
        if !self.stopped && !self.jobs.any_live() && alone && reported {
            self.stopped = true;
            // Complete or not.
            for job in self.reports.jobs() {
                self.send_freed(job);
            }
            self.push(AgentAction::Shutdown);
        }
    }

    /// Sends what a job has used here and below, as far as the parent does not know it.
    pub(super) fn send_used(&mut self, job: JobId) {
        let used: Option<Report> = self.reports.take_used(job, self.now);
        if let Some(report) = used {
            self.report(report);
        }
    }

    /// Sends what is left of reports on nodes' freed jobs, behind what these have used.
    pub(super) fn send_freed(&mut self, job: JobId) {
        self.send_used(job);
        let freed: Option<Report> = self.reports.take_freed(job);
        if let Some(report) = freed {
            self.report(report);
        }
    }
}

/// `first .. first + count`, bounded by what a node can hold: both may come from the wire.
pub(super) fn rank_numbers(first: u32, count: u32) -> Vec<u32> {
    (first..first.saturating_add(count.min(1 << 16))).collect()
}
