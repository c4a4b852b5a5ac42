//! Report of a simulation, with the measures of the SCore-D paper, §7.2.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::engine::{Options, Outcome};
use crate::job::{Job, SECOND, Source, Workload};
use crate::stats::{Percentiles, correlation, mean};

/// Shape of the JSON output; rises when a field goes or changes its meaning.
pub const SCHEMA: u32 = 1;

/// Bounded slowdown counts shorter jobs as this long, in seconds.
pub const BOUND_S: f64 = 10.0;

/// The figures of one simulation. Times are seconds of virtual time, which are also the units of synthetic
/// workloads. Means, maxima and percentiles are over the jobs that ended within the simulated time; without a
/// horizon these are all jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The simulator's version.
    pub version: &'static str,
    /// The policy's name.
    pub policy: String,
    /// Seed of the random numbers; `None` if there were none.
    pub seed: Option<u64>,
    /// Processors.
    pub procs: u32,
    /// Source of the jobs.
    pub workload: Source,
    /// The machine's parameters.
    pub options: Options,
    /// Simulated time.
    pub time_s: f64,
    /// Jobs that were submitted in this time.
    pub jobs: u64,
    /// Submitted jobs that ended in this time.
    pub jobs_ended: u64,
    /// W_actual: sum of size times service of the jobs submitted, over processors times time.
    pub actual_load: f64,
    /// Ũ: share of processor time in which a job had its turn.
    pub utilisation: f64,
    /// Share of processor time that went into switches, launches and moves; part of `utilisation`.
    pub overhead: f64,
    /// Share of the allocated processor time on processors that no job asked for, if the policy has
    /// partitions of fixed sizes; otherwise `None`.
    pub internal_fragmentation: Option<f64>,
    /// Mean time from submission to the first turn.
    pub mean_wait_s: f64,
    /// The longest such time.
    pub max_wait_s: f64,
    /// Percentiles.
    pub wait_s: Percentiles,
    /// Mean time from submission to the end.
    pub mean_response_s: f64,
    /// Mean of response over service, where service counts as at least [`BOUND_S`]; at least 1.
    pub mean_bounded_slowdown: f64,
    /// Percentiles.
    pub bounded_slowdown: Percentiles,
    /// Mean of RETR: time from submission to the end, over service.
    pub mean_retr: f64,
    /// The greatest RETR.
    pub max_retr: f64,
    /// Percentiles.
    pub retr: Percentiles,
    /// Pearson's correlation of log2(size) with RETR (§7.2.6); `None` if all jobs are of one size.
    pub correlation_log2_size_retr: Option<f64>,
    /// Largest number of jobs on one processor at a time: the largest Max-TQLB (§7.1.2). `None` where time is
    /// not shared.
    pub max_tqlb: Option<u32>,
    /// Slots simulated.
    pub slots: u64,
    /// Number of times that a job got its processors back.
    pub switches: u64,
    /// Jobs moved.
    pub migrations: u64,
    /// By size, ascending.
    pub sizes: Vec<SizeClass>,
}

/// The jobs of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SizeClass {
    /// Processors.
    pub size: u32,
    /// Jobs submitted.
    pub jobs: u64,
    /// Those that ended.
    pub ended: u64,
    /// Mean time from submission to the first turn.
    pub mean_wait_s: f64,
    /// Mean bounded slowdown.
    pub mean_bounded_slowdown: f64,
    /// Mean RETR.
    pub mean_retr: f64,
}

/// The figures of one job that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedJob {
    /// From submission to the first turn.
    pub wait_s: f64,
    /// From submission to the end.
    pub response_s: f64,
    /// Response over service, bounded.
    pub bounded_slowdown: f64,
    /// Response over service; `None` for a job without service.
    pub retr: Option<f64>,
}

/// Nanoseconds as seconds.
#[allow(clippy::cast_precision_loss)]
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / SECOND as f64
}

impl EndedJob {
    /// Of the job at `index` of the list; `None` if it did not end.
    pub fn of(job: &Job, outcome: &Outcome, index: usize) -> Option<Self> {
        let (start, end) = (outcome.start(index)?, outcome.end(index)?);
        let response_s = seconds(end - job.submit);
        let service = seconds(job.service);
        Some(Self {
            wait_s: seconds(start.saturating_sub(job.submit)),
            response_s,
            bounded_slowdown: (response_s / service.max(BOUND_S)).max(1.0),
            retr: (job.service > 0).then_some(response_s / service),
        })
    }
}

