//! Ways of waiting (SS-Wait of the SSS-CORE paper, §3.2): two jobs of pairs that synchronise, on the same two
//! nodes, and what both do together against one of them alone.
//!
//! Under operating-system scheduling a job's partner often has no processor. A rank that spins for it then
//! keeps the other job from working. Under gang scheduling both partners run, and blocking only costs time.

use super::Setting;
use super::shares::{Lengths, Shares};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::meter::Meter;
use crate::record::{Goal, Peer, Record};
use std::time::Duration;

/// Jobs at once.
const JOBS: usize = 2;
const LENGTHS: Lengths =
    Lengths { together: Duration::from_millis(300), alone: Duration::from_millis(200) };

/// A value of `KUMI_SPIN`, and its meaning.
const WAYS: [(&str, &str); 5] = [
    ("adaptive", "SS-Wait"),
    ("blind", "adaptive without asking"),
    ("200", "200 us, then block"),
    ("0", "block at once"),
    ("infinite", "never block"),
];

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &["--slice", "1ms"])?;
    let program = cluster::program("lockstep")?;
    let mut records = Vec::new();
    for compute in ["1", "20"] {
        for (spin, way) in WAYS {
            let setting = format!("KUMI_SPIN={spin}");
            let args = ["--seconds", "100000", "--compute-us", compute];
            let start = |job| {
                Meter::start(
                    &cluster,
                    &format!("wait-{job}"),
                    &["--env", &setting],
                    &program,
                    &args,
                )
            };
            let meters = (0..JOBS).map(start).collect::<Result<Vec<_>, _>>()?;
            let shares = Shares::measure(&cluster, &meters, LENGTHS, runs)?;
            let alone: Vec<f64> =
                total(&shares.alone, runs).iter().map(|sum| sum / JOBS as f64).collect();
            for (mode, steps) in [("os", &shares.os), ("gang 1ms", &shares.gang)] {
                let figure = format!("pairs x {JOBS}, {compute} us, {mode}, {way}");
                let peer = Peer::Measured("one job alone, same waits", &alone);
                let steps = total(steps, runs);
                records.push(Record::new(&figure, "steps/s", &steps, &peer, Goal::None));
            }
        }
    }
    Ok(records)
}

/// Steps per second of all jobs, cycle by cycle.
fn total(seconds_per_step: &[Vec<f64>], cycles: usize) -> Vec<f64> {
    (0..cycles).map(|cycle| seconds_per_step.iter().map(|job| 1.0 / job[cycle]).sum()).collect()
}
