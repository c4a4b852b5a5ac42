//! Copies of a program that synchronises every few microseconds: total throughput under gang
//! scheduling against one copy alone and against plain operating-system scheduling.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the copies run for one value, in seconds.
const SECONDS: &str = "3";

/// Copies at once, and the least ratio of gang to operating-system scheduling.
const COPIES: [(usize, f64); 2] = [(2, 1.7), (3, 2.3)];

/// Waits that never block, as those of most MPI libraries.
const SPINNING: &[&str] = &["--env", "KUMI_SPIN=infinite"];

/// Total steps per second, run by run.
#[derive(Default)]
struct Runs {
    gang: Vec<f64>,
    alone: Vec<f64>,
    os: Vec<f64>,
    os_spinning: Vec<f64>,
}

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &["--slice", "1ms"])?;
    let work = calibrate(&cluster)?;
    let mut values = [(); COPIES.len()].map(|()| Runs::default());
    for _ in 0..runs {
        for ((copies, _), of) in COPIES.iter().zip(&mut values) {
            cluster.kumi(&["cluster", "set", "--mode", "gang"])?;
            of.alone.push(throughput(&cluster, 1, &work, &[])?);
            of.gang.push(throughput(&cluster, *copies, &work, &[])?);
            cluster.kumi(&["cluster", "set", "--mode", "os"])?;
            of.os.push(throughput(&cluster, *copies, &work, &[])?);
            of.os_spinning.push(throughput(&cluster, *copies, &work, SPINNING)?);
        }
    }
    let mut records = Vec::new();
    for ((copies, least), Runs { gang, alone, os, os_spinning }) in COPIES.iter().zip(&values) {
        let figure = format!("lockstep x {copies}, total, gang 1ms");
        let record = |name: &str, peer: &[f64], goal| {
            Record::new(&figure, "steps/s", gang, &Peer::Measured(name, peer), goal)
        };
        records.push(record("one copy alone", alone, Goal::RatioAtLeast(0.93)));
        records.push(record("operating-system scheduling", os, Goal::RatioAtLeast(*least)));
        let spinning = "operating-system scheduling, waits that never block";
        records.push(record(spinning, os_spinning, Goal::None));
    }
    Ok(records)
}

/// How much computing of a step is about a microsecond, the same for all copies.
fn calibrate(cluster: &Cluster) -> Result<String, BenchError> {
    let output = cluster.run(2, &cluster::program("lockstep")?, &["--seconds", "0.2"])?;
    let wanted = || BenchError::Output {
        wanted: "rounds of computing per step".to_owned(),
        what: "lockstep".to_owned(),
        output: output.clone(),
    };
    let line = output.lines().find(|line| line.contains("rounds of computing per step"));
    line.and_then(|line| line.split_whitespace().next()).map(str::to_owned).ok_or_else(wanted)
}

/// Steps per second of all copies together, started at the same moment.
fn throughput(
    cluster: &Cluster,
    copies: usize,
    work: &str,
    options: &[&str],
) -> Result<f64, BenchError> {
    let program = cluster::program("lockstep")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let start = format!("{:.3}", (now + Duration::from_secs(1)).as_secs_f64());
    let args = ["--seconds", SECONDS, "--compute-work", work, "--start-at", &start];
    let jobs = (0..copies).map(|_| cluster.start_with(options, 2, &program, &args));
    let jobs: Vec<_> = jobs.collect::<Result<_, _>>()?;
    let mut total = 0.0;
    for job in jobs {
        let output = cluster::finish(job, "lockstep")?;
        total += cluster::number(&output, "Steps per second", "lockstep")?;
    }
    Ok(total)
}
