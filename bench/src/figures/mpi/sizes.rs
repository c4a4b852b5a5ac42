//! Two ranks, messages of 1 B to 4 MB: latency, bandwidth, both directions, and rate with 64 under way.

use super::ways::{Shape, Way};
use crate::cluster::Cluster;
use crate::error::BenchError;
use crate::figures::Setting;
use crate::figures::chart::{self, Line};
use crate::record::{Goal, Peer, Record, median};
use std::path::Path;

/// What `mpisizes` prints behind each size, with its unit and the longest message for which it is shown.
const QUANTITIES: [(&str, &str, u64); 4] = [
    ("latency", "us", u64::MAX),
    ("bandwidth", "MB/s", u64::MAX),
    ("bidirectional", "MB/s", u64::MAX),
    ("rate", "/s", 4096),
];

/// The quantities of each size, of one run.
type Table = Vec<(u64, [f64; 4])>;

/// A place where two ranks run, with its peers and goals.
struct Place {
    name: &'static str,
    nodes: u32,
    options: &'static [&'static str],
    peers: &'static [Way],
    /// Quantity, bytes, peer, goal.
    goals: &'static [(&'static str, u64, Way, Goal)],
}

const PLACES: [Place; 3] = [
    Place {
        name: "two nodes",
        nodes: 2,
        options: &["--wire", "udp"],
        peers: &[Way::Tcp, Way::StockProvider],
        goals: &[
            ("latency", 8, Way::Tcp, Goal::RatioAtMost(0.8)),
            ("latency", 8, Way::StockProvider, Goal::RatioAtMost(0.45)),
            ("bandwidth", 1 << 20, Way::Tcp, Goal::RatioAtLeast(1.1)),
            ("rate", 8, Way::Tcp, Goal::RatioAtLeast(3.0)),
        ],
    },
    Place {
        name: "two nodes, AF_XDP",
        nodes: 2,
        options: &["--wire", "xdp"],
        peers: &[Way::Tcp],
        goals: &[("latency", 8, Way::Tcp, Goal::RatioAtMost(0.6))],
    },
    Place {
        name: "one node",
        nodes: 1,
        options: &["--cpus", "all"],
        peers: &[Way::SharedMemory, Way::Tcp],
        goals: &[
            ("latency", 8, Way::SharedMemory, Goal::RatioAtMost(1.8)),
            ("bandwidth", 1 << 20, Way::SharedMemory, Goal::RatioAtLeast(0.95)),
        ],
    },
];

/// The runs of one way, or why there are none.
struct Column {
    way: Way,
    runs: Result<Vec<Table>, String>,
}

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let program = setting.peers.program("mpisizes")?;
    let mut records = Vec::new();
    for place in &PLACES {
        // A network that has no AF_XDP is told as such; the other places do without.
        let cluster = match Cluster::up(place.nodes, place.options) {
            Ok(cluster) => cluster,
            Err(error) => {
                records.push(Record::unmeasured(place.name, &error.to_string()));
                continue;
            }
        };
        let ours = Column { way: Way::Kumi, runs: Ok(Vec::new()) };
        let peers = place.peers.iter().map(|&way| Column { way, runs: Ok(Vec::new()) });
        let mut columns: Vec<Column> = std::iter::once(ours).chain(peers).collect();
        for _ in 0..runs {
            for column in &mut columns {
                run(column, &cluster, place.nodes, &program)?;
            }
        }
        records.extend(compare(place, &columns));
        plot(setting, place, &columns)?;
    }
    Ok(records)
}

/// One more run. A peer that fails is absent from then on; we may not fail.
fn run(
    column: &mut Column,
    cluster: &Cluster,
    nodes: u32,
    program: &Path,
) -> Result<(), BenchError> {
    let Ok(tables) = &mut column.runs else { return Ok(()) };
    let shape = Shape { ranks: 2, nodes };
    match column.way.run(cluster, shape, program, &[]).and_then(|output| read(&output)) {
        Ok(table) => tables.push(table),
        Err(error) if column.way == Way::Kumi => return Err(error),
        Err(error) => column.runs = Err(format!("{} failed: {error}", column.way.name())),
    }
    Ok(())
}

