//! The same list of jobs simulated and run on a local cluster (SCore-D paper, §7.3).
//!
//! The list is the paper's, scaled: sizes from 1 to the machine's, load rising step by step, services of 1 to
//! 15 units. A unit is a slice, as in the paper, but some hundred milliseconds instead of a second. A
//! *measured* job is a real one of the cluster. A rank on each of its nodes does light work for its service
//! ([`drive`], `kumi-bench-turns`). The list is simulated in five ways ([`columns`]):
//!
//! - without costs;
//! - with the measured costs as the simulator's parameters;
//! - with each job's own delays;
//! - the same in whole slots, so that no slot idles at a job's end;
//! - the same, with turns as short as they were.

pub mod columns;
pub mod drive;
pub mod machine;
mod recording_policy;
pub mod report;

use crate::cluster::Cluster;
use crate::error::BenchError;
use columns::{Column, Costs, Machine};
use drive::{JobRun, Ranks};
use kumi_sched::Sharing;
use kumi_sim::generate::{Gradient, Service, Sizes, WorkloadMix};
use kumi_sim::{Job, Options, SECOND, SimError, policies};
use machine::{Switching, busy_times};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Services are 1 to this many units, all equally likely.
const MOST_UNITS: u64 = 15;
/// Length of the ranks' waits, in parts of a slice.
const WAITS: u64 = 50;
/// More jobs per processor than ever occur: the simulator has no limit.
const JOBS_OF_A_PROCESSOR: u32 = 1024;
/// Time limit of a list on the cluster, as a multiple of its simulated time.
const PATIENCE: u32 = 5;

/// Parameters of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Name of the scheduling policy.
    pub policy: String,
    /// Nodes of one processor each.
    pub nodes: u32,
    /// Time in which jobs arrive, in units.
    pub units: u64,
    /// A unit, which is also the slice. Nanoseconds.
    pub unit_ns: u64,
    /// Load of the last step.
    pub peak: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Plan {
    /// The jobs in nanoseconds. A user's estimate of the run time is a slice more than the service, for the
    /// launch.
    ///
    /// # Errors
    /// A parameter is out of its range, or no job results.
    pub fn jobs(&self) -> Result<Vec<Job>, SimError> {
        let service = Service::Uniform { low: 1, high: MOST_UNITS };
        let largest = self.nodes.checked_ilog2().map(|power| 1 << power);
        let (procs, seed) = (self.nodes, self.seed);
        let mix = WorkloadMix { procs, sizes: Sizes::Uniform, largest, service, seed };
        let gradient = Gradient { mix, load: self.peak, arrivals: self.units, units: None };
        let workload = gradient.workload()?;
        workload.check(self.nodes)?;
        let scaled = |units: u64| units / SECOND * self.unit_ns;
        let scale = |job: Job| {
            let service = scaled(job.service);
            Job { submit: scaled(job.submit), service, estimate: service + self.unit_ns, ..job }
        };
        Ok(workload.jobs.into_iter().map(scale).collect())
    }

    fn options(&self) -> Options {
        Options { slice_ns: self.unit_ns, ..Options::new(self.nodes) }
    }

    fn machine(&self, options: Options) -> Machine<'_> {
        Machine { policy: &self.policy, options }
    }

    /// The list simulated without costs.
    ///
    /// # Errors
    /// The simulator refuses.
    pub fn simulate(&self, jobs: &[Job]) -> Result<Column, SimError> {
        Column::simulated(self.machine(self.options()), jobs, |index| jobs[index].submit)
    }

    /// The same costs for every job, as options of the simulator.
    fn simulate_costs(&self, jobs: &[Job], costs: &Costs) -> Result<Column, SimError> {
        let (switch_ns, launch_ns) = (self.switch_ns(costs), costs.once_ns());
        let options = Options { switch_ns, launch_ns, ..self.options() };
        Column::simulated(self.machine(options), jobs, |index| jobs[index].submit)
    }

    /// Each job with its own delays: it takes turns from the measured time on, and begin and end of its ranks
    /// cost turns.
    fn simulate_delays(
        &self,
        jobs: &[Job],
        ran: &[JobRun],
        costs: &Costs,
    ) -> Result<Column, SimError> {
        self.simulate_as(&delayed(jobs, ran, costs), ran, self.switch_ns(costs))
    }

    /// The same in whole slots. In the simulator a job can come and go only at the boundaries of slots, and
    /// the rest of its last slot idles; a cluster has a new timetable at once. Here jobs come at the nearest
    /// boundary, and the next job of the same size makes up for the rounding of a service. So nothing idles
    /// here either.
    ///
    /// `turn` is the part of a slot that ranks have for themselves: services become longer accordingly.
    fn simulate_whole(
        &self,
        jobs: &[Job],
        ran: &[JobRun],
        costs: &Costs,
        turn: f64,
    ) -> Result<Column, SimError> {
        let unit = self.unit_ns;
        let nearest = |time: u64| (time + unit / 2) / unit * unit;
        let mut owed: BTreeMap<u32, u64> = BTreeMap::new();
        let whole = delayed(jobs, ran, costs).into_iter().map(|job| {
            let owed = owed.entry(job.size).or_insert(unit / 2);
            let wanted = (job.service as f64 / turn).round() as u64 + *owed;
            let service = (wanted / unit * unit).max(unit);
            *owed = wanted.saturating_sub(service);
            Job { submit: nearest(job.submit), service, ..job }
        });
        // Even the least cost of a switch would make each job need one more slot.
        self.simulate_as(&whole.collect::<Vec<Job>>(), ran, 0)
    }

    /// Response counts from the measured submission.
    fn simulate_as(
        &self,
        jobs: &[Job],
        ran: &[JobRun],
        switch_ns: u64,
    ) -> Result<Column, SimError> {
        let options = Options { switch_ns, ..self.options() };
        Column::simulated(self.machine(options), jobs, |index| ran[index].submitted)
    }

    fn switch_ns(&self, costs: &Costs) -> u64 {
        costs.switch_ns.min(self.unit_ns - 1)
    }
}

