//! Many simulations on all cores.

use std::sync::Arc;

use rayon::prelude::*;

use crate::engine::{self, Monitor, Options, Outcome};
use crate::error::SimError;
use crate::job::Workload;
use crate::policies;
use crate::report::Report;

/// One simulation of a sweep.
#[derive(Clone, Debug)]
pub struct Case {
    /// The policy's name.
    pub policy: String,
    /// The load that was aimed at, where there is one.
    pub load: Option<f64>,
    /// Where random numbers begin; `None` where there are none.
    pub seed: Option<u64>,
    /// The jobs, shared by the cases that have the same.
    pub workload: Arc<Workload>,
    /// The machine.
    pub options: Options,
}

impl Case {
    /// Runs it.
    ///
    /// # Errors
    /// As [`engine::run`], or there is no such policy.
    pub fn run(&self, monitor: &Monitor) -> Result<(Report, Outcome), SimError> {
        let mut policy = policies::by_name(&self.policy)?;
        let Self { policy: name, workload, options, seed, .. } = self;
        let outcome = engine::run(name, policy.as_mut(), workload, options, monitor)?;
        Ok((Report::new(name, *seed, workload, options, &outcome), outcome))
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
    each: impl Fn(&Case, Report, Outcome) -> T + Sync,
) -> Result<Vec<T>, SimError> {
    for case in cases {
        policies::by_name(&case.policy)?;
        case.workload.check(case.options.procs)?;
    }
    let one = |case: &Case| {
        let result = case.run(monitor).map(|(report, outcome)| each(case, report, outcome));
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
