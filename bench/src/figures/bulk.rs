//! Bytes a second of large puts. Between nodes: against the kernel's maximum (UDP in runs of packets,
//! unchecked and never resent), and against a TCP stream. Within a node: against memcpy.
//!
//! Every put has the same target address, as the peers write the same buffer. So all data stays in the caches
//! on both sides.

use super::Setting;
use super::turns::{self, Measure, PeerComparison};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Record};

/// Bytes of a put in words and digits, and puts in a batch of 32 MB.
const SIZES: [(&str, &str, &str); 2] = [("64 KB", "65536", "512"), ("1 MB", "1048576", "32")];
const BATCHES: &str = "20";

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let far = Cluster::up(2, &[])?;
    let (peers, nodes) = (&setting.peers, &far.nodes);
    let mut records = Vec::new();
    for (name, bytes, window) in SIZES {
        let against = vec![
            PeerComparison {
                name: Ok(format!("raw UDP, runs of packets ({})", peers.kernel)),
                goal: Goal::RatioAtLeast(0.9),
                measure: Box::new(|| peers.bulk("gso", nodes, bytes, BATCHES)),
            },
            PeerComparison {
                name: Ok(format!("TCP stream ({})", peers.kernel)),
                goal: Goal::RatioAtLeast(1.2),
                measure: Box::new(|| peers.bulk("tcp", nodes, bytes, BATCHES)),
            },
        ];
        let figure = format!("puts of {name} between nodes");
        let ours = ours(&far, "2", bytes, window)?;
        records.extend(turns::measure(&figure, "MB/s", runs, ours, against)?);
    }
    drop(far);
    records.extend(within(setting, runs)?);
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
    let (name, bytes, window) = SIZES[1];
    let copy = |kind: &'static str, goal| PeerComparison {
        name: Ok(format!("memcpy to {kind} memory")),
        goal,
        measure: Box::new(move || peers.copy(kind, node, bytes)),
    };
    let against = vec![copy("ordinary", Goal::RatioAtLeast(0.9)), copy("shared", Goal::None)];
    let figure = format!("puts of {name} same node");
    turns::measure(&figure, "MB/s", runs, ours(&cluster, "1", bytes, window)?, against)
}
