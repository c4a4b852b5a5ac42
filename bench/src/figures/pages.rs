//! Page requests, 64 bytes for 4,096, of 16 clients to one server: the benefit of fewer acks.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

/// Ranks: 16 on the server's node, where the first is the server and the others only wait, and 16 clients on
/// the other node.
const RANKS: &str = "32";

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    // A page and its header fit a packet, as in the source of this figure.
    let cluster = Cluster::up(2, &["--mtu", "9000"])?;
    let program = cluster::program("kumi-bench-pages")?.display().to_string();
    let run = |ack: &str| -> Result<[f64; 2], BenchError> {
        let words = ["run", "-n", RANKS, "--nodes", "2", "--ack", ack, &program];
        let output = cluster.kumi(&words)?;
        let number = |name| cluster::number(&output, name, "kumi-bench-pages");
        Ok([number("requests_per_second")?, number("packets_per_request")?])
    };
    let mut columns = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for _ in 0..runs {
        for (ack, column) in ["reduced", "per-message"].into_iter().zip(&mut columns) {
            for (values, value) in column.iter_mut().zip(run(ack)?) {
                values.push(value);
            }
        }
    }
    let [reduced, each] = &columns;
    let name = "acks per message";
    let figure = "page requests of 16 clients, 64 B for 4 KB";
    let packets = "packets of a page request";
    let least = Goal::RatioAtLeast(1.5);
    Ok(vec![
        Record::new(figure, "1/s", &reduced[0], &Peer::Measured(name, &each[0]), least),
        Record::new(packets, "packets", &reduced[1], &Peer::Nobody, Goal::OursAtMost(2.05)),
        Record::new(packets, "packets", &reduced[1], &Peer::Measured(name, &each[1]), Goal::None),
    ])
}
