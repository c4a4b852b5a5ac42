//! Runner of replications on all cores.

use rayon::prelude::*;

use super::engine;
use super::model::Model;
use super::plan::Plan;
use super::report::Report;
use crate::engine::Monitor;
use crate::error::SimError;

/// Extent of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Seconds; `None`: until all calls of lists have ended.
    pub time_s: Option<f64>,
    /// Seconds at the beginning that are not measured.
    pub warm_up_s: f64,
    /// Independent repetitions.
    pub replications: u32,
    /// Seed of the first; later ones count up from it.
    pub seed: u64,
}

/// Most replications of a model.
const MOST_REPLICATIONS: u32 = 10_000;

impl Options {
    fn check(&self, model: &Model) -> Result<(), SimError> {
        let wrong = |name, value: String, advice| Err(SimError::Parameter { name, value, advice });
        if self.replications == 0 || self.replications > MOST_REPLICATIONS {
            let advice = "give 1 to 10000 replications";
            return wrong("--replications", self.replications.to_string(), advice);
        }
        let right = |time: f64| time.is_finite() && (0.0..=1e9).contains(&time);
        if !right(self.warm_up_s) || self.time_s.is_some_and(|time| !right(time)) {
            let advice = "give seconds, 1000000000 at most";
            return wrong("--time or --warm-up", format!("{self:?}"), advice);
        }
        if self.time_s.is_some_and(|time| time <= self.warm_up_s) {
            let advice = "it must be less than --time";
            return wrong("--warm-up", self.warm_up_s.to_string(), advice);
        }
        if self.time_s.is_none() && self.warm_up_s > 0.0 {
            let advice =
                "calls of a list that are simulated to their end are all measured; give --time too";
            return wrong("--warm-up", self.warm_up_s.to_string(), advice);
        }
        let ends = |source: &_| matches!(source, super::model::Source::List(_));
        if self.time_s.is_none() && !model.clients.iter().all(|clients| ends(&clients.source)) {
            let advice = "only calls of a list come to an end by themselves";
            return wrong("--time", "none".to_owned(), advice);
        }
        Ok(())
    }
}

/// Simulates a model. The result depends only on model and options.
///
/// # Errors
/// The model or an option makes no sense, or the monitor says stop.
pub fn run(model: &Model, options: &Options, monitor: &Monitor) -> Result<Report, SimError> {
    let mut reports = run_all(&[(model.clone(), *options)], monitor)?;
    reports.pop().ok_or(SimError::Empty)
}

/// Simulates several models, in their order.
///
/// # Errors
/// As [`run`]; the first error in the order of the models. Other simulations stop soon.
pub fn run_all(cases: &[(Model, Options)], monitor: &Monitor) -> Result<Vec<Report>, SimError> {
    let mut plans = Vec::new();
    let mut single = Vec::new();
    for (index, (model, options)) in cases.iter().enumerate() {
        options.check(model)?;
        plans.push(Plan::new(model)?);
        let seeds = 0..u64::from(options.replications);
        single.extend(seeds.map(|number| (index, options.seed.wrapping_add(number))));
    }
    let one = |&(index, seed): &(usize, u64)| {
        let result = engine::run(&plans[index], &cases[index].1, seed, monitor);
        if result.is_err() {
            monitor.cancel();
        }
        result.map(|tally| (index, tally))
    };
    let results: Vec<_> = single.par_iter().map(one).collect();
    let mut tallies: Vec<Vec<_>> = cases.iter().map(|_| Vec::new()).collect();
    let mut cancelled = false;
    for result in results {
        match result {
            Ok((index, tally)) => tallies[index].push(tally),
            Err(SimError::Cancelled) => cancelled = true,
            Err(error) => return Err(error),
        }
    }
    if cancelled {
        return Err(SimError::Cancelled);
    }
    let made = cases.iter().zip(plans.iter().zip(&tallies));
    Ok(made.map(|((_, options), (plan, tallies))| Report::new(plan, options, tallies)).collect())
}
