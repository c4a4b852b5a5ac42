//! Cost of switching for a program that runs alone; time of a switch; skew between nodes; control messages
//! for switches.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::meter::{Meter, Window};
use crate::record::{Goal, Peer, Record};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Slices, each with its largest permitted ratio to running without switches, and with the length of a
/// window: some slices and some steps of the program.
const SLICES: [(&str, f64, u64); 4] =
    [("100ms", 1.005, 600), ("10ms", 1.01, 250), ("1ms", 1.04, 250), ("250us", 1.12, 250)];
/// The shortest window for IS.A, whose steps are long, in milliseconds.
const IS_WINDOW: u64 = 500;
/// Most clusters that are started for the statistics of switching.
const MOST_CLUSTERS: usize = 7;

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    for (name, file, least) in [("CG", "cg", 0), ("IS", "is", IS_WINDOW)] {
        records.extend(overhead(name, &cluster::program(file)?, least, runs)?);
    }
    let clusters = runs.min(MOST_CLUSTERS);
    records.extend(switches(clusters)?);
    records.push(traffic(clusters)?);
    Ok(records)
}

/// A program alone with forced switches, compared with the same run in the windows before and after, without
/// them.
fn overhead(
    name: &str,
    program: &Path,
    least: u64,
    runs: usize,
) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &[])?;
    let meter =
        Meter::start(&cluster, name, &[], program, &["--class", "A", "--repeat", "1000000"])?;
    let window = |settings: &[&str], length: u64| {
        cluster.kumi(&[&["cluster", "set", "--force-switch"], settings].concat())?;
        Ok::<Window, BenchError>(Window::pass(Duration::from_millis(length.max(least))))
    };
    let mut windows = Vec::new();
    for _ in 0..runs {
        for (index, (slice, _, length)) in SLICES.iter().enumerate() {
            let before = window(&["off"], *length)?;
            let forced = window(&["on", "--slice", slice], *length)?;
            let after = window(&["off"], *length)?;
            windows.push((index, [before, forced, after]));
        }
    }
    Meter::catch_up();
    let mut of_slice = vec![(Vec::new(), Vec::new()); SLICES.len()];
    for (index, [before, forced, after]) in windows {
        let (ours, peer) = &mut of_slice[index];
        ours.push(1e3 * meter.seconds_per_step(forced)?);
        let (before, after) = (meter.seconds_per_step(before)?, meter.seconds_per_step(after)?);
        peer.push(1e3 * f64::midpoint(before, after));
    }
    let mut records = Vec::new();
    for ((slice, most, _), (forced, unswitched)) in SLICES.iter().zip(&of_slice) {
        let figure = format!("{name}.A alone, forced switch every {slice}");
        let peer = Peer::Measured("the same without switching", unswitched);
        records.push(Record::new(&figure, "ms/step", forced, &peer, Goal::RatioAtMost(*most)));
    }
    Ok(records)
}

/// Two programs at once: time of a switch and skew between the nodes.
fn switches(runs: usize) -> Result<Vec<Record>, BenchError> {
    let (mut p50, mut skew) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let stats = stats_of_two_jobs()?;
        let nodes: Vec<&Value> = stats["nodes"].as_array().into_iter().flatten().collect();
        let numbers = |pointer: &str| -> Vec<f64> {
            nodes.iter().filter_map(|node| node.pointer(pointer)?.as_f64()).collect()
        };
        let count: f64 = numbers("/switching/count").iter().sum();
        let slower = numbers("/switching/total/p50").into_iter().fold(0.0, f64::max);
        let one_clock = stats["skew"]["clock"] == "machine";
        let (Some(p99), true) = (stats["skew"]["p99_ns"].as_f64(), count > 0.0 && one_clock) else {
            return Err(BenchError::Output {
                wanted: "switches of two nodes of one machine".to_owned(),
                what: "kumi stats --json".to_owned(),
                output: stats.to_string(),
            });
        };
        p50.push(slower / 1e3);
        skew.push(p99 / 1e3);
    }
    let record = |figure: &str, unit, values: &[f64], most| {
        Record::new(figure, unit, values, &Peer::Nobody, Goal::OursAtMost(most))
    };
    Ok(vec![
        record("switch every 10ms, p50 of the slower node", "us", &p50, 20.0),
        record("skew between nodes by one clock, p99", "us", &skew, 100.0),
    ])
}

/// The statistics while two programs share a new cluster: the histograms begin with the daemons.
fn stats_of_two_jobs() -> Result<Value, BenchError> {
    let cluster = Cluster::up(2, &["--slice", "10ms"])?;
    let program = cluster::program("lockstep")?;
    let start = || cluster.start(2, &program, &["--seconds", "4"]);
    let jobs = [start()?, start()?];
    std::thread::sleep(Duration::from_secs(3));
    let stats = cluster.stats()?;
    for job in jobs {
        cluster::finish(job, "lockstep")?;
    }
    Ok(stats)
}

/// Two nodes make 8,000 switches a second, and each switch may cause one message in a thousand. Some forty
/// messages are sent in any case.
const MOST_TRAFFIC: f64 = 1.2;

/// Control messages per second of all daemons with 4,000 switches a second, and without.
fn traffic(runs: usize) -> Result<Record, BenchError> {
    let cluster = Cluster::up(2, &["--slice", "250us"])?;
    let program = cluster::program("lockstep")?;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..runs.min(3) {
        for (switch, rates) in [("off", &mut peer), ("on", &mut ours)] {
            cluster.kumi(&["cluster", "set", "--force-switch", switch])?;
            let job = cluster.start(2, &program, &["--seconds", "6"])?;
            std::thread::sleep(Duration::from_secs(1));
            let before = control_messages(&cluster)?;
            std::thread::sleep(Duration::from_secs(4));
            rates.push((control_messages(&cluster)? - before) / 4.0);
            cluster::finish(job, "lockstep")?;
        }
    }
    let figure = "control messages with a forced switch every 250us";
    let peer = Peer::Measured("the same without switching", &peer);
    Ok(Record::new(figure, "/s", &ours, &peer, Goal::RatioAtMost(MOST_TRAFFIC)))
}

fn control_messages(cluster: &Cluster) -> Result<f64, BenchError> {
    let stats = cluster.stats()?;
    let nodes = stats["nodes"].as_array().into_iter().flatten();
    Ok(nodes.filter_map(|node| node["control_messages"].as_f64()).sum())
}
