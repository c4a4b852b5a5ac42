//! Gets of 4 KB under way at the same time, beside the same gets one after the other.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

/// MTUs of the network: a get's answer is three packets, or one.
const MTUS: [&str; 2] = ["1500", "9000"];

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let program = cluster::program("kumi-bench-gets")?.display().to_string();
    let mut records = Vec::new();
    for mtu in MTUS {
        let cluster = Cluster::up(2, &["--mtu", mtu])?;
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            let output = cluster.kumi(&["run", "-n", "2", "--nodes", "2", &program])?;
            let number = |name| cluster::number(&output, name, "kumi-bench-gets");
            together.push(number("gets_per_second_together")?);
            alone.push(number("gets_per_second_alone")?);
        }
        let figure = format!("gets of 4 KB between nodes, 16 under way, MTU {mtu}");
        let peer = Peer::Measured("one after the other", &alone);
        records.push(Record::new(&figure, "1/s", &together, &peer, Goal::RatioAtLeast(4.0)));
    }
    Ok(records)
}
