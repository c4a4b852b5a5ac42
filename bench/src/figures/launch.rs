//! Launch of a job that does nothing: 8 ranks on 4 nodes, compared with as many processes of mpirun. Also the
//! time until the user hears of a failed rank.

use super::Setting;
use crate::cluster::Cluster;
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Launches that do not count, because caches are still cold.
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
    let launch = Record::new(figure, "ms", &ours, &peer, Goal::RatioAtMost(0.4));
    let told = (0..runs).map(|_| failure(&cluster)).collect::<Result<Vec<f64>, _>>()?;
    let figure = "killed rank, 4 nodes x 2 ranks, until kumi run has ended";
    let failure = Record::new(figure, "ms", &told, &Peer::Nobody, Goal::OursAtMost(MOST_FAILURE));
    Ok(vec![launch, failure])
}

/// The documents promise a report of a failure within two seconds.
const MOST_FAILURE: f64 = 2_000.0;

/// When all ranks run, one prints the time and kills itself; the others would sleep for long.
const FAILS: &str = "[ $KUMI_RANK = 5 ] && { sleep 0.3; date +%s%N; kill -9 $$; }; exec sleep 600";

/// Milliseconds from the end of a rank to that of the command that started its job.
fn failure(cluster: &Cluster) -> Result<f64, BenchError> {
    let words = ["run", "-n", "8", "--nodes", "4", "sh", "-c", FAILS];
    let ended = cluster.command(&words).output();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as f64;
    let what = words.join(" ");
    let ended = ended.map_err(|source| BenchError::Start { what: what.clone(), source })?;
    let output = String::from_utf8_lossy(&ended.stdout).into_owned();
    match output.lines().next().and_then(|line| line.parse::<f64>().ok()) {
        Some(killed) if ended.status.code() == Some(137) => Ok((now - killed) / 1e6),
        _ => Err(BenchError::Output { wanted: "the end of rank 5".to_owned(), what, output }),
    }
}
