//! Sweep: many simulations on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::{self, Monitor, Options, Outcome, StopSignal};
use crate::error::SimError;
use crate::generate::{Gradient, Poisson};
use crate::job::Workload;
use crate::policies;
use crate::report::Report;

/// Source of a case's jobs. Synthetic jobs exist only while their case runs, because all at once would not
/// fit into memory.
#[derive(Clone, Debug)]
pub enum JobSource {
    /// Poisson arrivals.
    Poisson(Poisson),
    /// Rising load.
    Gradient(Gradient),
    /// An existing list, shared by the cases that use it.
    Made(Arc<Workload>),
}

impl JobSource {
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

/// Result of one case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// Its figures.
    pub report: Report,
    /// Its jobs.
    pub workload: Arc<Workload>,
    /// Outcome of each of them.
    pub outcome: Outcome,
}

/// One simulation of a sweep.
#[derive(Clone, Debug)]
pub struct Case {
    /// The policy's name.
    pub policy: String,
    /// The target load, if there is one.
    pub load: Option<f64>,
    /// Seed of the random numbers; `None` if there are none.
    pub seed: Option<u64>,
    /// The jobs.
    pub jobs: JobSource,
    /// The machine.
    pub options: Options,
}

impl Case {
    /// Runs it.
    ///
    /// # Errors
    /// As [`engine::run`], or the policy is unknown.
    pub fn run(&self, monitor: &Monitor) -> Result<CaseResult, SimError> {
        let failed = AtomicUsize::new(usize::MAX);
        self.run_watched(StopSignal { monitor, place: 0, failed: &failed })
    }

    fn run_watched(&self, watch: StopSignal<'_>) -> Result<CaseResult, SimError> {
        watch.check()?;
        let mut policy = policies::by_name(&self.policy)?;
        let Self { policy: name, options, seed, .. } = self;
        let mut workload = self.jobs.workload()?;
        if options.rank_procs > 1 {
            workload = Arc::new(Workload::clone(&workload).in_ranks_of(options.rank_procs));
        }
        let outcome = engine::run_watched(name, policy.as_mut(), &workload, options, watch)?;
        let report = Report::new(name, *seed, &workload, options, &outcome);
        Ok(CaseResult { report, workload, outcome })
    }
}

/// Runs all cases, as many at a time as there are cores, beginning in their order. It passes each result with
/// its place to `each`, and keeps the return values in the order of the cases.
///
/// # Errors
/// The error of the first case, in their order, that fails or for which `each` fails. Later cases stop soon.
pub fn run<T: Send>(
    cases: &[Case],
    monitor: &Monitor,
    each: impl Fn(usize, &Case, CaseResult) -> Result<T, SimError> + Sync,
) -> Result<Vec<T>, SimError> {
    for case in cases {
        policies::by_name(&case.policy)?;
        if let JobSource::Made(workload) = &case.jobs {
            workload.check(case.options.procs)?;
        }
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let empty = || cases.iter().map(|_| None).collect::<Vec<Option<Result<T, SimError>>>>();
    let results = Mutex::new(empty());
    rayon::broadcast(|_| {
        while let Some((place, case)) = take(cases, &next) {
            let watch = StopSignal { monitor, place, failed: &failed };
            let result = case.run_watched(watch).and_then(|done| each(place, case, done));
            if result.is_err() {
                failed.fetch_min(place, Ordering::Relaxed);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(result);
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Every place has a result: a case without one would have failed.
    results.into_iter().map(|result| result.unwrap_or(Err(SimError::Cancelled))).collect()
}

/// The next case that no thread runs yet.
fn take<'a>(cases: &'a [Case], next: &AtomicUsize) -> Option<(usize, &'a Case)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    Some((place, cases.get(place)?))
}