/// Each job from its first turn on, with the costs of its ranks' begin and end.
fn delayed(jobs: &[Job], ran: &[JobRun], costs: &Costs) -> Vec<Job> {
    let delayed = jobs.iter().zip(ran).map(|(job, ran)| {
        let service = job.service + costs.begin_of(job) + ran.end_delay();
        Job { submit: ran.running, service, ..*job }
    });
    delayed.collect()
}

/// Results of a plan.
pub struct Comparison {
    /// Its parameters.
    pub plan: Plan,
    /// The list.
    pub jobs: Vec<Job>,
    /// Outcome of each job on the cluster.
    pub ran: Vec<JobRun>,
    /// Costs of a job on the cluster.
    pub costs: Costs,
    /// Switches of the nodes.
    pub switching: Switching,
    /// Used share of the real processors' time while the list ran.
    pub busy: f64,
    /// Simulated without costs.
    pub ideal: Column,
    /// Simulated with the same costs for all.
    pub with_costs: Column,
    /// Simulated with each job's own delays.
    pub with_delays: Column,
    /// The same in whole slots, so that no slot idles at a job's end.
    pub whole_slots: Column,
    /// The same, with turns as short as they were.
    pub short_turns: Column,
    /// The part of a slot that a rank had for itself.
    pub turn: f64,
    /// The measured outcome.
    pub measured: Column,
}

