//! Table 1 and figure 3: Linpack over a wide-area network, from one site and from four.

use std::fmt::Write as _;

use super::{CLIENTS, Case, Part, Section, j90, line, model, options, site};
use crate::calls::model::{Model, Routine};
use crate::calls::report::Report;

/// Bytes per second that FTP got between the site and the server.
const BANDWIDTH: f64 = 170_000.0;
/// Operations per second of a processor.
const SPEED: f64 = 200e6;
const ORDERS: [u64; 3] = [600, 1000, 1400];

/// Of table 1, by order and clients: mean performance in Mflops and throughput in MB/s, utilisation in %.
const PAPER: [[(f64, f64, f64); 5]; 3] = [
    [
        (7.68, 0.161, 6.85),
        (3.77, 0.077, 6.90),
        (2.46, 0.051, 8.94),
        (1.08, 0.022, 7.99),
        (0.54, 0.011, 8.17),
    ],
    [
        (10.50, 0.131, 6.43),
        (7.15, 0.088, 9.23),
        (3.97, 0.049, 9.39),
        (1.82, 0.022, 8.71),
        (0.88, 0.011, 8.75),
    ],
    [
        (16.42, 0.147, 8.15),
        (9.34, 0.070, 13.58),
        (5.50, 0.048, 15.61),
        (2.46, 0.021, 9.20),
        (1.25, 0.011, 9.35),
    ],
];

fn at_sites(names: &[&str], count: u32, order: u64) -> Model {
    let sites = names.iter().map(|name| site(name, BANDWIDTH, 0.01)).collect();
    model(sites, count, Routine::linpack(order), j90(SPEED))
}

fn mflops(report: &Report) -> f64 {
    report.rows[0].performance.mean.mean / 1e6
}

/// Throughput of all sites together, in MB/s.
fn carried(report: &Report, order: u64) -> f64 {
    let routine = Routine::linpack(order);
    let bytes = (routine.bytes_out + routine.bytes_back) as f64;
    report.rows.iter().map(|row| row.calls_per_s.mean).sum::<f64>() * bytes / 1e6
}

pub(super) struct OneSite;

impl Part for OneSite {
    fn cases(&self, quick: bool) -> Vec<Case> {
        let all = ORDERS.iter().flat_map(|&order| CLIENTS.map(|count| (order, count)));
        all.map(|(order, count)| (at_sites(&["Ocha-U"], count, order), options(40_000.0, quick)))
            .collect()
    }

    fn judge(&self, reports: &[Report]) -> Section {
        let how = "One site whose path carries 0.17 MB/s, shared equally; a server of 4 processors of 200 Mflops, \
                   shared equally; c clients that call with probability 1/2 every 3 s. Intervals are of 95 %.";
        let mut section = Section::new("Table 1: Linpack from one site", how);
        line!(
            section.text,
            "| n | c | Mflops max/min/mean | paper's mean | MB/s max/min/mean | paper's mean | server busy % | paper | load |"
        );
        line!(section.text, "|---|---|---|---|---|---|---|---|---|");
        let mut near = 0;
        for (index, report) in reports.iter().enumerate() {
            let (paper, row) = (PAPER[index / 5][index % 5], &report.rows[0]);
            let (speed, through) = (row.performance, row.throughput);
            line!(
                section.text,
                "| {} | {} | {:.2}/{:.2}/{:.2} ± {:.2} | {:.2} | {:.3}/{:.3}/{:.3} | {:.3} | {:.2} | {:.2} | {:.2} |",
                ORDERS[index / 5],
                CLIENTS[index % 5],
                speed.max / 1e6,
                speed.min / 1e6,
                speed.mean.mean / 1e6,
                speed.mean.half_width / 1e6,
                paper.0,
                through.max / 1e6,
                through.min / 1e6,
                through.mean.mean / 1e6,
                paper.1,
                100.0 * report.servers[0].utilisation.mean,
                paper.2,
                report.servers[0].load.mean
            );
            near += usize::from((mflops(report) / paper.0 - 1.0).abs() <= 0.25);
        }
        claims(&mut section, reports, near);
        section
    }
}

