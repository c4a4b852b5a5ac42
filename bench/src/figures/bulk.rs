//! Bytes a second of large puts. Between nodes: against the kernel's maximum (UDP in runs of packets,
//! unchecked and never resent), and against a TCP stream. Within a node: against memcpy.
//!
//! Every put has the same target address, as the peers write the same buffer. So all data stays in the caches
//! on both sides.

use super::turns::{self, Measure, PeerComparison};
use super::{MTUS, Setting, of_mtu};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Record};

/// Bytes of a put in words and digits, puts in a batch of 32 MB, and the least ratios to raw UDP and to TCP.
const SIZES: [(&str, &str, &str, [f64; 2]); 2] =
    [("64 KB", "65536", "512", [0.8, 1.1]), ("1 MB", "1048576", "32", [0.85, 1.2])];
const BATCHES: &str = "20";

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    for mtu in MTUS {
        records.extend(between(setting, mtu, runs)?);
    }
    records.extend(within(setting, runs)?);
    Ok(records)
}

/// Between two nodes whose path takes frames of so many bytes.
fn between(setting: &Setting, mtu: &str, runs: usize) -> Result<Vec<Record>, BenchError> {
    let far = Cluster::up(2, &["--mtu", mtu])?;
    let (peers, nodes) = (&setting.peers, &far.nodes);
    let mut records = Vec::new();
    for (name, bytes, window, [raw, stream]) in SIZES {
        let against = vec![
            PeerComparison {
                name: Ok(format!("raw UDP, runs of packets ({})", peers.kernel)),
                goal: Goal::RatioAtLeast(raw),
                measure: Box::new(|| peers.bulk("gso", nodes, bytes, BATCHES)),
            },
            PeerComparison {
                name: Ok(format!("TCP stream ({})", peers.kernel)),
                goal: Goal::RatioAtLeast(stream),
                measure: Box::new(|| peers.bulk("tcp", nodes, bytes, BATCHES)),
            },
        ];
        let figure = format!("puts of {name} between nodes{}", of_mtu(mtu));
        let ours = ours(&far, "2", bytes, window)?;
        records.extend(turns::measure(&figure, "MB/s", runs, ours, against)?);
    }
    Ok(records)
}

/// Ours in megabytes per second; `nodes` is 2 for one rank on each node, 1 for both on one.
fn ours<'a>(
    cluster: &'a Cluster,
    nodes: &'a str,
    bytes: &'a str,
    window: &'a str,
) -> Result<Measure<'a>, BenchError> {
    let program = cluster::program("kumi-bench-stream")?.display().to_string();
    Ok(Box::new(move || {
        let run = ["run", "-n", "2", "--nodes", nodes, &program, "--batches", BATCHES];
        let output = cluster.kumi(&[&run[..], &["--size", bytes, "--window", window]].concat())?;
        cluster::number(&output, "megabytes_per_second", "kumi-bench-stream")
    }))
}

fn within(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let peers = &setting.peers;
    let cluster = Cluster::up(1, &["--cpus", "all"])?;
    let node = &cluster.nodes[0];
    let (name, bytes, window, _) = SIZES[1];
    let copy = |kind: &'static str, goal| PeerComparison {
        name: Ok(format!("memcpy to {kind} memory")),
        goal,
        measure: Box::new(move || peers.copy(kind, node, bytes)),
    };
    let against = vec![copy("ordinary", Goal::RatioAtLeast(0.9)), copy("shared", Goal::None)];
    let figure = format!("puts of {name} same node");
    turns::measure(&figure, "MB/s", runs, ours(&cluster, "1", bytes, window)?, against)
}
