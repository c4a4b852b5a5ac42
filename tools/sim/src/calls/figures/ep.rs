//! Table 2: EP, which computes much and sends nothing.

use std::fmt::Write as _;

use super::{CLIENTS, Case, Part, Section, j90, line, model, options, site};
use crate::calls::model::Routine;
use crate::calls::report::Report;

/// Operations per second of a processor, from the first row.
const SPEED: f64 = 0.17e6;

/// The networks: name, bytes per second, latency.
const NETWORKS: [(&str, f64, f64); 2] = [("LAN", 1e6, 0.005), ("WAN", 170_000.0, 0.02)];

/// By network and clients: mean performance in Mops, utilisation in %.
const PAPER: [[(f64, f64); 5]; 2] = [
    [(0.17, 30.51), (0.17, 53.86), (0.17, 98.18), (0.08, 100.0), (0.04, 100.0)],
    [(0.17, 25.02), (0.17, 49.16), (0.17, 98.14), (0.08, 100.0), (0.04, 99.94)],
];

pub(super) struct Ep;

impl Part for Ep {
    fn cases(&self, quick: bool) -> Vec<Case> {
        let all = NETWORKS.iter().flat_map(|&network| CLIENTS.map(|count| (network, count)));
        all.map(|((name, bandwidth, latency), count)| {
            let sites = vec![site(name, bandwidth, latency)];
            (model(sites, count, Routine::ep(24), j90(SPEED)), options(40_000.0, quick))
        })
        .collect()
    }

    fn judge(&self, reports: &[Report]) -> Section {
        let how = "2^24 pairs, which the paper counts as 2^25 operations; a call uses one of 4 processors, shared equally.";
        let mut section = Section::new("Table 2: EP", how);
        line!(
            section.text,
            "| network | c | Mops max/min/mean | paper's mean | under way, s | server busy % | paper | load |"
        );
        line!(section.text, "|---|---|---|---|---|---|---|---|");
        for (index, report) in reports.iter().enumerate() {
            let (paper, row) = (PAPER[index / 5][index % 5], &report.rows[0]);
            line!(
                section.text,
                "| {} | {} | {:.3}/{:.3}/{:.3} | {:.2} | {:.3} | {:.2} | {:.2} | {:.2} |",
                row.site,
                CLIENTS[index % 5],
                row.performance.max / 1e6,
                row.performance.min / 1e6,
                row.performance.mean.mean / 1e6,
                paper.0,
                row.communication_s.mean.mean,
                100.0 * report.servers[0].utilisation.mean,
                paper.1,
                report.servers[0].load.mean
            );
        }
        let speed = |index: usize| reports[index].rows[0].performance.mean.mean;
        let shares: Vec<f64> = (0..5).map(|c| speed(c) / speed(0)).collect();
        section.claim(
            "up to 4 clients each has a processor of its own",
            shares[1..3].iter().all(|share| (share - 1.0).abs() < 0.02),
            format!("{:.3} and {:.3} of one client's", shares[1], shares[2]),
        );
        section.claim(
            "8 clients have a half each, 16 a quarter (within 10 %)",
            (shares[3] / 0.5 - 1.0).abs() < 0.1 && (shares[4] / 0.25 - 1.0).abs() < 0.1,
            format!("{:.3} and {:.3}", shares[3], shares[4]),
        );
        let apart = (0..5).map(|c| (speed(c) / speed(5 + c) - 1.0).abs()).fold(0.0, f64::max);
        section.claim(
            "the network does not matter (1 % at most)",
            apart < 0.01,
            format!("{:.2} % at most", 100.0 * apart),
        );
        let busy = reports[2].servers[0].utilisation.mean;
        section.claim(
            "4 clients keep the server busy (95 % at least)",
            busy >= 0.95,
            format!("{:.1} %", 100.0 * busy),
        );
        section
    }
}
