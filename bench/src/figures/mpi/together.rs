//! Two MPI jobs of two ranks at once, under gang and under plain scheduling, compared with exactly equal shares.

use super::ways::Way;
use crate::cluster::Cluster;
use crate::error::BenchError;
use crate::figures::Setting;
use crate::figures::shares::{Lengths, Shares};
use crate::meter::Meter;
use crate::record::{Goal, Peer, Record};
use std::time::Duration;

const KERNELS: [&str; 2] = ["cg", "is"];
/// Long enough for several steps of each job.
const LENGTHS: Lengths =
    Lengths { together: Duration::from_millis(2400), alone: Duration::from_millis(1200) };

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let program = setting.peers.program("mpikernel")?;
    let cluster = Cluster::up(2, &["--slice", "10ms", "--fill", "off"])?;
    let start = |name: &&str| Meter::start(&cluster, name, Way::Kumi.options(), &program, &[name]);
    let meters = KERNELS.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let shares = Shares::measure(&cluster, &meters, LENGTHS, runs)?;
    let mut records = Vec::new();
    for (index, name) in KERNELS.iter().enumerate() {
        let per_step = |seconds: &[f64]| -> Vec<f64> { seconds.iter().map(|s| s * 1e3).collect() };
        let [gang, os] = [&shares.gang, &shares.os].map(|all| per_step(&all[index]));
        let jobs = KERNELS.len() as f64;
        let equal: Vec<f64> = per_step(&shares.alone[index]).iter().map(|s| s * jobs).collect();
        let equal = Peer::Measured("exactly equal shares", &equal);
        let figure = format!("MPI kernel {name} of 2 jobs together, gang 10ms");
        records.push(Record::new(&figure, "ms/step", &gang, &equal, Goal::RatioAtMost(1.05)));
        let figure = format!("MPI kernel {name} of 2 jobs together, operating system");
        records.push(Record::new(&figure, "ms/step", &os, &equal, Goal::None));
    }
    Ok(records)
}
