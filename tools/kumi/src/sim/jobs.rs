//! `kumi sim jobs`: simulates scheduling policies on lists of jobs.

use super::args::{InstantArg, JobsArgs, OutputArgs};
use super::rows::Rows;
use super::{check_place, progress, show, write};
use crate::error::Error;
use crate::output;
use kumi_sim::generate::{Gradient, Poisson, Service, WorkloadMix};
use kumi_sim::sweep::{self, Case, CaseResult, JobSource};
use kumi_sim::{Instant, Options, Report, SECOND, SimError, Source, Workload, csv, history, swf};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Runs the command.
pub fn run(args: &JobsArgs) -> Result<(), Error> {
    let OutputArgs { json, jobs_csv, timeline_csv, write_swf, .. } = &args.output;
    let files = [json, jobs_csv, timeline_csv, write_swf];
    for path in files.into_iter().flatten().filter(|path| path.as_os_str() != "-") {
        check_place(path)?;
    }
    for name in &args.policy {
        kumi_sim::policies::by_name(name)?;
    }
    let cases = cases(args)?;
    if let Some(JobSource::Made(workload)) = cases.first().map(|case| &case.jobs) {
        match &workload.source {
            Source::Swf(summary) => show::trace(summary),
            Source::History(summary) => show::history(summary),
            _ => {}
        }
    }
    if let Some(path) = write_swf {
        write(path, &trace(&cases)?)?;
    }
    let jobs = Rows::new(args.output.jobs_csv.as_deref(), csv::JOBS_HEADER)?;
    let timeline = Rows::new(args.output.timeline_csv.as_deref(), csv::TIMELINE_HEADER)?;
    let keep = |place: usize, case: &Case, done: CaseResult| {
        jobs.add(place, || csv::jobs(case, &done))?;
        timeline.add(place, || csv::timeline(case, &done))?;
        Ok(done.report)
    };
    let kept = progress::watch(cases.len(), |monitor| sweep::run(&cases, monitor, keep))?;
    jobs.finish()?;
    timeline.finish()?;
    let reports: Vec<&Report> = kept.iter().collect();
    tell(args.output.json.as_deref(), &cases, &reports)
}

/// The list of jobs of all cases; there must be only one.
fn trace(cases: &[Case]) -> Result<String, Error> {
    let [case, others @ ..] = cases else { return Err(SimError::Empty.into()) };
    let same = |other: &&Case| (other.load, other.seed) == (case.load, case.seed);
    let list = |case: &Case| {
        format!("load {}, seed {}", case.load.unwrap_or_default(), case.seed.unwrap_or_default())
    };
    if let Some(other) = others.iter().find(|other| !same(other)) {
        let advice = "--write-swf writes one list of jobs: give one --load and one --seed";
        let (name, value) = ("a second list of jobs", list(other));
        return Err(SimError::Parameter { name, value, advice }.into());
    }
    let workload = case.jobs.workload()?;
    let note = format!("synthetic jobs of kumi sim jobs, {}", list(case));
    Ok(swf::text(&workload.jobs, case.options.procs, &note))
}

/// The figures, as data and as a table. If the data goes to standard output, the table is not printed.
fn tell(json: Option<&Path>, cases: &[Case], reports: &[&Report]) -> Result<(), Error> {
    let text = match reports {
        [one] => serde_json::to_string_pretty(one),
        many => serde_json::to_string_pretty(many),
    };
    let text = text.map_err(|error| Error::Output(error.into()))? + "\n";
    match json {
        Some(path) if path.as_os_str() == "-" => return output::text(&text),
        Some(path) => write(path, &text)?,
        None => {}
    }
    output::text(&show::table(cases, reports))
}

