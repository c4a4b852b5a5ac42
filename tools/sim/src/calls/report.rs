//! Report of the replications of a model.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use super::plan::Plan;
use super::run::Options;
use super::tally::{Cell, Sum, Tally};
use crate::stats::Estimate;

/// A quantity of calls: its mean over calls, estimated over replications, and its extremes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: Estimate,
    /// The least of all calls.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    fn of(cells: &[Cell], sum: impl Fn(&Cell) -> Sum) -> Self {
        let sums: Vec<Sum> = cells.iter().map(sum).filter(|sum| sum.count > 0).collect();
        if sums.is_empty() {
            return Self::default();
        }
        let means: Vec<f64> = sums.iter().filter_map(Sum::mean).collect();
        Self {
            mean: Estimate::of(&means),
            min: sums.iter().map(|sum| sum.least).fold(f64::INFINITY, f64::min),
            max: sums.iter().map(|sum| sum.most).fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// The calls of one routine by the clients of one site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The site.
    pub site: String,
    /// The routine.
    pub routine: String,
    /// Calls that came back, in all replications.
    pub calls: u64,
    /// Calls that came back per second.
    pub calls_per_s: Estimate,
    /// Share of the calls that were refused because the queue was full.
    pub turned_away: Estimate,
    /// Operations per second of a call over its whole time.
    pub performance: Spread,
    /// Bytes per second of a call during its transfers.
    pub throughput: Spread,
    /// Seconds of its transfers, there and back.
    pub communication_s: Spread,
    /// Seconds of waiting at the metaserver and in the server's queue.
    pub waiting_s: Spread,
    /// Seconds from the call to its results.
    pub response_s: Spread,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerReport {
    /// Its name.
    pub name: String,
    /// Calls in a second.
    pub calls_per_s: Estimate,
    /// Share of its processors that was busy.
    pub utilisation: Estimate,
    /// Mean number of calls that computed or waited to.
    pub load: Estimate,
}

/// A site's path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkReport {
    /// The site.
    pub site: String,
    /// Its number at the site, from 0.
    pub link: usize,
    /// Share of time in which the direction to the servers was busy.
    pub out: Estimate,
    /// Share of time in which the direction back was busy.
    pub back: Estimate,
}

/// Results of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Rises when a field is removed or changes its meaning.
    pub schema: u32,
    /// Program and version that made it.
    pub version: &'static str,
    /// The broker's policy.
    pub policy: String,
    /// Seconds simulated; null: until all calls were over.
    pub time_s: Option<f64>,
    /// Seconds not measured.
    pub warm_up_s: f64,
    /// Replications.
    pub replications: u32,
    /// Seed of the first replication.
    pub seed: u64,
    /// End of the last call or of the simulation.
    pub end_s: Estimate,
    /// By site and routine.
    pub rows: Vec<Row>,
    /// Servers.
    pub servers: Vec<ServerReport>,
    /// Paths.
    pub links: Vec<LinkReport>,
}

impl Report {
    pub(super) fn new(plan: &Plan<'_>, options: &Options, tallies: &[Tally]) -> Self {
        let keys: BTreeSet<_> = tallies.iter().flat_map(|tally| tally.cells.keys()).collect();
        let over = |of: &dyn Fn(&Tally) -> f64| {
            Estimate::of(&tallies.iter().map(of).collect::<Vec<f64>>())
        };
        let paths = plan.links.len();
        let servers = plan.model.servers.iter().enumerate().map(|(number, server)| {
            let processors = f64::from(server.processors);
            let station = 2 * paths + number;
            ServerReport {
                name: server.name.clone(),
                calls_per_s: over(&|tally| tally.by_server[number] as f64 / tally.measured_s),
                utilisation: over(&|tally| {
                    tally.stations[station].busy / processors / tally.measured_s
                }),
                load: over(&|tally| tally.stations[station].present / tally.measured_s),
            }
        });
        let sites = plan.model.sites.iter();
        let named = sites.flat_map(|site| (0..site.links.len()).map(move |link| (site, link)));
        let links = named.enumerate().map(|(path, (site, link))| LinkReport {
            site: site.name.clone(),
            link,
            out: over(&|tally| tally.stations[2 * path].busy / tally.measured_s),
            back: over(&|tally| tally.stations[2 * path + 1].busy / tally.measured_s),
        });
        Self {
            schema: 1,
            version: env!("CARGO_PKG_VERSION"),
            policy: plan.model.policy.clone(),
            time_s: options.time_s,
            warm_up_s: options.warm_up_s,
            replications: options.replications,
            seed: options.seed,
            end_s: over(&|tally| tally.end_s),
            servers: servers.collect(),
            links: links.collect(),
            rows: keys.into_iter().map(|&key| row(plan, key, tallies)).collect(),
        }
    }
}

fn row(plan: &Plan<'_>, key: (usize, usize), tallies: &[Tally]) -> Row {
    let cells: Vec<Cell> =
        tallies.iter().map(|tally| tally.cells.get(&key).copied().unwrap_or_default()).collect();
    let rate = |(tally, cell): (&Tally, &Cell)| cell.response.count as f64 / tally.measured_s;
    let turned = |cell: &Cell| {
        let all = cell.turned_away + cell.response.count;
        if all == 0 { 0.0 } else { cell.turned_away as f64 / all as f64 }
    };
    Row {
        site: plan.model.sites[key.0].name.clone(),
        routine: plan.model.routines[key.1].name.clone(),
        calls: cells.iter().map(|cell| cell.response.count).sum(),
        calls_per_s: Estimate::of(&tallies.iter().zip(&cells).map(rate).collect::<Vec<f64>>()),
        turned_away: Estimate::of(&cells.iter().map(turned).collect::<Vec<f64>>()),
        performance: Spread::of(&cells, |cell| cell.performance),
        throughput: Spread::of(&cells, |cell| cell.throughput),
        communication_s: Spread::of(&cells, |cell| cell.communication),
        waiting_s: Spread::of(&cells, |cell| cell.waiting),
        response_s: Spread::of(&cells, |cell| cell.response),
    }
}

/// A table with a line for each policy, site and routine.
#[must_use]
pub fn csv(reports: &[Report]) -> String {
    let mut text = String::from("policy,site,routine,calls,calls_per_s,turned_away");
    let names = ["performance", "throughput", "communication_s", "waiting_s", "response_s"];
    for name in names {
        text += &format!(",{name}_mean,{name}_half_width,{name}_min,{name}_max");
    }
    text.push('\n');
    reports.iter().for_each(|report| lines(&mut text, report));
    text
}

fn lines(text: &mut String, report: &Report) {
    for row in &report.rows {
        let Row { site, routine, calls, calls_per_s, turned_away, .. } = row;
        let line = write!(
            text,
            "{},{},{},{calls},{},{}",
            quoted(&report.policy),
            quoted(site),
            quoted(routine),
            calls_per_s.mean,
            turned_away.mean
        );
        debug_assert!(line.is_ok(), "writing to a string cannot fail");
        let spreads =
            [row.performance, row.throughput, row.communication_s, row.waiting_s, row.response_s];
        for Spread { mean, min, max } in spreads {
            *text += &format!(",{},{},{min},{max}", mean.mean, mean.half_width);
        }
        text.push('\n');
    }
}

/// A name as a field, in quotes if it would be read as several fields.
fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", name.replace('"', "\"\""));
    }
    name.to_owned()
}
