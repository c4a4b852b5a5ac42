//! Sweep: many simulations on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::{self, Monitor, Options, Outcome, StopSignal};
use crate::error::SimError;
use crate::generate::{Gradient, Poisson};
use crate::job::Workload;
use crate::policies;
use crate::report::Report;

/// Where a case has its jobs from. Synthetic ones are made when its turn comes and go when it is
/// over: all at once would not fit into memory.
#[derive(Clone, Debug)]
pub enum JobSource {
    /// Poisson arrivals.
    Poisson(Poisson),
    /// Rising load.
    Gradient(Gradient),
    /// There already, and shared by the cases that have the same.
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

/// What came of one case.
#[derive(Clone, Debug)]
pub struct CaseResult {
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
    pub jobs: JobSource,
    /// The machine.
    pub options: Options,
}

impl Case {
    /// Runs it.
    ///
    /// # Errors
    /// As [`engine::run`], or there is no such policy.
    pub fn run(&self, monitor: &Monitor) -> Result<CaseResult, SimError> {
        let failed = AtomicUsize::new(usize::MAX);
        self.run_watched(StopSignal { monitor, place: 0, failed: &failed })
    }

    fn run_watched(&self, watch: StopSignal<'_>) -> Result<CaseResult, SimError> {
        watch.check()?;
        let mut policy = policies::by_name(&self.policy)?;
        let Self { policy: name, options, seed, .. } = self;
        let workload = self.jobs.workload()?;
        let outcome = engine::run_watched(name, policy.as_mut(), &workload, options, watch)?;
        let report = Report::new(name, *seed, &workload, options, &outcome);
        Ok(CaseResult { report, workload, outcome })
    }
}

/// Runs all cases, as many at a time as there are cores, begun in their order, and hands each result
/// with its place to `each`, which makes of it what shall be kept. What is kept comes in the order of
/// the cases.
///
/// # Errors
/// That of the first case, in their order, that has one, or for which `each` has one. Those after it
/// stop soon.
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
    // Every place has a result; without one it would not have been run.
    results.into_iter().map(|result| result.unwrap_or(Err(SimError::Cancelled))).collect()
}

/// The next case that nobody runs yet.
fn take<'a>(cases: &'a [Case], next: &AtomicUsize) -> Option<(usize, &'a Case)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    Some((place, cases.get(place)?))
}
