//! Running jobs with the times at which they are expected to end.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::Machine;
use super::pool::FreeProcessors;
use crate::JobId;

/// Expected ends, by the jobs' estimates.
///
/// A job that overruns its estimate goes on. Its estimate is doubled until it lies in the future:
/// the plan treats it as unknown. A job taken over from another policy has no estimate, so the plan
/// assumes that it never ends.
#[derive(Debug, Default)]
pub(crate) struct RunningJobs {
    jobs: BTreeMap<JobId, RunningJob>,
    ends: BTreeSet<(u64, JobId)>,
}

#[derive(Clone, Copy, Debug)]
struct RunningJob {
    start: u64,
    end: u64,
    nodes: u32,
}

impl RunningJobs {
    pub(crate) fn insert(&mut self, job: JobId, nodes: u32, start: u64, estimate: Option<u64>) {
        let end = estimate.map_or(u64::MAX, |estimate| start.saturating_add(estimate));
        self.jobs.insert(job, RunningJob { start, end, nodes });
        self.ends.insert((end, job));
    }

    /// When the job was expected to end.
    pub(crate) fn remove(&mut self, job: JobId) -> Option<u64> {
        let RunningJob { end, .. } = self.jobs.remove(&job)?;
        self.ends.remove(&(end, job));
        Some(end)
    }

    /// When the first job is expected to end; the end of time if none runs.
    pub(crate) fn first_end(&self) -> u64 {
        self.ends.first().map_or(u64::MAX, |&(end, _)| end)
    }

    /// Gives more time to jobs that should have ended before `now`, and returns whether there were
    /// any. A job that is due exactly now may still end in time.
    pub(crate) fn prolong(&mut self, now: u64) -> bool {
        let mut any = false;
        while let Some(&(end, job)) = self.ends.first() {
            if end >= now {
                break;
            }
            any = true;
            self.ends.pop_first();
            let Some(run) = self.jobs.get_mut(&job) else { continue };
            let mut length = (end - run.start).max(1);
            while run.start.saturating_add(length) < now {
                length = length.saturating_mul(2);
            }
            run.end = run.start.saturating_add(length);
            self.ends.insert((run.end, job));
        }
        any
    }

    /// How many nodes become free and when, in order of time; at most one entry for each job.
    pub(crate) fn releases(&self, machine: &Machine<FreeProcessors>) -> Vec<(u64, u32)> {
        if machine.pool.regular() {
            return self.ends.iter().map(|(end, job)| (*end, self.jobs[job].nodes)).collect();
        }
        let mut last = BTreeMap::new();
        for (job, nodes) in machine.placed.jobs() {
            let end = self.jobs.get(job).map_or(u64::MAX, |run| run.end);
            for &node in nodes.iter().filter(|&&node| machine.pool.is_up(node)) {
                let latest = last.entry(node).or_insert(end);
                *latest = end.max(*latest);
            }
        }
        let mut releases = BTreeMap::new();
        for end in last.into_values() {
            *releases.entry(end).or_insert(0) += 1;
        }
        releases.into_iter().collect()
    }
}
