//! Jobs of the agent's own node, with the phase that each is in.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::JobId;

/// What the node has of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalPhase {
    Preparing,
    Prepared,
    Started,
    Killing,
    /// Nothing is left but output that the head does not have.
    Draining,
    /// Nothing is left but the reports that the head may not have got.
    Freed,
}

#[derive(Debug)]
struct LocalJob {
    phase: LocalPhase,
    /// Ranks that have not exited.
    ranks: BTreeSet<u32>,
    /// A former daemon has seen its end, which is to be told again.
    over: bool,
}

impl LocalJob {
    /// Whether it is neither gone nor being killed.
    fn runs(&self) -> bool {
        let runs = [LocalPhase::Preparing, LocalPhase::Prepared, LocalPhase::Started];
        !self.over && runs.contains(&self.phase)
    }
}

/// The jobs of the node, until the head has recorded their end.
#[derive(Debug, Default)]
pub(super) struct LocalJobs {
    jobs: BTreeMap<JobId, LocalJob>,
}

impl LocalJobs {
    pub(super) fn phase(&self, job: JobId) -> Option<LocalPhase> {
        self.jobs.get(&job).map(|job| job.phase)
    }

    /// Whether anything but reports is left of any job.
    pub(super) fn any_live(&self) -> bool {
        self.jobs.values().any(|job| job.phase != LocalPhase::Freed)
    }

    /// Whether anything but reports is left of this job.
    pub(super) fn is_live(&self, job: JobId) -> bool {
        self.phase(job).is_some_and(|phase| phase != LocalPhase::Freed)
    }

    /// Whether anything but output and reports is left of this job.
    pub(super) fn has_ranks(&self, job: JobId) -> bool {
        let gone = [LocalPhase::Draining, LocalPhase::Freed];
        self.phase(job).is_some_and(|phase| !gone.contains(&phase))
    }

    /// The jobs that are neither gone nor being killed.
    pub(super) fn running(&self) -> Vec<JobId> {
        let running = self.jobs.iter().filter(|(_, job)| job.runs());
        running.map(|(&job, _)| job).collect()
    }

    /// Whether there are such.
    pub(super) fn any_running(&self) -> bool {
        self.jobs.values().any(LocalJob::runs)
    }

    /// All jobs with the ranks that have not exited, ascending.
    pub(super) fn ranks(&self) -> Vec<(JobId, Vec<u32>)> {
        self.jobs.iter().map(|(&id, job)| (id, job.ranks.iter().copied().collect())).collect()
    }

    /// A job begins to be prepared.
    pub(super) fn begin(&mut self, job: JobId, ranks: Vec<u32>) {
        let ranks = ranks.into_iter().collect();
        self.jobs.insert(job, LocalJob { phase: LocalPhase::Preparing, ranks, over: false });
    }

    /// A former daemon started a job, which may be `over`.
    pub(super) fn adopt(&mut self, job: JobId, ranks: Vec<u32>, over: bool) {
        let ranks = ranks.into_iter().collect();
        self.jobs.insert(job, LocalJob { phase: LocalPhase::Started, ranks, over });
    }

    /// Moves a job from one phase to the next. Returns whether it was in the first.
    pub(super) fn advance(&mut self, job: JobId, from: LocalPhase, to: LocalPhase) -> bool {
        let job = self.jobs.get_mut(&job).filter(|job| job.phase == from);
        job.map(|job| job.phase = to).is_some()
    }

    /// A rank has exited. Returns whether the node itself did not have it killed.
    pub(super) fn remove_rank(&mut self, job: JobId, rank: u32) -> bool {
        let Some(local) = self.jobs.get_mut(&job) else { return false };
        let known = local.ranks.remove(&rank);
        known && local.phase != LocalPhase::Killing
    }

    /// Nothing of the job is left but output. Returns whether it vanished, without an order and with ranks that
    /// had not exited; `None` if that was known, or the job never was.
    pub(super) fn drain(&mut self, job: JobId) -> Option<bool> {
        let gone = [LocalPhase::Draining, LocalPhase::Freed];
        let local = self.jobs.get_mut(&job).filter(|job| !gone.contains(&job.phase))?;
        let vanished = local.phase != LocalPhase::Killing && !local.ranks.is_empty();
        local.phase = LocalPhase::Draining;
        local.ranks.clear();
        Some(vanished)
    }

    /// The head has its output, too. Returns whether that is news.
    pub(super) fn free(&mut self, job: JobId) -> bool {
        self.advance(job, LocalPhase::Draining, LocalPhase::Freed)
    }

    /// The job is to be killed, known or not. Returns the phase that it was in.
    pub(super) fn kill(&mut self, job: JobId) -> LocalPhase {
        let unknown =
            || LocalJob { phase: LocalPhase::Prepared, ranks: BTreeSet::new(), over: false };
        let local = self.jobs.entry(job).or_insert_with(unknown);
        let before = local.phase;
        if !matches!(before, LocalPhase::Draining | LocalPhase::Freed) {
            local.phase = LocalPhase::Killing;
        }
        before
    }

    /// The head has recorded the end of the job.
    pub(super) fn forget(&mut self, job: JobId) {
        if self.phase(job) == Some(LocalPhase::Freed) {
            self.jobs.remove(&job);
        }
    }
}
