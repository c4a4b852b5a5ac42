//! Jobs whose users think (SCore-D, section 6.4, figure 6.4): what each of one to four such jobs has of the processors, by the length of
//! a slice, beside perfect sharing and beside jobs one after the other.
//!
//! Work and thinking are drawn from seeds. So the ideal is what these very jobs would have on processors that are shared perfectly.

use super::Setting;
use super::chart::{self, Line};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record, median};
use crate::thinking::{Turn, Turns, ideal};
use std::time::{SystemTime, UNIX_EPOCH};

const MEAN: Turn = Turn { work: 0.25, think: 1.0 };
const MOST_JOBS: u64 = 4;
const SLICES: [&str; 4] = ["10ms", "100ms", "500ms", "2500ms"];
/// Time for jobs to start, in seconds.
const START: f64 = 2.0;

/// A way of sharing: its name, and options of `kumi cluster up`.
type Way = (&'static str, &'static [&'static str]);

const WAYS: [Way; 3] = [
    ("gangs that fill", &["--fill", "on"]),
    ("idle jobs leave", &["--fill", "off", "--idle-after", "100ms"]),
    ("without detection", &["--fill", "off", "--idle-after", "0s"]),
];
/// The way that has a goal at the shortest slice.
const BEST: usize = 0;
const GOAL: f64 = 0.97;

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let seconds = if setting.quick { 12.0 } else { 40.0 };
    let mut records = Vec::new();
    for slice in SLICES {
        let mut lines: Vec<Line> =
            WAYS.iter().map(|way| Line { name: way.0, points: Vec::new() }).collect();
        for (at, (way, options)) in WAYS.iter().enumerate() {
            let cluster = Cluster::up(2, &[&["--slice", slice], *options].concat())?;
            for jobs in 1..=MOST_JOBS {
                let (mut ours, mut shared, mut batch) = (Vec::new(), Vec::new(), Vec::new());
                for run in 0..runs as u64 {
                    let seeds: Vec<u64> = (0..jobs).map(|job| 1_000 * run + job + 1).collect();
                    ours.push(utilisation(&cluster, &seeds, seconds)?);
                    shared.push(perfect(&seeds, seconds));
                    batch.push(perfect(&seeds[..1], seconds) / jobs as f64);
                }
                lines[at].points.push((jobs as f64, median(&ours)));
                let figure = format!("{jobs} thinking jobs, slice {slice}, {way}");
                let goal = if at == BEST && slice == SLICES[0] && jobs == MOST_JOBS {
                    Goal::RatioAtLeast(GOAL)
                } else {
                    Goal::None
                };
                for (name, peer, goal) in [
                    ("perfect sharing", &shared, goal),
                    ("one after the other", &batch, Goal::None),
                ] {
                    let peer = Peer::Measured(name, peer);
                    records.push(Record::new(&figure, "of a processor", &ours, &peer, goal));
                }
            }
        }
        plot(setting, slice, &lines)?;
    }
    Ok(records)
}

/// Mean part of the processors that a job would have.
fn perfect(seeds: &[u64], seconds: f64) -> f64 {
    let jobs = seeds.iter().map(|&seed| Turns::new(seed, MEAN)).collect();
    mean(&ideal(jobs, seconds)) / seconds
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Runs jobs with these seeds at once; mean part of its processors that a job used.
fn utilisation(cluster: &Cluster, seeds: &[u64], seconds: f64) -> Result<f64, BenchError> {
    let program = cluster::program("kumi-bench-think")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let (begin, length) = ((now + START).to_string(), seconds.to_string());
    let start = |seed: &u64| {
        let seed = seed.to_string();
        let args = ["--seed", &seed, "--begin", &begin, "--seconds", &length];
        cluster.start(2, &program, &args)
    };
    let jobs = seeds.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let computed = jobs.into_iter().map(|job| {
        let output = cluster::finish(job, "kumi-bench-think")?;
        cluster::number(&output, "computed", "kumi-bench-think")
    });
    Ok(mean(&computed.collect::<Result<Vec<_>, _>>()?) / seconds)
}

/// Utilisation per job by the number of jobs.
fn plot(setting: &Setting, slice: &str, lines: &[Line]) -> Result<(), BenchError> {
    let seeds: Vec<u64> = (1..=MOST_JOBS).collect();
    let horizon = 10_000.0;
    let ideal = (1..=seeds.len()).map(|jobs| (jobs as f64, perfect(&seeds[..jobs], horizon)));
    let mut lines: Vec<Line> =
        lines.iter().map(|line| Line { name: line.name, points: line.points.clone() }).collect();
    lines.push(Line { name: "perfect sharing", points: ideal.collect() });
    let title = format!("part of the processors per job by number of jobs, slice {slice}");
    chart::write(&setting.out, &format!("think-{slice}.svg"), &title, &lines)
}
