//! Copies of a program that synchronises every few microseconds: total throughput under gang
//! scheduling against one copy alone and against plain operating-system scheduling.

use super::Setting;
use super::shares::{Lengths, Shares};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::meter::Meter;
use crate::record::{Goal, Peer, Record};
use std::time::Duration;

/// Number of copies, and the least ratio of gang to operating-system scheduling.
const COPIES: [(usize, f64); 2] = [(2, 1.7), (3, 2.3)];

const LENGTHS: Lengths =
    Lengths { together: Duration::from_millis(300), alone: Duration::from_millis(200) };

/// How the program waits. Under operating-system scheduling a wait that soon blocks lets another copy run. A
/// wait that never blocks, as in most MPI libraries, does not.
const WAITS: [(&str, &[&str]); 2] =
    [("default waits", &[]), ("waits that never block", &["--env", "KUMI_SPIN=infinite"])];

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &["--slice", "1ms"])?;
    let work = calibrate(&cluster)?;
    let mut records = Vec::new();
    for (copies, least) in COPIES {
        for (waits, options) in WAITS {
            let shares = throughput(&cluster, copies, &work, options, runs)?;
            let total = |all: &[Vec<f64>]| total(all, runs);
            let (gang, os) = (total(&shares.gang), total(&shares.os));
            let alone: Vec<f64> =
                total(&shares.alone).iter().map(|sum| sum / copies as f64).collect();
            let figure = format!("lockstep x {copies}, total, gang 1ms, {waits}");
            let record = |name: &str, peer: &[f64], goal| {
                Record::new(&figure, "steps/s", &gang, &Peer::Measured(name, peer), goal)
            };
            records.push(record("one copy alone", &alone, Goal::RatioAtLeast(0.93)));
            let goal = Goal::RatioAtLeast(least);
            records.push(record("operating-system scheduling", &os, goal));
        }
    }
    Ok(records)
}

/// Amount of computing that takes about a microsecond, the same for all copies.
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

fn throughput(
    cluster: &Cluster,
    copies: usize,
    work: &str,
    options: &[&str],
    runs: usize,
) -> Result<Shares, BenchError> {
    let program = cluster::program("lockstep")?;
    let args = ["--seconds", "100000", "--compute-work", work];
    let meters = (0..copies)
        .map(|copy| Meter::start(cluster, &format!("lockstep-{copy}"), options, &program, &args));
    let meters = meters.collect::<Result<Vec<_>, _>>()?;
    Shares::measure(cluster, &meters, LENGTHS, runs)
}

/// Steps per second of all copies, cycle by cycle.
fn total(seconds_per_step: &[Vec<f64>], cycles: usize) -> Vec<f64> {
    (0..cycles).map(|cycle| seconds_per_step.iter().map(|copy| 1.0 / copy[cycle]).sum()).collect()
}