/// Starts a cluster, runs the list on it and simulates it.
///
/// # Errors
/// The plan is impossible, the cluster does not start, or a job fails.
pub fn compare(plan: Plan) -> Result<Comparison, BenchError> {
    let jobs = plan.jobs()?;
    let ideal = plan.simulate(&jobs)?;
    let shared = policies::by_name(&plan.policy)?.sharing() == Sharing::SpaceAndTime;
    let slice = format!("{}us", plan.unit_ns / 1_000);
    // Its ranks only wait, but must get their slots nevertheless.
    // A node is a processor of the simulated machine, whatever this one has. Ranks work by not being stopped, so nobody fills.
    let strict = ["--fill", "off", "--idle-after", "0s", "--cpus", "per-node"];
    let options = [&["--slice", &slice, "--policy", &plan.policy][..], &strict].concat();
    let limit = [("max_jobs_per_processor", JOBS_OF_A_PROCESSOR)];
    let cluster = Cluster::up_with(plan.nodes, &options, &limit)?;
    let ranks =
        Ranks { wait_ms: (plan.unit_ns / WAITS / 1_000_000).max(1), slice_ns: plan.unit_ns };
    let longest = Duration::from_nanos(ideal.ended.iter().copied().max().unwrap_or(0));
    let limit = longest * PATIENCE + Duration::from_secs(60);
    let before = busy_times()?;
    let ran = drive::run(&cluster.path(), plan.nodes, &jobs, ranks, limit)?;
    let busy = before.share_until(busy_times()?);
    let switching = Switching::of(&cluster.stats()?);
    drop(cluster);
    let costs = Costs::of(&jobs, &ran, switching.total_p50_ns);
    let with_costs = plan.simulate_costs(&jobs, &costs)?;
    let with_delays = plan.simulate_delays(&jobs, &ran, &costs)?;
    let turn = columns::turn_of_slot(&ran, plan.unit_ns);
    let (whole_slots, short_turns) = if shared {
        let whole = |turn| plan.simulate_whole(&jobs, &ran, &costs, turn);
        (whole(1.0)?, whole(turn)?)
    } else {
        // Without slots there is nothing to round.
        (with_delays.clone(), with_delays.clone())
    };
    let measured = Column::measured(&ran, shared);
    Ok(Comparison {
        plan,
        jobs,
        ran,
        costs,
        switching,
        busy,
        ideal,
        with_costs,
        with_delays,
        whole_slots,
        short_turns,
        turn,
        measured,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let policy = "dqt:ff-apa".to_owned();
        let (units, unit_ns, peak) = (400, 50_000_000, 0.665);
        Plan { policy, nodes: 16, units, unit_ns, peak, seed: 1 }
    }

    #[test]
    fn the_list_is_in_units_and_fits_the_machine() {
        let jobs = plan().jobs().unwrap();
        assert!(jobs.len() > 20, "{}", jobs.len());
        assert!(jobs.iter().all(|job| job.service % 50_000_000 == 0 && job.size <= 16));
        assert!(jobs.iter().all(|job| (1..=15).contains(&(job.service / 50_000_000))));
        assert!(jobs.iter().any(|job| job.size == 16), "jobs of the whole machine belong to it");
        assert!(Plan { nodes: 0, ..plan() }.jobs().is_err());
        assert!(Plan { units: 0, ..plan() }.jobs().is_err());
    }

    #[test]
    fn costs_and_delays_make_jobs_slower() {
        let plan = plan();
        let jobs = plan.jobs().unwrap();
        let ideal = plan.simulate(&jobs).unwrap();
        let costs = Costs {
            prepare_ns: 20_000_000,
            begin_ns: 5_000_000,
            end_ns: 5_000_000,
            switch_ns: 50_000,
            begin_of_size_ns: [1, 2, 4, 8, 16].map(|size| (size, 5_000_000)).into(),
        };
        let ran: Vec<JobRun> = jobs
            .iter()
            .map(|job| {
                let running = job.submit + 20_000_000;
                JobRun {
                    submitted: job.submit,
                    running,
                    done: 1,
                    ended: 5_000_001,
                    ..JobRun::default()
                }
            })
            .collect();
        let sum = |column: &Column| column.response.iter().sum::<u64>();
        assert!(sum(&plan.simulate_costs(&jobs, &costs).unwrap()) > sum(&ideal));
        let delays = sum(&plan.simulate_delays(&jobs, &ran, &costs).unwrap());
        let whole = |turn| sum(&plan.simulate_whole(&jobs, &ran, &costs, turn).unwrap());
        assert!(delays > whole(1.0) && whole(1.0) > sum(&ideal), "{delays}, {}", whole(1.0));
        assert!(whole(0.9) > whole(1.0), "{}", whole(0.9));
    }
}
