//! What switching costs a program that runs alone, how long a switch takes, how far apart the nodes
//! switch, and how many messages that takes.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// About how long a program should run for one value, in seconds: short, so that the two sides of a
/// pair see the same machine.
const SECONDS: f64 = 1.0;

/// Slices with the largest ratio to no switching at all.
const SLICES: [(&str, f64); 4] = [("100ms", 1.005), ("10ms", 1.01), ("1ms", 1.04), ("250us", 1.12)];

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    for (name, file) in [("CG", "cg"), ("IS", "is")] {
        records.extend(overhead(name, &cluster::program(file)?, runs)?);
    }
    records.extend(switches(runs)?);
    records.push(traffic(runs)?);
    Ok(records)
}

/// Seconds of the timed region of a NAS kernel of class A, one rank on each of two nodes.
fn seconds(cluster: &Cluster, program: &Path, repeat: &str) -> Result<f64, BenchError> {
    let output = cluster.run(2, program, &["--class", "A", "--repeat", repeat])?;
    cluster::number(&output, "Time in seconds", &program.display().to_string())
}

/// One slice's runs.
#[derive(Clone, Default)]
struct Runs {
    forced: Vec<f64>,
    unswitched: Vec<f64>,
}

/// The program alone with the switching forced, against the program alone without.
fn overhead(name: &str, program: &Path, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &[])?;
    let once = seconds(&cluster, program, "1")?;
    let repeat = (SECONDS / once).ceil().max(1.0).to_string();
    let mut all = vec![Runs::default(); SLICES.len()];
    for _ in 0..runs {
        for ((slice, _), of_slice) in SLICES.iter().zip(&mut all) {
            // Both sides of a pair one right after the other: the machine drifts.
            cluster.kumi(&["cluster", "set", "--force-switch", "off"])?;
            of_slice.unswitched.push(seconds(&cluster, program, &repeat)?);
            cluster.kumi(&["cluster", "set", "--force-switch", "on", "--slice", slice])?;
            of_slice.forced.push(seconds(&cluster, program, &repeat)?);
        }
    }
    let mut records = Vec::new();
    for ((slice, most), Runs { forced, unswitched }) in SLICES.iter().zip(&all) {
        let figure = format!("{name}.A alone, forced switch every {slice}");
        let peer = Peer::Measured("the same without switching", unswitched);
        records.push(Record::new(&figure, "s", forced, &peer, Goal::RatioAtMost(*most)));
    }
    Ok(records)
}

/// Two programs at once with the default slice: time of a switch and skew between the nodes.
fn switches(runs: usize) -> Result<Vec<Record>, BenchError> {
    let (mut p50, mut skew, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        let stats = stats_of_two_jobs()?;
        let nodes: Vec<&Value> = stats["nodes"].as_array().into_iter().flatten().collect();
        let numbers = |pointer: &str| -> Vec<f64> {
            nodes.iter().filter_map(|node| node.pointer(pointer)?.as_f64()).collect()
        };
        let count: f64 = numbers("/switching/count").iter().sum();
        let slower = numbers("/switching/total/p50").into_iter().fold(0.0, f64::max);
        let (Some(p99), true) = (stats["skew"]["p99_ns"].as_f64(), count > 0.0) else {
            return Err(BenchError::Output {
                wanted: "switches of two nodes".to_owned(),
                what: "kumi stats --json".to_owned(),
                output: stats.to_string(),
            });
        };
        p50.push(slower / 1e3);
        skew.push(p99 / 1e3);
        messages.push(numbers("/switching/messages").iter().sum::<f64>() / count);
    }
    let record = |figure: &str, unit, values: &[f64], most| {
        Record::new(figure, unit, values, &Peer::Nobody, Goal::OursAtMost(most))
    };
    Ok(vec![
        record("switch every 10ms, p50 of the slower node", "us", &p50, 20.0),
        record("skew between nodes, p99", "us", &skew, 100.0),
        record("control messages sent for a switch", "", &messages, 0.0),
    ])
}

/// The statistics while two programs share a new cluster: the histograms begin with the daemons.
fn stats_of_two_jobs() -> Result<Value, BenchError> {
    let cluster = Cluster::up(2, &[])?;
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

/// Control messages a second of all daemons while 4,000 switches a second are made, against none.
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
    Ok(Record::new(figure, "/s", &ours, &peer, Goal::None))
}

fn control_messages(cluster: &Cluster) -> Result<f64, BenchError> {
    let stats = cluster.stats()?;
    let nodes = stats["nodes"].as_array().into_iter().flatten();
    Ok(nodes.filter_map(|node| node["control_messages"].as_f64()).sum())
}
