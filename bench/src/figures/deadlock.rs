//! Report of a deadlock: jobs whose ranks wait for each other at once, from their start until `kumi run` has told it and ended.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use std::time::Instant;

/// Kinds of the example `deadlock`.
const KINDS: [&str; 3] = ["crossed", "barrier", "locks"];
/// What a report may take, in milliseconds.
const MOST: f64 = 1_000.0;
/// Exit code of a job that was ended for a deadlock.
const DEADLOCKED: i32 = 72;

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &[])?;
    let record = |kind| {
        let took = (0..runs).map(|_| report(&cluster, kind)).collect::<Result<Vec<f64>, _>>()?;
        let figure = format!("job that is stopped at once, 2 nodes, until it is told: {kind}");
        Ok(Record::new(&figure, "ms", &took, &Peer::Nobody, Goal::OursAtMost(MOST)))
    };
    KINDS.into_iter().map(record).collect()
}

/// Milliseconds from the start of the command until it has ended its job for this deadlock.
fn report(cluster: &Cluster, kind: &str) -> Result<f64, BenchError> {
    let program = cluster::program("deadlock")?.display().to_string();
    let ends = ["--on-deadlock", "kill", "--deadlock-grace", "0ms"];
    let words = [&["run", "-n", "2", "--nodes", "2"][..], &ends, &[&program, kind]].concat();
    let begin = Instant::now();
    let ended = cluster.command(&words).output();
    let took = begin.elapsed().as_secs_f64() * 1e3;
    let what = words.join(" ");
    let ended = ended.map_err(|source| BenchError::Start { what: what.clone(), source })?;
    if ended.status.code() == Some(DEADLOCKED) {
        return Ok(took);
    }
    let output = String::from_utf8_lossy(&ended.stderr).into_owned();
    Err(BenchError::Output { wanted: format!("exit code {DEADLOCKED}"), what, output })
}
