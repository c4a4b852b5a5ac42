//! Two and three programs at once, each compared with exactly equal shares of the machine.
//!
//! The programs keep running. They share the processors under gang scheduling, then under operating-system
//! scheduling; then each has them alone, in turn.

use super::Setting;
use super::shares::{Lengths, Shares};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::meter::{Meter, Window};
use crate::record::{Goal, Peer, Record};
use std::time::Duration;

/// The kernels: name and program file.
const EP: (&str, &str) = ("EP", "ep");
const CG: (&str, &str) = ("CG", "cg");
const IS: (&str, &str) = ("IS", "is");

/// Long enough for some steps of IS.A among three jobs.
const LENGTHS: Lengths =
    Lengths { together: Duration::from_millis(1600), alone: Duration::from_millis(600) };
/// A window of a program alone, or beside a sleeping one.
const PAUSED: Duration = Duration::from_millis(400);

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    for slice in ["10ms", "100ms"] {
        // What gangs cost by themselves: `fill` measures what the others do with what a gang leaves.
        let cluster = Cluster::up(2, &["--slice", slice, "--fill", "off"])?;
        for programs in [&[CG, IS][..], &[EP, CG, IS]] {
            records.extend(share(&cluster, slice, programs, runs)?);
        }
        records.push(paused(&cluster, slice, runs)?);
    }
    Ok(records)
}

fn start<'c>(cluster: &'c Cluster, (name, file): (&str, &str)) -> Result<Meter<'c>, BenchError> {
    let args = ["--class", "A", "--repeat", "1000000"];
    Meter::start(cluster, name, &[], &cluster::program(file)?, &args)
}

fn share(
    cluster: &Cluster,
    slice: &str,
    programs: &[(&str, &str)],
    runs: usize,
) -> Result<Vec<Record>, BenchError> {
    let meters = programs.iter().map(|program| start(cluster, *program));
    let meters = meters.collect::<Result<Vec<_>, _>>()?;
    let shares = Shares::measure(cluster, &meters, LENGTHS, runs)?;
    let jobs = programs.len();
    let mut records = Vec::new();
    for (index, (name, _)) in programs.iter().enumerate() {
        let per_step = |seconds: &[f64]| -> Vec<f64> { seconds.iter().map(|s| s * 1e3).collect() };
        let [gang, os] = [&shares.gang, &shares.os].map(|all| per_step(&all[index]));
        let equal: Vec<f64> =
            per_step(&shares.alone[index]).iter().map(|alone| alone * jobs as f64).collect();
        let equal = Peer::Measured("exactly equal shares", &equal);
        let figure = format!("{name}.A of {jobs} jobs together, gang {slice}");
        records.push(Record::new(&figure, "ms/step", &gang, &equal, Goal::RatioAtMost(1.03)));
        if slice == "10ms" {
            let figure = format!("{name}.A of {jobs} jobs together, operating system");
            records.push(Record::new(&figure, "ms/step", &os, &equal, Goal::None));
        }
    }
    Ok(records)
}

/// CG, whose memory exceeds the processor's own caches, stopped every other slice while nothing else runs.
/// This is the cost of a pause itself, without another program.
fn paused(cluster: &Cluster, slice: &str, runs: usize) -> Result<Record, BenchError> {
    let meter = start(cluster, CG)?;
    let sleep = cluster::existing("/bin/sleep".into())?;
    let _asleep = Meter::spawn(cluster, "asleep", &[], &sleep, &["100000"])?;
    let mut windows = Vec::new();
    for _ in 0..runs {
        let pair = ["dqt", "os"].map(|policy| {
            cluster.kumi(&["cluster", "set", "--policy", policy])?;
            Ok::<Window, BenchError>(Window::pass(PAUSED))
        });
        windows.push(pair);
    }
    cluster.kumi(&["cluster", "set", "--policy", "dqt"])?;
    Meter::catch_up();
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for [paused, alone] in windows {
        ours.push(1e3 * meter.seconds_per_step(paused?)?);
        peer.push(2e3 * meter.seconds_per_step(alone?)?);
    }
    let figure = format!("CG.A stopped every other {slice}, nothing else running");
    let peer = Peer::Measured("half the machine", &peer);
    Ok(Record::new(&figure, "ms/step", &ours, &peer, Goal::None))
}
