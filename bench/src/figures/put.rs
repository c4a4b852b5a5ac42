//! Half round trip of an 8-byte put with notification: between nodes while both sides poll, between
//! nodes while both sides block in every wait, and within a node.

use super::turns::{self, Measure, PeerComparison};
use super::{MTUS, Setting, of_mtu};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Record};

const BYTES: &str = "8";
/// Batches of a turn, of 200 round trips each: some tenths of a second.
const BATCHES: &str = "60";

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    for mtu in MTUS {
        let far = Cluster::up(2, &["--mtu", mtu])?;
        records.extend(polling(setting, (&far, mtu), runs)?);
        records.extend(blocked(setting, (&far, mtu), runs)?);
    }
    records.extend(within(setting, runs)?);
    Ok(records)
}

/// Ours in microseconds; `nodes` is 2 for one rank on each node, 1 for both on one.
fn ours<'a>(
    cluster: &'a Cluster,
    nodes: &'a str,
    spin: &'a str,
) -> Result<Measure<'a>, BenchError> {
    let program = cluster::program("kumi-bench-pingpong")?.display().to_string();
    Ok(Box::new(move || {
        let run = ["run", "-n", "2", "--nodes", nodes, "--env", spin, &program];
        let output =
            cluster.kumi(&[&run[..], &["--size", BYTES, "--batches", BATCHES]].concat())?;
        Ok(cluster::number(&output, "half_round_trip_ns", "kumi-bench-pingpong")? / 1e3)
    }))
}

fn polling(
    setting: &Setting,
    (cluster, mtu): (&Cluster, &str),
    runs: usize,
) -> Result<Vec<Record>, BenchError> {
    let (peers, nodes) = (&setting.peers, &cluster.nodes);
    let ucx = |test: &'static str, goal| PeerComparison {
        name: peers.ucx.clone().map(|version| format!("{version}, {test} over TCP")),
        goal,
        measure: Box::new(move || peers.ucx(test, nodes, BYTES)),
    };
    let against = vec![
        PeerComparison {
            name: Ok(format!("raw UDP, polling ({})", peers.kernel)),
            goal: Goal::RatioAtMost(1.2),
            measure: Box::new(|| peers.wire("udp", nodes, BYTES, Some(BATCHES))),
        },
        PeerComparison {
            name: peers.mpi_with("btl tcp"),
            goal: Goal::RatioAtMost(0.8),
            measure: Box::new(|| peers.mpi_between(nodes, BYTES)),
        },
        ucx("ucp_put_lat", Goal::RatioAtMost(0.5)),
        ucx("tag_lat", Goal::RatioAtMost(1.0)),
    ];
    let figure = format!("put+notify 8 B between nodes, both poll, half round trip{}", of_mtu(mtu));
    turns::measure(&figure, "us", runs, ours(cluster, "2", "KUMI_SPIN=infinite")?, against)
}

fn blocked(
    setting: &Setting,
    (cluster, mtu): (&Cluster, &str),
    runs: usize,
) -> Result<Vec<Record>, BenchError> {
    let (peers, nodes) = (&setting.peers, &cluster.nodes);
    let against = vec![PeerComparison {
        name: Ok(format!("raw UDP, blocking ({})", peers.kernel)),
        goal: Goal::RatioAtMost(1.15),
        measure: Box::new(|| peers.wire("udp-blocking", nodes, BYTES, Some(BATCHES))),
    }];
    let figure =
        format!("put+notify 8 B between nodes, both block, half round trip{}", of_mtu(mtu));
    turns::measure(&figure, "us", runs, ours(cluster, "2", "KUMI_SPIN=0")?, against)
}

fn within(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let peers = &setting.peers;
    let cluster = Cluster::up(1, &["--cpus", "all"])?;
    let node = &cluster.nodes[0];
    let against = vec![PeerComparison {
        name: Ok("raw shared-memory flag".to_owned()),
        goal: Goal::RatioAtMost(1.5),
        measure: Box::new(|| peers.flag(node)),
    }];
    let figure = "put+notify 8 B same node, half round trip";
    turns::measure(figure, "us", runs, ours(&cluster, "1", "KUMI_SPIN=infinite")?, against)
}
