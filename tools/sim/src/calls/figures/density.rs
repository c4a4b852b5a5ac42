//! Table 3: the density of states of a large molecule, 256 frequencies of very uneven work, split into calls.

use std::fmt::Write as _;

use super::{Case, Part, Section, line};
use crate::calls::model::{Clients, Discipline, Law, Model, Routine, Server, Site, Source, Task};
use crate::calls::report::Report;
use crate::calls::run::Options;
use crate::random::RandomStream;
use crate::stats::Estimate;

const FREQUENCIES: usize = 256;
/// Seconds that all frequencies take on one server, without the cost of each call: the paper's cyclic run on
/// one server.
const WORK_S: f64 = 1380.0;
/// Cost of a call at the metaserver and at its server, from the paper's columns for one and eight servers.
const COSTS_S: (f64, f64) = (0.14, 0.28);
/// Cost of a frequency if servers fetch it by a callback.
const CALLBACK_S: f64 = 0.02;
const SERVERS: [usize; 4] = [1, 8, 16, 32];
const SPLITS: [usize; 4] = [32, 64, 128, 256];

/// Ways to distribute the work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In this many calls, each to the first free server.
    Dynamic(usize),
    /// In 32 calls, to the servers in turn, even if a server is busy.
    Cyclic,
    /// Each server fetches a frequency when it is done with the last.
    Callback,
}

const WAYS: [(Way, [Option<f64>; 4]); 6] = [
    (Way::Dynamic(32), [Some(1394.8), Some(195.5), Some(111.9), None]),
    (Way::Dynamic(64), [Some(1408.5), Some(196.1), Some(107.9), None]),
    (Way::Dynamic(128), [Some(1430.0), Some(206.1), Some(113.1), None]),
    (Way::Dynamic(256), [Some(1489.4), Some(234.6), Some(131.9), None]),
    (Way::Cyclic, [Some(1380.4), Some(233.8), Some(165.3), Some(94.4)]),
    (Way::Callback, [Some(1385.9), Some(179.8), Some(91.3), Some(52.9)]),
];

/// Seconds of each frequency, `work_s` in all. Their distribution follows from the paper's other columns.
/// Sums of 32, 16 and 8 frequencies scatter (cyclic) as if one scattered by about 1.5 times its mean. But no
/// frequency is so long that callbacks on 32 servers would wait for it. Both hold if a quarter of them is
/// long and the others are short.
#[must_use]
pub fn frequencies(seed: u64, work_s: f64) -> Vec<f64> {
    let mut draws = RandomStream::new(seed, 0);
    let one = |_| {
        let mean = if draws.unit() <= 0.25 { 1.0 } else { 0.05 };
        mean * (0.7 + 0.6 * draws.unit())
    };
    let raw: Vec<f64> = (0..FREQUENCIES).map(one).collect();
    let all: f64 = raw.iter().sum();
    raw.iter().map(|seconds| seconds * work_s / all).collect()
}

fn model(way: Way, servers: usize, seed: u64) -> Model {
    let work = frequencies(seed, WORK_S);
    let splits = match way {
        Way::Dynamic(splits) => splits,
        Way::Cyclic => SPLITS[0],
        Way::Callback => FREQUENCIES,
    };
    let (buffering_s, overhead_s) = if way == Way::Callback { (0.0, CALLBACK_S) } else { COSTS_S };
    let task = |split: usize| Task {
        // Nothing starts before all calls of the transaction are at the metaserver.
        at_s: buffering_s * splits as f64,
        work: work.iter().skip(split).step_by(splits).sum(),
        server: (way == Way::Cyclic).then_some(split % servers),
    };
    let server = |number: usize| Server {
        name: format!("alpha{number}"),
        processors: 1,
        speed: 1.0,
        discipline: Discipline::Fcfs,
        limit: (way != Way::Cyclic).then_some(1),
        overhead_s,
        routines: Vec::new(),
    };
    let routine = Routine {
        name: "dos".to_owned(),
        bytes_out: 0,
        bytes_back: 0,
        operations: 1.0,
        law: Law::Constant,
    };
    Model {
        sites: vec![Site { name: "here".to_owned(), links: Vec::new() }],
        servers: (0..servers).map(server).collect(),
        routines: vec![routine],
        clients: vec![Clients {
            site: "here".to_owned(),
            count: 1,
            user: 0,
            routines: vec!["dos".to_owned()],
            source: Source::List((0..splits).map(task).collect()),
        }],
        policy: "least-load".to_owned(),
        metaserver_s: 0.0,
        most_waiting: None,
    }
}

