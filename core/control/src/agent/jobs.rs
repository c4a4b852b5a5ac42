//! Jobs of the agent's own node, with the phase that each is in.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::subtree::{columns_of, rank_numbers};
use super::{Agent, AgentAction, CHILDREN_GRACE};
use crate::message::{
    Command, ContentHash, JobSpec, Nanos, NodeSet, PreparedNode, PreparedRanks, RankAddress,
    RankStatus, Refusal, RefusalKind,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalPhase {
    Preparing,
    Prepared,
    Started,
    Killing,
    /// Nothing is left but the reports that the head may not have got.
    Freed,
}

#[derive(Debug)]
pub(super) struct LocalJob {
    phase: LocalPhase,
    /// Those that have not exited.
    pub(super) ranks: BTreeSet<u32>,
}

impl Agent {
    pub(super) fn node(&self) -> NodeId {
        self.description.node
    }

    /// Whether anything but reports is left of any job.
    pub(super) fn has_live_jobs(&self) -> bool {
        self.jobs.values().any(|job| job.phase != LocalPhase::Freed)
    }

    /// Whether its ranks run here.
    pub(super) fn has_started(&self, job: JobId) -> bool {
        self.phase(job) == Some(LocalPhase::Started)
    }

    /// Whether anything but reports is left of this one here.
    pub(super) fn has_live_job(&self, job: JobId) -> bool {
        self.phase(job).is_some_and(|phase| phase != LocalPhase::Freed)
    }

    /// This node's part of a command.
    pub(super) fn carry_out(&mut self, now: Nanos, command: Command) {
        match command {
            Command::Prepare(spec) => {
                self.lease.renew(now);
                self.prepare(spec);
            }
            Command::ProgramChunk { hash, offset, total, data } => {
                self.push(AgentAction::StoreProgram { hash, offset, total, data });
            }
            Command::ProgramMissing(hash) => self.push(AgentAction::ProgramMissing(hash)),
            Command::Start { job, addresses, max_datagram } => {
                self.start(job, addresses, max_datagram);
            }
            Command::Signal { job, signal } => {
                if self.phase(job) == Some(LocalPhase::Started) {
                    self.push(AgentAction::Signal { job, signal });
                }
            }
            Command::Input { job, data } => {
                if matches!(self.phase(job), Some(LocalPhase::Prepared | LocalPhase::Started)) {
                    self.push(AgentAction::Input { job, data });
                }
            }
            Command::Kill { job } => self.kill(job),
            Command::Timetable(timetable) => {
                if timetable.generation > self.generation {
                    self.generation = timetable.generation;
                    let own = columns_of(&timetable, &NodeSet::from_nodes([self.node()]));
                    self.push(AgentAction::Apply(own));
                }
            }
            Command::Lease { nanos } => self.lease.grant(now, nanos),
            Command::Sample { request } => self.push(AgentAction::Sample { request }),
            Command::SamplePeers { request, job } => {
                self.push(AgentAction::SamplePeers { request, job });
            }
            Command::Shutdown => self.shut_down(now),
            Command::Forget { job } => {
                if self.phase(job) == Some(LocalPhase::Freed) {
                    self.jobs.remove(&job);
                }
            }
        }
    }

    fn phase(&self, job: JobId) -> Option<LocalPhase> {
        self.jobs.get(&job).map(|job| job.phase)
    }

    fn prepare(&mut self, spec: Box<JobSpec>) {
        let (id, node) = (spec.job, self.node());
        if let Some(job) = self.jobs.get(&id) {
            // Asked twice. While it is being prepared the answer is to come; if there is none when
            // that is over, `Freed` comes instead.
            if job.phase == LocalPhase::Freed {
                self.keep_freed(id, &[node]);
            }
            return;
        }
        let Some(part) = spec.layout.iter().find(|part| part.node == node) else {
            return self.refuse(id, "it has no rank on this node");
        };
        if self.stopping.is_some() {
            return self.refuse(id, "this node is shutting down; try again later");
        }
        let ranks = rank_numbers(part.first, part.count).into_iter().collect();
        self.jobs.insert(id, LocalJob { phase: LocalPhase::Preparing, ranks });
        self.push(AgentAction::Prepare(spec));
    }

    fn refuse(&mut self, job: JobId, why: &str) {
        let message = alloc::format!("job {job} cannot be prepared on node {}: {why}", self.node());
        let refusal = Refusal { kind: RefusalKind::Internal, message };
        self.answer(job, Err(refusal));
    }

    fn answer(&mut self, job: JobId, result: Result<PreparedRanks, Refusal>) {
        let node = self.node();
        self.keep_prepared(job, Vec::from([PreparedNode { node, result }]));
    }

    pub(super) fn prepared(&mut self, job: JobId, result: Result<PreparedRanks, Refusal>) {
        let Some(local) = self.jobs.get_mut(&job) else { return };
        if local.phase != LocalPhase::Preparing {
            return;
        }
        if result.is_ok() {
            local.phase = LocalPhase::Prepared;
        }
        self.answer(job, result);
    }

    pub(super) fn program_needed(&mut self, job: JobId, hash: ContentHash) {
        if self.phase(job) == Some(LocalPhase::Preparing) {
            let node = self.node();
            self.keep_wanted(job, hash, &[node]);
        }
    }

    /// A second `Start` (the head repeats it when it cannot know) starts nothing.
    fn start(&mut self, job: JobId, addresses: Vec<RankAddress>, max_datagram: u16) {
        let Some(local) = self.jobs.get_mut(&job) else { return };
        if local.phase == LocalPhase::Prepared {
            local.phase = LocalPhase::Started;
            self.push(AgentAction::Start { job, addresses, max_datagram });
        }
    }

    pub(super) fn started(&mut self, job: JobId, result: Result<(), Refusal>) {
        if let Err(refusal) = result
            && self.phase(job) == Some(LocalPhase::Started)
        {
            self.answer(job, Err(refusal));
        }
    }

    pub(super) fn rank_exited(&mut self, job: JobId, rank: u32, status: RankStatus) {
        let Some(local) = self.jobs.get_mut(&job) else { return };
        let known = local.ranks.remove(&rank);
        let ours = matches!(local.phase, LocalPhase::Killing | LocalPhase::Freed);
        if known && !ours && !status.success() {
            let node = self.node();
            self.keep_failed(job, rank, node, status);
        }
    }

    pub(super) fn freed(&mut self, job: JobId) {
        let node = self.node();
        let Some(local) = self.jobs.get_mut(&job) else { return };
        if local.phase == LocalPhase::Freed {
            return;
        }
        // Gone without an order and without its ranks having exited: that is not success.
        let lost = local.phase != LocalPhase::Killing && !local.ranks.is_empty();
        local.phase = LocalPhase::Freed;
        local.ranks.clear();
        if lost {
            self.keep_abandoned(job, &[node]);
        }
        self.keep_freed(job, &[node]);
    }

    fn kill(&mut self, job: JobId) {
        let local = self
            .jobs
            .entry(job)
            .or_insert_with(|| LocalJob { phase: LocalPhase::Prepared, ranks: BTreeSet::new() });
        match local.phase {
            LocalPhase::Killing => {}
            LocalPhase::Freed => {
                let node = self.node();
                self.keep_freed(job, &[node]);
            }
            LocalPhase::Preparing | LocalPhase::Prepared | LocalPhase::Started => {
                local.phase = LocalPhase::Killing;
                self.push(AgentAction::Kill { job });
            }
        }
    }

    fn live_jobs(&self) -> Vec<JobId> {
        let live = self.jobs.iter().filter(|(_, job)| {
            matches!(job.phase, LocalPhase::Preparing | LocalPhase::Prepared | LocalPhase::Started)
        });
        live.map(|(&job, _)| job).collect()
    }

    pub(super) fn check_lease(&mut self, now: Nanos) {
        if !self.lease.take_expired(now) {
            return;
        }
        let jobs = self.live_jobs();
        if jobs.is_empty() {
            return;
        }
        self.push(AgentAction::LeaseExpired);
        let node = self.node();
        for job in jobs {
            self.keep_abandoned(job, &[node]);
            self.kill(job);
        }
    }

    fn shut_down(&mut self, now: Nanos) {
        self.stopping.get_or_insert(now.saturating_add(CHILDREN_GRACE));
        for job in self.live_jobs() {
            self.kill(job);
        }
    }

    /// The name people see, for messages.
    pub fn name(&self) -> &String {
        &self.description.name
    }
}
