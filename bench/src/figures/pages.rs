//! Page requests, 64 bytes for 4,096, of 16 clients to one server: the benefit of fewer acks.

use super::Setting;
use super::turns::{self, Measure, PeerComparison};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

/// Ranks: 16 on the server's node, where the first is the server and the others only wait, and 16 clients on
/// the other node.
const RANKS: &str = "32";

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
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
    let mut records = vec![
        Record::new(figure, "1/s", &reduced[0], &Peer::Measured(name, &each[0]), least),
        Record::new(packets, "packets", &reduced[1], &Peer::Nobody, Goal::OursAtMost(2.05)),
        Record::new(packets, "packets", &reduced[1], &Peer::Measured(name, &each[1]), Goal::None),
    ];
    records.extend(round_trip(setting, runs)?);
    Ok(records)
}

/// One client, alone with the server; both poll.
fn round_trip(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &["--mtu", "9000"])?;
    let (peers, nodes) = (&setting.peers, &cluster.nodes);
    let program = cluster::program("kumi-bench-pages")?.display().to_string();
    let ours: Measure<'_> = Box::new(|| {
        let run = ["run", "-n", "2", "--nodes", "2", "--env", "KUMI_SPIN=infinite", &program];
        let output =
            cluster.kumi(&[&run[..], &["--clients", "1", "--requests", "20000"]].concat())?;
        Ok(1e6 / cluster::number(&output, "requests_per_second", "kumi-bench-pages")?)
    });
    let against = vec![PeerComparison {
        name: Ok(format!("raw UDP, polling ({})", peers.kernel)),
        goal: Goal::RatioAtMost(1.3),
        // It tells half of it.
        measure: Box::new(|| Ok(2.0 * peers.wire("udp", nodes, "64:4096", Some("60"))?)),
    }];
    turns::measure("page request, 64 B for 4 KB, round trip, both poll", "us", runs, ours, against)
}