/// Number of different work loads, and for each as many reports.
const LOADS: u64 = 16;

pub(super) struct Density;

impl Part for Density {
    fn cases(&self, _: bool) -> Vec<Case> {
        let options = Options { time_s: None, warm_up_s: 0.0, replications: 1, seed: 1 };
        let mut cases = Vec::new();
        for (way, _) in WAYS {
            for servers in SERVERS {
                cases.extend((1..=LOADS).map(|seed| (model(way, servers, seed), options)));
            }
        }
        cases
    }

    fn judge(&self, reports: &[Report]) -> Section {
        let how = "Over 16 loads, with intervals of 95 %. Each call costs 0.14 s at the metaserver, which takes all of a \
                   transaction before it starts any, and 0.28 s at its server. A callback costs 0.02 s. A quarter of the \
                   frequencies is long, the others are short. The text at hand of the paper lacks the dynamic way's column for 32 servers.";
        let mut section = Section::new("Table 3: density of states", how);
        line!(section.text, "| seconds | 1 server | paper | 8 | paper | 16 | paper | 32 | paper |");
        line!(section.text, "|---|---|---|---|---|---|---|---|---|");
        let end = |report: &Report| report.end_s.mean;
        let means: Vec<Estimate> = reports
            .chunks(LOADS as usize)
            .map(|runs| Estimate::of(&runs.iter().map(end).collect::<Vec<f64>>()))
            .collect();
        let rows: Vec<&[Estimate]> = means.chunks(SERVERS.len()).collect();
        for ((way, paper), row) in WAYS.iter().zip(&rows) {
            let name = match way {
                Way::Dynamic(splits) => format!("dynamic, {splits} calls"),
                Way::Cyclic => "cyclic, 32 calls".to_owned(),
                Way::Callback => "callback".to_owned(),
            };
            let mut text = format!("| {name}");
            for (estimate, paper) in row.iter().zip(paper) {
                let paper = paper.map_or_else(|| "-".to_owned(), |paper| format!("{paper:.1}"));
                text += &format!(" | {:.1} ± {:.1} | {paper}", estimate.mean, estimate.half_width);
            }
            line!(section.text, "{text} |");
        }
        claims(&mut section, &rows);
        section
    }
}

fn claims(section: &mut Section, rows: &[&[Estimate]]) {
    let at = |row: usize, servers: usize| rows[row][servers].mean;
    let best = |servers: usize| {
        let times = (0..SPLITS.len()).map(|row| (SPLITS[row], at(row, servers)));
        times.min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((0, f64::NAN))
    };
    for (servers, expected) in [(1, 32), (2, 64), (3, 128)] {
        let (splits, seconds) = best(servers);
        let many = SERVERS[servers];
        section.claim(
            format!("{many} servers: the dynamic way is faster than the cyclic one"),
            seconds < at(4, servers),
            format!("{seconds:.1} s against {:.1} s", at(4, servers)),
        );
        section.claim(
            format!(
                "{many} servers: {expected} calls are best (here: or less than 3 % behind the best)"
            ),
            SPLITS
                .iter()
                .position(|&s| s == expected)
                .is_some_and(|row| at(row, servers) < 1.03 * seconds),
            format!("best {splits}"),
        );
        section.claim(
            format!("{many} servers: callbacks are a little faster still (by 30 % at most)"),
            (0.7..1.0).contains(&(at(5, servers) / seconds)),
            format!("{:.1} s against {seconds:.1} s", at(5, servers)),
        );
    }
    let rises = (1..SPLITS.len()).all(|row| at(row, 0) > at(row - 1, 0));
    section.claim(
        "on one server time grows with the number of calls",
        rises,
        format!("{:.1} to {:.1} s", at(0, 0), at(3, 0)),
    );
    let falls = (0..WAYS.len()).all(|row| (1..SERVERS.len()).all(|s| at(row, s) < at(row, s - 1)));
    section.claim(
        "time falls with the number of servers, in every way",
        falls,
        "all rows".to_owned(),
    );
    let mut off = 0.0f64;
    for (row, (_, paper)) in WAYS.iter().enumerate() {
        for (servers, paper) in paper.iter().enumerate() {
            off = paper.map_or(off, |paper| off.max((at(row, servers) / paper - 1.0).abs()));
        }
    }
    section.claim(
        "the times themselves (here: every one within 20 %)",
        off <= 0.2,
        format!("{:.1} % off at most", 100.0 * off),
    );
}
