//! `kumi sim jobs`.

use super::args::{InstantArg, JobsArgs};
use super::{check_place, progress, show, write};
use crate::error::Error;
use crate::output;
use kumi_sim::generate::{Gradient, Mix, Poisson, Service};
use kumi_sim::sweep::{self, Case};
use kumi_sim::{Instant, Options, Report, SECOND, SimError, Source, Workload, csv, history, swf};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What is kept of one simulation.
struct Kept {
    report: Report,
    jobs: String,
    timeline: String,
}

/// Runs the command.
pub fn run(args: &JobsArgs) -> Result<(), Error> {
    let files = [&args.output.json, &args.output.jobs_csv, &args.output.timeline_csv];
    for path in files.into_iter().flatten().filter(|path| path.as_os_str() != "-") {
        check_place(path)?;
    }
    for name in &args.policy {
        kumi_sim::policies::by_name(name)?;
    }
    let cases = cases(args)?;
    if let Some(Source::Swf(summary)) = cases.first().map(|case| &case.workload.source) {
        show::trace(summary);
    }
    let want = (args.output.jobs_csv.is_some(), args.output.timeline_csv.is_some());
    let keep = |case: &Case, report, outcome| Kept {
        report,
        jobs: if want.0 { csv::jobs(case, &outcome) } else { String::new() },
        timeline: if want.1 { csv::timeline(case, &outcome) } else { String::new() },
    };
    let kept = progress::watch(cases.len(), |monitor| sweep::run(&cases, monitor, keep))?;
    if let Some(path) = &args.output.jobs_csv {
        let lines = kept.iter().map(|kept| kept.jobs.as_str());
        write(path, &[csv::JOBS_HEADER].into_iter().chain(lines).collect::<String>())?;
    }
    if let Some(path) = &args.output.timeline_csv {
        let lines = kept.iter().map(|kept| kept.timeline.as_str());
        write(path, &[csv::TIMELINE_HEADER].into_iter().chain(lines).collect::<String>())?;
    }
    let reports: Vec<&Report> = kept.iter().map(|kept| &kept.report).collect();
    tell(args.output.json.as_deref(), &cases, &reports)
}

/// The figures, as data and as a table. Where the data goes to standard output the table does not.
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

/// Every combination of workload and policy, in the order in which they were given.
fn cases(args: &JobsArgs) -> Result<Vec<Case>, Error> {
    let mut cases = Vec::new();
    for (workload, load, seed) in workloads(args)? {
        let procs = match (args.procs, &workload.source) {
            (Some(procs), _) => procs,
            (None, Source::Swf(swf::Summary { max_procs: Some(procs), .. })) => *procs,
            _ => {
                let why = "give the machine's size with --procs";
                return Err(Error::Usage(why.to_owned()));
            }
        };
        let options = options(args, procs, &workload);
        let workload = Arc::new(workload);
        for policy in &args.policy {
            let (policy, workload) = (policy.clone(), Arc::clone(&workload));
            cases.push(Case { policy, load, seed, workload, options });
        }
    }
    Ok(cases)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn options(args: &JobsArgs, procs: u32, workload: &Workload) -> Options {
    let first = workload.jobs.first().map_or(0, |job| job.submit);
    let last = workload.jobs.last().map_or(0, |job| job.submit);
    let length = workload.horizon.unwrap_or(last - first);
    let interval = args.output.sample.map_or(length / 1000 / SECOND, |seconds| seconds).max(1);
    Options {
        procs,
        slice_ns: nanos(args.costs.slice),
        switch_ns: nanos(args.costs.switch_cost),
        launch_ns: nanos(args.costs.launch_cost),
        migration_ns: nanos(args.costs.migration_cost),
        instant: match args.instant {
            InstantArg::Batched => Instant::Batched,
            InstantArg::Single => Instant::Single,
        },
        sample_ns: args.output.timeline_csv.as_ref().map(|_| interval * SECOND),
    }
}

type Labelled = (Workload, Option<f64>, Option<u64>);

/// The lists of jobs, each with the load and the seed that it was made with.
fn workloads(args: &JobsArgs) -> Result<Vec<Labelled>, Error> {
    let source = &args.source;
    if let Some(path) = &source.swf {
        return Ok(vec![(swf::read(path, args.output.strict)?, None, None)]);
    }
    if let Some(path) = &source.history {
        return Ok(vec![(history::read(path)?, None, None)]);
    }
    let Some(procs) = args.procs else {
        return Err(Error::Usage("give the machine's size with --procs".to_owned()));
    };
    let mut made = Vec::new();
    let loads = if source.gradient { vec![args.synthetic.peak] } else { source.load.clone() };
    for load in loads {
        for seed in args.seed.iter().flat_map(|seeds| seeds.first..=seeds.last) {
            made.push((synthetic(args, procs, load, seed)?, Some(load), Some(seed)));
        }
    }
    Ok(made)
}

fn synthetic(args: &JobsArgs, procs: u32, load: f64, seed: u64) -> Result<Workload, SimError> {
    let wanted = &args.synthetic;
    let gradient = args.source.gradient;
    let usual = if gradient {
        Service::Uniform { low: 500, high: 19_999 }
    } else {
        Service::Exponential { mean: 1000.0 }
    };
    let service = wanted.service.unwrap_or(usual);
    let mix = Mix { procs, sizes: wanted.sizes.into(), largest: wanted.max_size, service, seed };
    let units = wanted.units.unwrap_or(if gradient { 2_200_000 } else { 1_000_000 });
    let all = if gradient { (units / 11 * 10 + units % 11 * 10 / 11).max(1) } else { units };
    let arrivals = wanted.arrivals.unwrap_or(all);
    if gradient {
        let units = (!wanted.drain).then_some(units);
        return Gradient { mix, load, arrivals, units }.workload();
    }
    let mut workload = Poisson { mix, load, arrivals, units }.workload()?;
    if wanted.drain {
        workload.horizon = None;
    }
    Ok(workload)
}
