//! Cost of settling a channel, compared with a round trip of a small put in the same run. Settling takes one
//! round trip if nothing is lost.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &[])?;
    let between = |name: &str, number: &[&str]| {
        let program = cluster::program(name)?.display().to_string();
        let output = cluster.kumi(&["run", "-n", "2", "--nodes", "2", &program])?;
        number
            .iter()
            .map(|wanted| cluster::number(&output, wanted, name))
            .collect::<Result<Vec<f64>, _>>()
    };
    let (mut idle, mut busy, mut late, mut trip) = (vec![], vec![], vec![], vec![]);
    for _ in 0..runs {
        let settled: Vec<f64> = between(
            "kumi-bench-settle",
            &["settle_idle_mean_us", "settle_busy_mean_us", "settle_idle_late", "settle_busy_late"],
        )?;
        idle.push(settled[0]);
        busy.push(settled[1]);
        late.push(settled[2] + settled[3]);
        let half: Vec<f64> = between("kumi-bench-pingpong", &["half_round_trip_ns"])?;
        trip.push(half[0] / 500.0);
    }
    let figure = |what: &str| format!("settling a rank's channel, {what}");
    let peer = Peer::Measured("a round trip of an 8-byte put", &trip);
    Ok(vec![
        Record::new(&figure("nothing on the way"), "us", &idle, &peer, Goal::None),
        Record::new(&figure("16 KB on the way"), "us", &busy, &peer, Goal::None),
        Record::new(
            &figure("not settled within a second"),
            "times",
            &late,
            &Peer::Nobody,
            Goal::OursAtMost(0.0),
        ),
    ])
}