impl Report {
    /// The figures of an outcome.
    pub fn new(
        policy: &str,
        seed: Option<u64>,
        workload: &Workload,
        options: &Options,
        outcome: &Outcome,
    ) -> Self {
        let ended = ended(workload, outcome);
        let column =
            |of: fn(&EndedJob) -> f64| ended.iter().map(|(_, e)| of(e)).collect::<Vec<f64>>();
        let greatest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let waits = column(|e| e.wait_s);
        let retrs: Vec<f64> = ended.iter().filter_map(|(_, e)| e.retr).collect();
        let slowdowns = column(|e| e.bounded_slowdown);
        let capacity = f64::from(options.procs) * outcome.time_ns.max(1) as f64;
        let share = |amount: u128| amount as f64 / capacity;
        let pairs = ended.iter().filter_map(|(job, e)| Some((f64::from(job.size).log2(), e.retr?)));
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            policy: policy.to_owned(),
            seed,
            procs: options.procs,
            workload: workload.source.clone(),
            options: *options,
            time_s: seconds(outcome.time_ns),
            jobs: outcome.arrived,
            jobs_ended: ended.len() as u64,
            actual_load: share(submitted(workload, outcome)),
            utilisation: share(outcome.occupied),
            overhead: share(outcome.occupied.saturating_sub(outcome.served)),
            internal_fragmentation: crate::policies::fragmentation(policy, workload, outcome),
            mean_wait_s: mean(&waits),
            max_wait_s: greatest(&waits),
            wait_s: Percentiles::of(waits),
            mean_response_s: mean(&column(|e| e.response_s)),
            mean_bounded_slowdown: mean(&slowdowns),
            bounded_slowdown: Percentiles::of(slowdowns),
            mean_retr: mean(&retrs),
            max_retr: greatest(&retrs),
            retr: Percentiles::of(retrs),
            correlation_log2_size_retr: correlation(pairs),
            max_tqlb: outcome.max_tqlb,
            slots: outcome.slots,
            switches: outcome.switches,
            migrations: outcome.migrations,
            sizes: by_size(workload, outcome),
        }
    }
}

fn ended<'a>(workload: &'a Workload, outcome: &Outcome) -> Vec<(&'a Job, EndedJob)> {
    let jobs = workload.jobs.iter().enumerate();
    jobs.filter_map(|(index, job)| Some((job, EndedJob::of(job, outcome, index)?))).collect()
}

/// Processor time that the submitted jobs ask for.
fn submitted(workload: &Workload, outcome: &Outcome) -> u128 {
    let arrived = usize::try_from(outcome.arrived).unwrap_or(usize::MAX);
    let jobs = workload.jobs.iter().take(arrived);
    jobs.map(|job| u128::from(job.service) * u128::from(job.size)).sum()
}

/// Table by size of the jobs that `chosen` selects, given the job and its end.
fn by_size(workload: &Workload, outcome: &Outcome) -> Vec<SizeClass> {
    by_size_where(workload, outcome, |_| true)
}

/// Table by size that counts only jobs whose end, in nanoseconds, `chosen` selects; jobs that did not end
/// count as submitted.
pub fn by_size_where(
    workload: &Workload,
    outcome: &Outcome,
    chosen: impl Fn(u64) -> bool,
) -> Vec<SizeClass> {
    let mut sizes: BTreeMap<u32, SizeClass> = BTreeMap::new();
    // Jobs with some service, by size.
    let mut served = BTreeMap::new();
    let arrived = usize::try_from(outcome.arrived).unwrap_or(usize::MAX);
    for (index, job) in workload.jobs.iter().enumerate().take(arrived) {
        if outcome.end(index).is_some_and(|end| !chosen(end)) {
            continue;
        }
        let row =
            sizes.entry(job.size).or_insert(SizeClass { size: job.size, ..SizeClass::default() });
        row.jobs += 1;
        if let Some(ended) = EndedJob::of(job, outcome, index) {
            row.ended += 1;
            row.mean_wait_s += ended.wait_s;
            row.mean_bounded_slowdown += ended.bounded_slowdown;
            row.mean_retr += ended.retr.unwrap_or(0.0);
            *served.entry(job.size).or_insert(0u64) += u64::from(ended.retr.is_some());
        }
    }
    for row in sizes.values_mut() {
        let count = row.ended.max(1) as f64;
        row.mean_wait_s /= count;
        row.mean_bounded_slowdown /= count;
        row.mean_retr /= served.get(&row.size).copied().unwrap_or(0).max(1) as f64;
    }
    sizes.into_values().collect()
}
