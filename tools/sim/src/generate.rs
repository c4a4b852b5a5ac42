//! Synthetic workloads (SCore-D paper, §7.2). Arrivals, sizes and service times come from three independent
//! streams of one seed. So every policy gets the same jobs, and sizes and services are the same at every
//! load.

use serde::Serialize;

use crate::error::SimError;
use crate::job::{Job, LONGEST_S, SECOND, Source, Workload};
use crate::random::RandomStream;

/// Most jobs that are generated; a larger number is surely a mistake.
const MOST_JOBS: f64 = 50e6;

/// Distribution of sizes over the powers of two (§7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// All sizes are equally likely.
    Uniform,
    /// Twice the size, twice as likely.
    Proportional,
    /// Twice the size, half as likely.
    Inverse,
}

impl Sizes {
    /// The sizes up to `largest` (powers of two) and their probabilities.
    fn law(self, largest: u32) -> Vec<(u32, f64)> {
        let sizes = (0..32).map(|power| 1u32 << power).take_while(|&size| size <= largest);
        let weight = |size: u32| match self {
            Self::Uniform => 1.0,
            Self::Proportional => f64::from(size),
            Self::Inverse => 1.0 / f64::from(size),
        };
        let weighted: Vec<(u32, f64)> = sizes.map(|size| (size, weight(size))).collect();
        let total: f64 = weighted.iter().map(|&(_, weight)| weight).sum();
        weighted.into_iter().map(|(size, weight)| (size, weight / total)).collect()
    }
}

/// Distribution of service times, in units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// Exponential, rounded to whole units, at least 1.
    Exponential {
        /// Mean before rounding.
        mean: f64,
    },
    /// Whole numbers, all equally likely.
    Uniform {
        /// The least.
        low: u64,
        /// The most.
        high: u64,
    },
}

impl Service {
    fn mean(self) -> f64 {
        match self {
            Self::Exponential { mean } => mean,
            #[allow(clippy::cast_precision_loss)]
            Self::Uniform { low, high } => (low as f64 + high as f64) / 2.0,
        }
    }

    fn draw(self, draws: &mut RandomStream) -> u64 {
        match self {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Self::Exponential { mean } => ((draws.exponential() * mean).round() as u64).max(1),
            Self::Uniform { low, high } => low + draws.below(high - low + 1),
        }
    }

    fn check(self) -> Result<(), SimError> {
        let (right, value) = match self {
            Self::Exponential { mean } => {
                (mean >= 1.0 && mean <= LONGEST_S as f64 / 100.0, format!("exp:{mean}"))
            }
            Self::Uniform { low, high } => {
                (low >= 1 && low <= high && high <= LONGEST_S, format!("uniform:{low}:{high}"))
            }
        };
        let advice = "give exp:MEAN with a mean from 1 to 10000000 units, or uniform:LOW:HIGH with whole units from 1";
        if right { Ok(()) } else { Err(SimError::Parameter { name: "--service", value, advice }) }
    }
}

/// Common part of both kinds of workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorkloadMix {
    /// Processors of the machine.
    pub procs: u32,
    /// How sizes are distributed.
    pub sizes: Sizes,
    /// The largest size; `None`: the largest power of two below the machine's size. (Jobs of the machine's
    /// own size share time only, so §7.2 leaves them out.)
    pub largest: Option<u32>,
    /// How long jobs compute.
    pub service: Service,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Poisson arrivals at one load (§7.2).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Poisson {
    /// Sizes and services.
    #[serde(flatten)]
    pub mix: WorkloadMix,
    /// W_target: the share of the machine that would be busy without any loss.
    pub load: f64,
    /// Time in which jobs arrive, in units.
    pub arrivals: u64,
    /// Simulated time in units, not less than the time of arrivals. `None`: until the last job ends.
    pub units: Option<u64>,
}

/// Load that rises in steps of equal length and height from one step's height up to `load` (§7.2.2).
///
/// The paper says that load rises by 5 % with every 5 % of the time, and that it is about 133 % at the end.
/// Only one reading of this gives the numbers of jobs in its tables 7.3 and 7.4 (403 of 1,524 have ended at
/// half the time). It has twenty equal steps, the first with a twentieth of the last one's load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gradient {
    /// Sizes and services.
    #[serde(flatten)]
    pub mix: WorkloadMix,
    /// Load of the last step.
    pub load: f64,
    /// Time in which jobs arrive, in units.
    pub arrivals: u64,
    /// Simulated time in units; `None`: until the last job ends.
    pub units: Option<u64>,
}

/// Steps of a gradient.
pub const STEPS: u32 = 20;

impl WorkloadMix {
    fn check(&self) -> Result<Vec<(u32, f64)>, SimError> {
        self.service.check()?;
        if self.procs == 0 || self.procs > 1 << 24 {
            let advice = "give a machine of 1 to 16777216 processors";
            return Err(parameter("--procs", &self.procs, advice));
        }
        let below = 1u32 << (31 - self.procs.saturating_sub(1).max(1).leading_zeros());
        let largest = self.largest.unwrap_or(below);
        if largest == 0 || largest > self.procs {
            let advice = "give a size from 1 to the machine's size";
            return Err(parameter("--max-size", &largest, advice));
        }
        Ok(self.sizes.law(largest))
    }

