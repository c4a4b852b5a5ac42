//! Half round trip of an 8-byte put with notification, between nodes and within one.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

const BYTES: &str = "8";

/// Measured in the same runs.
#[derive(Default)]
struct Runs {
    ours: Vec<f64>,
    raw: Vec<f64>,
    tcp: Vec<f64>,
    mpi: Vec<f64>,
}

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = between(setting, runs)?;
    records.extend(within(setting, runs)?);
    Ok(records)
}

/// Ours in microseconds; `nodes` is 2 for one rank on each node, 1 for both on one.
fn ours(cluster: &Cluster, nodes: &str) -> Result<f64, BenchError> {
    let program = cluster::program("kumi-bench-pingpong")?.display().to_string();
    let output = cluster.kumi(&["run", "-n", "2", "--nodes", nodes, &program, "--size", BYTES])?;
    Ok(cluster::number(&output, "half_round_trip_ns", "kumi-bench-pingpong")? / 1e3)
}

fn between(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let peers = &setting.peers;
    let cluster = Cluster::up(2, &[])?;
    let nodes = &cluster.nodes;
    let mut all = Runs::default();
    for _ in 0..runs {
        all.raw.push(peers.wire("udp", nodes, BYTES, None)?);
        all.ours.push(ours(&cluster, "2")?);
        all.tcp.push(peers.wire("tcp", nodes, BYTES, None)?);
        if peers.mpi.is_ok() {
            all.mpi.push(peers.mpi_between(nodes, BYTES)?);
        }
    }
    let figure = "put+notify 8 B between nodes, half round trip";
    let udp = format!("raw UDP busy poll ({})", peers.kernel);
    let tcp = format!("raw TCP busy poll ({})", peers.kernel);
    let record = |peer: &Peer<'_>, goal| Record::new(figure, "us", &all.ours, peer, goal);
    let mpi = peers.mpi_with("btl tcp");
    Ok(vec![
        record(&Peer::Measured(&udp, &all.raw), Goal::RatioAtMost(1.5)),
        record(&Peer::if_present(&mpi, &all.mpi), Goal::RatioAtMost(1.0)),
        record(&Peer::Measured(&tcp, &all.tcp), Goal::None),
    ])
}

fn within(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let peers = &setting.peers;
    let cluster = Cluster::up(1, &["--cpus", "all"])?;
    let node = &cluster.nodes[0];
    let mut all = Runs::default();
    for _ in 0..runs {
        all.raw.push(peers.flag(node)?);
        all.ours.push(ours(&cluster, "1")?);
        if peers.mpi.is_ok() {
            all.mpi.push(peers.mpi_within(node, BYTES)?);
        }
    }
    let figure = "put+notify 8 B same node, half round trip";
    let mpi = peers.mpi_with("btl vader");
    let flag = "raw shared-memory flag";
    Ok(vec![
        Record::new(
            figure,
            "us",
            &all.ours,
            &Peer::Measured(flag, &all.raw),
            Goal::RatioAtMost(2.0),
        ),
        Record::new(figure, "us", &all.ours, &Peer::if_present(&mpi, &all.mpi), Goal::None),
    ])
}