/// Reads lines as "8 latency 7.1 bandwidth 80 bidirectional 90 rate 1000000".
fn read(output: &str) -> Result<Table, BenchError> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut values = [0.0; 4];
        for (value, (name, _, _)) in values.iter_mut().zip(QUANTITIES) {
            let place = words.iter().position(|word| *word == name)?;
            *value = words.get(place + 1)?.parse().ok()?;
        }
        Some((words.first()?.parse().ok()?, values))
    };
    let table: Table = output.lines().filter_map(line).collect();
    if table.is_empty() {
        let (wanted, what) = ("sizes".to_owned(), "mpisizes".to_owned());
        return Err(BenchError::Output { wanted, what, output: output.to_owned() });
    }
    Ok(table)
}

/// The values of a quantity at a size, by run.
fn values(tables: &[Table], size: u64, quantity: usize) -> Vec<f64> {
    let of = |table: &Table| table.iter().find(|row| row.0 == size).map(|row| row.1[quantity]);
    tables.iter().filter_map(of).collect()
}

fn sizes(columns: &[Column]) -> Vec<u64> {
    let first = columns.first().and_then(|column| column.runs.as_ref().ok()?.first());
    first.into_iter().flatten().map(|row| row.0).collect()
}

fn compare(place: &Place, columns: &[Column]) -> Vec<Record> {
    let Some((Column { runs: Ok(ours), .. }, peers)) = columns.split_first() else {
        return Vec::new();
    };
    let mut records = Vec::new();
    for (quantity, (name, unit, most)) in QUANTITIES.iter().enumerate() {
        for size in sizes(columns).into_iter().filter(|size| size <= most) {
            let own = values(ours, size, quantity);
            let figure = format!("MPI {name}, {size} B, {}", place.name);
            for Column { way, runs } in peers {
                let wanted = |goal: &&(&str, u64, Way, Goal)| {
                    (goal.0, goal.1, goal.2) == (*name, size, *way)
                };
                let goal = place.goals.iter().find(wanted).map_or(Goal::None, |goal| goal.3);
                let theirs = runs.as_ref().map(|tables| values(tables, size, quantity));
                let peer = match &theirs {
                    Ok(theirs) => Peer::Measured(way.name(), theirs),
                    Err(why) => Peer::Absent(why),
                };
                records.push(Record::new(&figure, unit, &own, &peer, goal));
            }
        }
    }
    records
}

/// A plot of each quantity over the size, as SVG beside the records.
fn plot(setting: &Setting, place: &Place, columns: &[Column]) -> Result<(), BenchError> {
    for (quantity, (name, unit, most)) in QUANTITIES.iter().enumerate() {
        let line = |column: &Column| {
            let tables = column.runs.as_ref().ok()?;
            let at = |size: u64| (size as f64, median(&values(tables, size, quantity)));
            let points = sizes(columns).into_iter().filter(|size| size <= most).map(at).collect();
            Some(Line { name: column.way.name(), points })
        };
        let lines: Vec<Line> = columns.iter().filter_map(line).collect();
        let title = format!("{name} in {unit} by bytes, {}", place.name);
        let file = format!("mpi-{name}-{}.svg", place.name.replace([' ', ','], "-"));
        chart::write(&setting.out, &file, &title, &lines)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(way: Way, latency: f64) -> Column {
        let table = vec![(8, [latency, 80.0, 90.0, 1e6]), (1 << 20, [100.0, 900.0, 950.0, 1e3])];
        Column { way, runs: Ok(vec![table]) }
    }

    #[test]
    fn reads_what_the_program_prints() {
        let line = "8 latency 7.125 bandwidth 80.5 bidirectional 90.0 rate 1000000\n";
        assert_eq!(read(line).unwrap(), [(8, [7.125, 80.5, 90.0, 1e6])]);
        assert!(read("8 latency 7.125\n").is_err());
    }

    #[test]
    fn each_goal_of_a_place_has_its_record() {
        let columns =
            [column(Way::Kumi, 4.0), column(Way::Tcp, 8.0), column(Way::StockProvider, 10.0)];
        let records = compare(&PLACES[0], &columns);
        let with_goal: Vec<&Record> =
            records.iter().filter(|record| record.goal.is_some()).collect();
        assert_eq!(with_goal.len(), PLACES[0].goals.len());
        let latency = with_goal.iter().find(|record| record.peer_name == "its own TCP").unwrap();
        assert_eq!((latency.ratio, latency.met), (Some(0.5), Some(true)));
    }

    #[test]
    fn a_peer_that_failed_is_absent() {
        let gone = Column { way: Way::StockProvider, runs: Err("it hangs".to_owned()) };
        let records = compare(&PLACES[0], &[column(Way::Kumi, 4.0), gone]);
        assert!(records.iter().all(|record| record.peer_name == "absent: it hangs"));
        assert!(records.iter().all(|record| record.met.is_none()));
    }
}
