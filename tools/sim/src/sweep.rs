//! Many simulations on all cores.

use std::sync::Arc;

use rayon::prelude::*;

use crate::engine::{self, Monitor, Options, Outcome};
use crate::error::SimError;
use crate::generate::{Gradient, Poisson};
use crate::job::Workload;
use crate::policies;
use crate::report::Report;

/// Where a case has its jobs from. Synthetic ones are made when its turn comes and go when it is
/// over: all at once would not fit into memory.
#[derive(Clone, Debug)]
pub enum Jobs {
    /// Poisson arrivals.
    Poisson(Poisson),
    /// Rising load.
    Gradient(Gradient),
    /// There already, and shared by the cases that have the same.
    Made(Arc<Workload>),
}

impl Jobs {
    /// The list.
    ///
    /// # Errors
    /// A parameter of a synthetic one is out of its range.
    pub fn workload(&self) -> Result<Arc<Workload>, SimError> {
        match self {
            Self::Poisson(poisson) => Ok(Arc::new(poisson.workload()?)),
            Self::Gradient(gradient) => Ok(Arc::new(gradient.workload()?)),
            Self::Made(workload) => Ok(Arc::clone(workload)),
        }
    }
}

/// What came of one case.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its figures.
    pub report: Report,
    /// Its jobs.
    pub workload: Arc<Workload>,
    /// What came of each of them.
    pub outcome: Outcome,
}

/// One simulation of a sweep.
#[derive(Clone, Debug)]
pub struct Case {
    /// The policy's name.
    pub policy: String,
    /// The load that was aimed at, where there is one.
    pub load: Option<f64>,
    /// Where random numbers begin; `None` where there are none.
    pub seed: Option<u64>,
    /// The jobs.
    pub jobs: Jobs,
    /// The machine.
    pub options: Options,
}

impl Case {
    /// Runs it.
    ///
    /// # Errors
    /// As [`engine::run`], or there is no such policy.
    pub fn run(&self, monitor: &Monitor) -> Result<Done, SimError> {
        let mut policy = policies::by_name(&self.policy)?;
        let Self { policy: name, options, seed, .. } = self;
        let workload = self.jobs.workload()?;
        let outcome = engine::run(name, policy.as_mut(), &workload, options, monitor)?;
        let report = Report::new(name, *seed, &workload, options, &outcome);
        Ok(Done { report, workload, outcome })
    }
}

/// Runs all cases, as many at a time as there are cores, and hands each result to `each`, which
/// makes of it what shall be kept. What is kept comes in the order of the cases.
///
/// # Errors
/// That of the first case, in their order, that has one. The others stop soon.
pub fn run<T: Send>(
    cases: &[Case],
    monitor: &Monitor,
    each: impl Fn(&Case, Done) -> T + Sync,
) -> Result<Vec<T>, SimError> {
    for case in cases {
        policies::by_name(&case.policy)?;
        if let Jobs::Made(workload) = &case.jobs {
            workload.check(case.options.procs)?;
        }
    }
    let one = |case: &Case| {
        let result = case.run(monitor).map(|done| each(case, done));
        if result.is_err() {
            monitor.cancel();
        }
        result
    };
    let results: Vec<Result<T, SimError>> = cases.par_iter().map(one).collect();
    let mut kept = Vec::with_capacity(results.len());
    let mut cancelled = false;
    for result in results {
        match result {
            Ok(value) => kept.push(value),
            Err(SimError::Cancelled) => cancelled = true,
            Err(error) => return Err(error),
        }
    }
    if cancelled { Err(SimError::Cancelled) } else { Ok(kept) }
}