fn claims(section: &mut Section, reports: &[Report], near: usize) {
    section.claim(
        "the mean performance of each row (here: within 25 % in at least 12 of 15)",
        near >= 12,
        format!("{near} of 15"),
    );
    let rises = (0..5).all(|c| mflops(&reports[c]) < mflops(&reports[5 + c]));
    let rises = rises && (0..5).all(|c| mflops(&reports[5 + c]) < mflops(&reports[10 + c]));
    let ends = [&reports[0], &reports[10]].map(mflops);
    section.claim(
        "a call's performance rises with n, for every c",
        rises,
        format!("at c = 1 from {:.2} to {:.2} Mflops", ends[0], ends[1]),
    );
    let through = |report: &Report| report.rows[0].throughput.mean.mean;
    let falls: Vec<f64> =
        reports.chunks(5).map(|row| through(&row[0]) / through(&row[4])).collect();
    section.claim(
        "16 clients have a tenth or less of the throughput of one",
        falls.iter().all(|&fall| fall >= 10.0),
        format!("one has {:.1}, {:.1} and {:.1} times as much", falls[0], falls[1], falls[2]),
    );
    let busiest = reports.iter().map(|report| report.servers[0].utilisation.mean);
    let busiest = busiest.fold(0.0, f64::max);
    section.claim(
        "the server has much to spare even at c = 16 (busy 20 % at most)",
        busiest <= 0.2,
        format!("{:.1} % at most", 100.0 * busiest),
    );
}

pub(super) struct ManySites;

const SITES: [&str; 4] = ["Ocha-U", "U-Tokyo", "NITech", "TITech"];

impl Part for ManySites {
    fn cases(&self, quick: bool) -> Vec<Case> {
        let mut cases = Vec::new();
        for order in ORDERS {
            for count in [1, 4] {
                for sites in [&SITES[..1], &SITES[..]] {
                    cases.push((at_sites(sites, count, order), options(40_000.0, quick)));
                }
            }
        }
        cases
    }

    fn judge(&self, reports: &[Report]) -> Section {
        let how = "Four sites with a path each. Of their paths the paper's text gives that of Ocha-U only, 0.17 MB/s, which \
                   all have here; what they share near the server is not in the model.";
        let mut section = Section::new("Figure 3: Linpack from four sites", how);
        line!(
            section.text,
            "| n | c at each site | Ocha-U alone, MB/s | four sites, MB/s | Ocha-U among four, Mflops | alone | server busy % |"
        );
        line!(section.text, "|---|---|---|---|---|---|---|");
        let (mut grows, mut loses, mut busiest) = (f64::INFINITY, 0.0f64, 0.0f64);
        for (index, pair) in reports.chunks(2).enumerate() {
            let (order, count) = (ORDERS[index / 2], [1, 4][index % 2]);
            let [alone, four] = [&pair[0], &pair[1]].map(|report| carried(report, order));
            let busy = pair[1].servers[0].utilisation.mean;
            line!(
                section.text,
                "| {order} | {count} | {alone:.3} | {four:.3} | {:.2} | {:.2} | {:.1} |",
                mflops(&pair[1]),
                mflops(&pair[0]),
                100.0 * busy
            );
            grows = grows.min(four / alone);
            loses = loses.max(1.0 - mflops(&pair[1]) / mflops(&pair[0]));
            busiest = busiest.max(busy);
        }
        section.claim(
            "the sum of the sites' throughput is far above that of one (by a factor of 2.5 at least)",
            grows >= 2.5,
            format!("{grows:.2} times at least"),
        );
        section.claim(
            "a site loses little to the others (in the paper 9 to 18 % at c = 1, 18 to 44 % at c = 4)",
            loses <= 0.44,
            format!("{:.1} % at most", 100.0 * loses),
        );
        let sums: Vec<f64> =
            reports.chunks(4).map(|row| carried(&row[3], 1000) / carried(&row[1], 1000)).collect();
        section.claim(
            "c = 1 and c = 4 at each site differ little in all the sites' sum (by 50 % at most): the path limits it",
            sums.iter().all(|sum| (0.9..1.5).contains(sum)),
            format!("c = 4 carries {:.2}, {:.2} and {:.2} times as much", sums[0], sums[1], sums[2]),
        );
        section.claim(
            "the server is not the limit with 16 clients (busy 34.2 % at most)",
            busiest <= 0.342,
            format!("{:.1} % at most", 100.0 * busiest),
        );
        section
    }
}
