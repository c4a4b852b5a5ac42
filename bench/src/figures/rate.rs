//! Rate of 16-byte puts from one rank to a rank of another node: windows of puts in flight, each answered by
//! one notification. Message-rate tests of MPI do the same with messages.

use super::Setting;
use super::turns::{self, Measure, PeerComparison};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Record};

const BYTES: &str = "16";
/// Puts in flight at once: the number in MPI's tests, and more.
const WINDOWS: [(&str, Goal); 2] = [("64", Goal::RatioAtLeast(3.0)), ("1024", Goal::None)];

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &[])?;
    let (peers, nodes) = (&setting.peers, &cluster.nodes);
    let program = cluster::program("kumi-bench-stream")?.display().to_string();
    let mut records = Vec::new();
    for (window, goal) in WINDOWS {
        let ours: Measure<'_> = Box::new(|| {
            let run = ["run", "-n", "2", "--nodes", "2", &program, "--size", BYTES];
            let shape = ["--window", window, "--places", window, "--windows", "20"];
            let output = cluster.kumi(&[&run[..], &shape, &["--batches", "20"]].concat())?;
            cluster::number(&output, "messages_per_second", "kumi-bench-stream")
        });
        let against = vec![PeerComparison {
            name: peers.mpi_with("btl tcp, MPI_Isend"),
            goal,
            measure: Box::new(|| peers.mpi_rate(nodes, BYTES, window)),
        }];
        let figure = format!("puts of 16 B between nodes, {window} in flight");
        records.extend(turns::measure(&figure, "/s", runs, ours, against)?);
    }
    Ok(records)
}
