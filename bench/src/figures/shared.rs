//! Shared memory between two nodes, beside what the wire and the kernel take for the same.

use super::Setting;
use super::turns::{self, Measure, PeerComparison};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

const PROGRAM: &str = "kumi-bench-shared";
/// Pages that are read or written in a run: 32 MB. Reads one after another have 64 MB.
const PAGES: &str = "8192";
const SEQUENTIAL_PAGES: &str = "16384";

/// A kind of access, and how its rank waits.
struct Access<'a> {
    kind: &'a str,
    pages: &'a str,
    spin: &'a str,
    /// More options of `kumi run`.
    options: &'a [&'a str],
}

impl Access<'_> {
    fn measure(&self, cluster: &Cluster) -> Result<f64, BenchError> {
        let program = cluster::program(PROGRAM)?.display().to_string();
        let spin = format!("KUMI_SPIN={}", self.spin);
        let run = ["run", "-n", "2", "--nodes", "2", "--env", &spin, &program];
        let run = [&run[..1], self.options, &run[1..]].concat();
        let output = cluster.kumi(&[&run[..], &[self.kind, "--pages", self.pages]].concat())?;
        cluster::number(&output, "result", PROGRAM)
    }
}

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &["--mtu", "9000"])?;
    let mut records = misses(setting, &cluster, runs)?;
    records.extend(sequential(setting, &cluster, runs)?);
    records.extend(releases(&cluster, runs)?);
    records.extend(traced(&cluster, runs)?);
    for (figure, kind) in
        [("barrier of two ranks", "barrier"), ("lock that goes back and forth", "lock")]
    {
        let access = Access { kind, pages: "2000", spin: "adaptive", options: &[] };
        let ours = (0..runs).map(|_| access.measure(&cluster)).collect::<Result<Vec<_>, _>>()?;
        records.push(Record::new(figure, "us", &ours, &Peer::Nobody, Goal::None));
    }
    Ok(records)
}

/// The same pages while their job is traced, beside the job without a trace.
fn traced(cluster: &Cluster, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = Vec::new();
    for (figure, kind, pages) in [
        ("page of 4 KB by a fault, traced", "miss", PAGES),
        ("lock that goes back and forth, traced", "lock", "2000"),
    ] {
        let access = |options| Access { kind, pages, spin: "infinite", options };
        let ours: Measure<'_> = Box::new(move || access(&["--trace"][..]).measure(cluster));
        let against = vec![PeerComparison {
            name: Ok("the same without a trace".to_owned()),
            goal: Goal::RatioAtMost(1.03),
            measure: Box::new(move || access(&[][..]).measure(cluster)),
        }];
        records.extend(turns::measure(figure, "us", runs, ours, against)?);
    }
    Ok(records)
}

/// A page that a fault brings, beside the same bytes by bare packets.
fn misses(setting: &Setting, cluster: &Cluster, runs: usize) -> Result<Vec<Record>, BenchError> {
    let (peers, nodes) = (&setting.peers, &cluster.nodes);
    let ways = [
        ("page of 4 KB by a fault, its home polls", "miss", "infinite", "udp", 1.6),
        (
            "page of 4 KB by a fault, its home computes",
            "miss-computing",
            "adaptive",
            "udp-blocking",
            1.5,
        ),
    ];
    let mut records = Vec::new();
    for (figure, kind, spin, peer, goal) in ways {
        let ours: Measure<'_> =
            Box::new(move || Access { kind, pages: PAGES, spin, options: &[] }.measure(cluster));
        let against = vec![PeerComparison {
            name: Ok(format!("raw UDP, 64 B for 4 KB, {peer} ({})", peers.kernel)),
            goal: Goal::RatioAtMost(goal),
            // It tells half of a round trip.
            measure: Box::new(move || Ok(2.0 * peers.wire(peer, nodes, "64:4096", Some("60"))?)),
        }];
        records.extend(turns::measure(figure, "us", runs, ours, against)?);
    }
    Ok(records)
}

/// Pages read one after another, beside a stream of the same bytes.
fn sequential(
    setting: &Setting,
    cluster: &Cluster,
    runs: usize,
) -> Result<Vec<Record>, BenchError> {
    let (peers, nodes) = (&setting.peers, &cluster.nodes);
    let access =
        Access { kind: "sequential", pages: SEQUENTIAL_PAGES, spin: "infinite", options: &[] };
    let ours: Measure<'_> = Box::new(move || access.measure(cluster));
    let against = vec![PeerComparison {
        name: Ok(format!("TCP stream ({})", peers.kernel)),
        goal: Goal::RatioAtLeast(0.5),
        measure: Box::new(|| peers.bulk("tcp", nodes, "1048576", "20")),
    }];
    turns::measure("64 MB of remote pages read in order", "MB/s", runs, ours, against)
}

/// Pages that are written and released, beside the same at a rank alone.
fn releases(cluster: &Cluster, runs: usize) -> Result<Vec<Record>, BenchError> {
    let access = Access { kind: "release", pages: PAGES, spin: "infinite", options: &[] };
    let ours: Measure<'_> = Box::new(move || access.measure(cluster));
    let against = vec![PeerComparison {
        name: Ok("a rank alone: the write and the scan".to_owned()),
        goal: Goal::RatioAtMost(1.5),
        measure: Box::new(|| {
            let mut command = std::process::Command::new(cluster::program(PROGRAM)?);
            command.args(["release-alone", "--pages", PAGES]);
            cluster::number(&cluster::output(&mut command)?, "result", PROGRAM)
        }),
    }];
    turns::measure("page written, compared and released", "ns", runs, ours, against)
}