/// Every combination of jobs and policy, in the order of the arguments.
fn cases(args: &JobsArgs) -> Result<Vec<Case>, Error> {
    let lists = match (&args.source.swf, &args.source.history) {
        (Some(path), _) => vec![made(swf::read(path, args.output.strict)?)],
        (None, Some(path)) => vec![made(history::read(path, args.output.strict)?)],
        (None, None) => synthetic(args)?,
    };
    let mut cases = Vec::new();
    for JobList { jobs, procs, length, load, seed } in lists {
        let Some(procs) = args.procs.or(procs) else { return Err(no_procs()) };
        let options = options(args, procs, length);
        for policy in &args.policy {
            let (policy, jobs) = (policy.clone(), jobs.clone());
            cases.push(Case { policy, load, seed, jobs, options });
        }
    }
    Ok(cases)
}

fn no_procs() -> Error {
    Error::Usage("the machine's size is not known; give it with --procs".to_owned())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// `length` is about the simulated time, in seconds.
fn options(args: &JobsArgs, procs: u32, length: u64) -> Options {
    let interval = args.output.sample.unwrap_or(length / 1000).max(1);
    Options {
        procs,
        node_procs: args.nodes.cpus_per_node,
        node_memory: args.nodes.memory_per_node.unwrap_or(0),
        rank_procs: args.nodes.cpus_per_rank,
        slice_ns: nanos(args.costs.slice),
        switch_ns: nanos(args.costs.switch_cost),
        launch_ns: nanos(args.costs.launch_cost),
        migration_ns: nanos(args.costs.migration_cost),
        half_life_ns: args.half_life.map(nanos),
        instant: match args.instant {
            InstantArg::Batched => Instant::Batched,
            InstantArg::Single => Instant::Single,
        },
        sample_ns: args.output.timeline_csv.as_ref().map(|_| interval.saturating_mul(SECOND)),
    }
}

/// A list of jobs with its properties.
struct JobList {
    jobs: JobSource,
    /// Size of its own machine.
    procs: Option<u32>,
    /// Its approximate length, in seconds.
    length: u64,
    load: Option<f64>,
    seed: Option<u64>,
}

fn made(workload: Workload) -> JobList {
    let first = workload.jobs.first().map_or(0, |job| job.submit);
    let last = workload.jobs.last().map_or(0, |job| job.submit);
    let procs = match &workload.source {
        Source::Swf(summary) => summary.max_procs,
        _ => None,
    };
    let jobs = JobSource::Made(Arc::new(workload));
    JobList { jobs, procs, length: (last - first) / SECOND, load: None, seed: None }
}

/// A list for each load and seed.
fn synthetic(args: &JobsArgs) -> Result<Vec<JobList>, Error> {
    let Some(procs) = args.procs else { return Err(no_procs()) };
    let wanted = &args.synthetic;
    let gradient = args.source.gradient;
    let usual = if gradient {
        Service::Uniform { low: 500, high: 19_999 }
    } else {
        Service::Exponential { mean: 1000.0 }
    };
    let service = wanted.service.unwrap_or(usual);
    let length = wanted.units.unwrap_or(if gradient { 2_200_000 } else { 1_000_000 });
    let all = if gradient { (length / 11 * 10 + length % 11 * 10 / 11).max(1) } else { length };
    let arrivals = wanted.arrivals.unwrap_or(all);
    let units = (!wanted.drain).then_some(length);
    let sizes = wanted.sizes.into();
    let loads = if gradient { vec![wanted.peak] } else { args.source.load.clone() };
    let mut lists = Vec::new();
    for load in loads {
        for seed in args.seed.iter().flat_map(|seeds| seeds.first..=seeds.last) {
            let mix = WorkloadMix { procs, sizes, largest: wanted.max_size, service, seed };
            let jobs = if gradient {
                JobSource::Gradient(Gradient { mix, load, arrivals, units })
            } else {
                JobSource::Poisson(Poisson { mix, load, arrivals, units })
            };
            lists.push(JobList { jobs, procs: None, length, load: Some(load), seed: Some(seed) });
        }
    }
    Ok(lists)
}
