//! Launch of a job that does nothing: 8 ranks on 4 nodes, against as many processes of mpirun.

use super::Setting;
use crate::cluster::Cluster;
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use std::time::Instant;

/// Launches that do not count: caches fill.
const WARM_UP: usize = 3;

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let peers = &setting.peers;
    let cluster = Cluster::up(4, &[])?;
    let (mut ours, mut mpi) = (Vec::new(), Vec::new());
    for run in 0..WARM_UP + runs {
        let begin = Instant::now();
        cluster.kumi(&["run", "-n", "8", "--nodes", "4", "true"])?;
        let own = begin.elapsed().as_secs_f64();
        let other = if peers.mpi.is_ok() { Some(peers.mpi_launch()?) } else { None };
        if run >= WARM_UP {
            ours.push(own * 1e3);
            mpi.extend(other.map(|seconds| seconds * 1e3));
        }
    }
    let name = peers.mpi_with("mpirun -np 8 true");
    let peer = Peer::if_present(&name, &mpi);
    let figure = "launch of true, 4 nodes x 2 ranks, p50";
    Ok(vec![Record::new(figure, "ms", &ours, &peer, Goal::RatioAtMost(0.4))])
}
