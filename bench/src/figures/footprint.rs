//! Memory of a rank's idle channel in a job of 1,024 ranks.
//!
//! The job is real: 1,024 processes on eight nodes. Each joins, meets its peers in a barrier and then
//! sleeps. Two processors are enough, since nobody computes and a waiting rank of a crowded node
//! blocks. Each rank reports how much its process has grown since before it joined. Shared pages count
//! in proportion, so the sum over a node's ranks counts the job's segment once.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

const RANKS: &str = "1024";
const NODES: u32 = 8;
/// Number of ranks on each of a node's processors: enough even with one processor.
const CROWD: (&str, u32) = ("max_ranks_per_processor", 128);

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up_with(NODES, &["--cpus", "all"], &[CROWD])?;
    let program = cluster::program("kumi-bench-footprint")?.display().to_string();
    let (mut mean, mut most) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let nodes = NODES.to_string();
        let output = cluster.kumi(&["run", "-n", RANKS, "--nodes", &nodes, &program])?;
        let kilobytes = |name| {
            let bytes = cluster::number(&output, name, "kumi-bench-footprint")?;
            Ok::<f64, BenchError>(bytes / 1024.0)
        };
        mean.push(kilobytes("bytes_per_rank")?);
        most.push(kilobytes("most_bytes_of_a_rank")?);
    }
    let record = |what: &str, values: &[f64]| {
        let figure = format!("idle channel of {RANKS} ranks, {what}");
        Record::new(&figure, "KB", values, &Peer::Nobody, Goal::OursAtMost(1024.0))
    };
    Ok(vec![record("mean rank", &mean), record("largest rank", &most)])
}
