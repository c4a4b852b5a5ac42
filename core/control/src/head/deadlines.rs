//! Times at which something is due for jobs.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::JobId;

use crate::message::Nanos;

/// A time for each of some jobs.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    ordered: BTreeSet<(Nanos, JobId)>,
    /// By job: what is in `ordered`.
    of: BTreeMap<JobId, Nanos>,
}

impl Deadlines {
    /// Sets the time of a job, in the place of an earlier one.
    pub(super) fn set(&mut self, job: JobId, at: Nanos) {
        self.forget(job);
        self.ordered.insert((at, job));
        self.of.insert(job, at);
    }

    /// The job has none any more.
    pub(super) fn forget(&mut self, job: JobId) {
        if let Some(at) = self.of.remove(&job) {
            self.ordered.remove(&(at, job));
        }
    }

    /// The jobs whose time has come, earliest first.
    pub(super) fn due(&self, now: Nanos) -> Vec<JobId> {
        let due = self.ordered.iter().take_while(|(at, _)| *at <= now);
        due.map(|&(_, job)| job).collect()
    }

    /// The earliest time.
    pub(super) fn first(&self) -> Option<Nanos> {
        self.ordered.first().map(|&(at, _)| at)
    }
}