    /// Mean interval between arrivals at load 1, in units (T_interval of §7.2).
    fn interval(&self, law: &[(u32, f64)]) -> f64 {
        let size: f64 = law.iter().map(|&(size, share)| f64::from(size) * share).sum();
        size * self.service.mean() / f64::from(self.procs)
    }

    /// Jobs that arrive at these instants (whole units, ascending).
    fn jobs(&self, law: &[(u32, f64)], instants: impl Iterator<Item = u64>) -> Vec<Job> {
        let mut size_draws = RandomStream::new(self.seed, 1);
        let mut service_draws = RandomStream::new(self.seed, 2);
        let mut number = 0;
        let mut make = |instant: u64| {
            number += 1;
            let service = self.service.draw(&mut service_draws).min(LONGEST_S) * SECOND;
            let size = pick(law, size_draws.unit());
            let submit = instant * SECOND;
            Job {
                number,
                submit,
                service,
                estimate: service,
                size,
                memory: 0,
                user: 0,
                priority: 1,
            }
        };
        instants.map(&mut make).collect()
    }
}

fn parameter(name: &'static str, value: &dyn ToString, advice: &'static str) -> SimError {
    SimError::Parameter { name, value: value.to_string(), advice }
}

fn pick(law: &[(u32, f64)], mut at: f64) -> u32 {
    for &(size, share) in law {
        if at <= share {
            return size;
        }
        at -= share;
    }
    // Only rounding leads here.
    law.last().map_or(1, |&(size, _)| size)
}

fn check_length(
    arrivals: u64,
    units: Option<u64>,
    load: f64,
    interval: f64,
) -> Result<(), SimError> {
    let simulated = units.unwrap_or(arrivals);
    if simulated == 0 || simulated > LONGEST_S {
        return Err(parameter("--units", &simulated, "give 1 to 1000000000 units"));
    }
    if arrivals == 0 || arrivals > simulated {
        let advice = "jobs arrive for at least one unit, and no longer than is simulated";
        return Err(parameter("--arrivals", &arrivals, advice));
    }
    // Also false for NaN.
    if !(load > 0.0 && load <= 10.0) {
        return Err(parameter("--load", &load, "give a load above 0 and at most 10"));
    }
    #[allow(clippy::cast_precision_loss)]
    let jobs = arrivals as f64 * load / interval;
    if jobs > MOST_JOBS {
        let advice = "that makes over 50 million jobs; give fewer units or longer service";
        return Err(parameter("--units", &simulated, advice));
    }
    Ok(())
}

/// The instant `at` as a whole unit.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(at: f64) -> u64 {
    at as u64
}

impl Poisson {
    /// The jobs.
    ///
    /// # Errors
    /// A parameter is out of its range.
    pub fn workload(&self) -> Result<Workload, SimError> {
        let law = self.mix.check()?;
        let interval = self.mix.interval(&law);
        check_length(self.arrivals, self.units, self.load, interval)?;
        let mut draws = RandomStream::new(self.mix.seed, 0);
        let mut at = 0.0;
        let instants = std::iter::from_fn(|| {
            at += draws.exponential() * interval / self.load;
            Some(whole(at)).filter(|&instant| instant < self.arrivals)
        });
        let jobs = self.mix.jobs(&law, instants);
        let horizon = self.units.map(|units| units * SECOND);
        Ok(Workload { jobs, horizon, source: Source::Poisson(*self) })
    }
}

impl Gradient {
    /// The jobs.
    ///
    /// # Errors
    /// A parameter is out of its range.
    pub fn workload(&self) -> Result<Workload, SimError> {
        let law = self.mix.check()?;
        let interval = self.mix.interval(&law);
        check_length(self.arrivals, self.units, self.load, interval)?;
        let mut draws = RandomStream::new(self.mix.seed, 0);
        let mut clock = Clock { step: 0, at: 0.0, gradient: self, interval };
        let instants = std::iter::from_fn(|| clock.next(draws.exponential()));
        let jobs = self.mix.jobs(&law, instants);
        let horizon = self.units.map(|units| units * SECOND);
        Ok(Workload { jobs, horizon, source: Source::Gradient(*self) })
    }

    /// The target load `unit` units after the start; 0 after the last arrival.
    pub fn load_at(&self, unit: u64) -> f64 {
        if unit >= self.arrivals {
            return 0.0;
        }
        let step = u128::from(unit) * u128::from(STEPS) / u128::from(self.arrivals.max(1));
        #[allow(clippy::cast_precision_loss)]
        let height = (step + 1) as f64;
        self.load * height / f64::from(STEPS)
    }
}

/// Arrivals with a constant rate within each step.
struct Clock<'a> {
    step: u32,
    at: f64,
    gradient: &'a Gradient,
    interval: f64,
}

impl Clock<'_> {
    /// The next arrival, after `left` mean intervals of the rates until then.
    fn next(&mut self, mut left: f64) -> Option<u64> {
        #[allow(clippy::cast_precision_loss)]
        let length = self.gradient.arrivals as f64 / f64::from(STEPS);
        while self.step < STEPS {
            let load = self.gradient.load * f64::from(self.step + 1) / f64::from(STEPS);
            let rate = load / self.interval;
            let end = length * f64::from(self.step + 1);
            if self.at + left / rate < end {
                self.at += left / rate;
                return Some(whole(self.at));
            }
            left -= (end - self.at) * rate;
            self.at = end;
            self.step += 1;
        }
        None
    }
}
