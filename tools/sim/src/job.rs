//! Jobs and lists of jobs, from any source.

use serde::Serialize;

use crate::error::SimError;

/// Nanoseconds in a second, which is also the unit of synthetic workloads.
pub const SECOND: u64 = 1_000_000_000;

/// Longest time that a list of jobs may name, in seconds: 31 years. Sums of a million such times
/// still fit.
pub const LONGEST_S: u64 = 1_000_000_000;

/// One job of a list. Times are nanoseconds of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number in its original list.
    pub number: u64,
    /// Time of submission.
    pub submit: u64,
    /// Time that it computes on processors of its own.
    pub service: u64,
    /// Its user's estimate of the run time, not less than the run time.
    pub estimate: u64,
    /// Processors it needs, all at once.
    pub size: u32,
    /// Bytes of memory for each of them; 0 if it is not known.
    pub memory: u64,
    /// Its user.
    pub user: u32,
    /// As [`kumi_sched::Request::priority`].
    pub priority: u16,
}

/// Source of a list of jobs, as in the output.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Source {
    /// Poisson arrivals at one load.
    Poisson(crate::generate::Poisson),
    /// Load that rises step by step.
    Gradient(crate::generate::Gradient),
    /// A trace in the Standard Workload Format.
    Swf(crate::swf::Summary),
    /// The jobs that a cluster has run.
    History(crate::history::Summary),
    /// Made by the caller.
    Given,
}

/// Jobs in order of submission, and how long they are simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Ascending by `submit`; jobs of one instant keep the order of submission.
    pub jobs: Vec<Job>,
    /// End of the simulation, even if jobs still run; `None`: the end of all jobs.
    pub horizon: Option<u64>,
    /// Source of the jobs.
    pub source: Source,
}

impl Workload {
    /// Makes a list of the caller's jobs, sorted by submission. It runs until all jobs have ended.
    pub fn given(mut jobs: Vec<Job>) -> Self {
        jobs.sort_by_key(|job| job.submit);
        Self { jobs, horizon: None, source: Source::Given }
    }

    /// The jobs with ranks of so many processors each. One that does not fill its last rank gets more processors.
    #[must_use]
    pub fn in_ranks_of(mut self, processors: u32) -> Self {
        for job in &mut self.jobs {
            job.size = job.size.checked_next_multiple_of(processors.max(1)).unwrap_or(job.size);
        }
        self
    }

    /// Checks that a machine of `procs` processors can run this list.
    ///
    /// # Errors
    /// There is no job, or one wants no processor or more than there are.
    pub fn check(&self, procs: u32) -> Result<(), SimError> {
        if self.jobs.is_empty() {
            return Err(SimError::Empty);
        }
        if let Some(job) = self.jobs.iter().find(|job| job.size == 0) {
            return Err(SimError::NoProcessors { job: job.number });
        }
        let largest = self.jobs.iter().max_by_key(|job| job.size);
        match largest {
            Some(job) if job.size > procs => {
                Err(SimError::TooLarge { job: job.number, size: job.size, procs })
            }
            _ => Ok(()),
        }
    }
}
