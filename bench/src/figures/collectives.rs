//! Collectives of 8 ranks on 4 nodes, beside Open MPI over TCP (in a node, over its shared memory).

use super::Setting;
use super::turns::{self, Measure, PeerComparison};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Record};

const NODES: u32 = 4;
const RANKS_EACH: usize = 2;

/// A collective, bytes as for the programs, how many in a batch, and the goal.
const SHAPES: [(&str, &str, &str, Goal); 7] = [
    ("allreduce", "8", "200", Goal::RatioAtMost(0.6)),
    ("allreduce", "65536", "40", Goal::None),
    ("allreduce", "1048576", "8", Goal::None),
    ("broadcast", "8", "200", Goal::None),
    ("broadcast", "1048576", "8", Goal::None),
    ("allgather", "1024", "100", Goal::None),
    ("alltoall", "1024", "100", Goal::None),
];
const BATCHES: &str = "10";

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(NODES, &[])?;
    let (peers, nodes) = (&setting.peers, &cluster.nodes);
    let program = cluster::program("kumi-bench-collectives")?.display().to_string();
    let (ranks, node_count) = ((NODES as usize * RANKS_EACH).to_string(), NODES.to_string());
    let mut records = Vec::new();
    for (name, bytes, length, goal) in SHAPES {
        let ours: Measure<'_> = Box::new(|| {
            let run = ["run", "-n", &ranks, "--nodes", &node_count, &program, name];
            let shape = ["--size", bytes, "--batches", BATCHES, "--length", length];
            let output = cluster.kumi(&[&run[..], &shape].concat())?;
            cluster::number(&output, "microseconds", "kumi-bench-collectives")
        });
        let against = vec![PeerComparison {
            name: peers.mpi_with("btl tcp and vader, yielding"),
            goal,
            measure: Box::new(|| {
                peers.mpi_collective(nodes, RANKS_EACH, &[name, bytes, BATCHES, length])
            }),
        }];
        let figure = format!("{name} of {bytes} B, {RANKS_EACH} ranks on each of {NODES} nodes");
        records.extend(turns::measure(&figure, "us", runs, ours, against)?);
    }
    Ok(records)
}
