//! Figures 7.10 to 7.17: single jobs over time, at one load and while load rises.

use std::fmt::Write as _;
use std::path::Path;

use super::plot::{Frame, Kind, Series, chart};
use super::{
    Extent, Kept, LONG_SERVICE, PEAK, Part, Plan, SERVICE, Section, case, gradient_of, line, mix,
    thinned,
};
use crate::SECOND;
use crate::engine::Sample;
use crate::error::SimError;
use crate::generate::{Poisson, STEPS, Sizes};
use crate::report::seconds;
use crate::stats::mean;
use crate::sweep::Jobs;

/// Figures 7.10 and 7.11.
pub(super) struct Behaviour;

impl Part for Behaviour {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let mix = mix(128, Sizes::Inverse, SERVICE, 1);
        let arrivals = extent.units();
        let units = arrivals / 10 * 12;
        let poisson = Poisson { mix, load: 0.99, arrivals, units: Some(units) };
        let mut case = case("dqt:ff-apa", mix, 0.99, Jobs::Poisson(poisson));
        case.options.sample_ns = Some((units / 1000) * SECOND);
        vec![Plan { case, points: true }]
    }

    fn draw(&self, folder: &Path, _: Extent, kept: &[Kept]) -> Result<Section, SimError> {
        let title = "Figures 7.10 and 7.11: single jobs at load 0.99".to_owned();
        let mut section = Section { title, ..Section::default() };
        line!(section.text, "128 processors, FF-APA, sizes inversely proportional.");
        let run = &kept[0];
        let file = "figure-7-10.svg";
        over_time(&folder.join(file), "RETR of every job at its end", run)?;
        section.figure(
            file,
            "Figure 7.10: RETR of jobs over time, with the largest and the smallest TQLB",
        );
        let file = "figure-7-11.svg";
        histograms(&folder.join(file), run)?;
        section.figure(file, "Figure 7.11: how often which RETR, for each size");
        let near: Vec<f64> =
            run.points.iter().map(|&(at, retr, _)| retr - tqlb_at(run, at)).collect();
        let below = near.iter().filter(|&&above| above <= 1.0).count() as f64 / near.len() as f64;
        section.claim(
            "the largest TQLB is about the envelope of RETR",
            below > 0.95,
            format!(
                "{:.1} % of jobs have an RETR of at most the largest TQLB at their end + 1",
                100.0 * below
            ),
        );
        Ok(section)
    }
}

/// The largest TQLB at about this time.
fn tqlb_at(run: &Kept, at: f64) -> f64 {
    let next = run.samples.partition_point(|sample| seconds(sample.at) < at);
    let around = &run.samples[next.saturating_sub(1)..(next + 1).min(run.samples.len())];
    f64::from(around.iter().filter_map(|sample| sample.max_tqlb).max().unwrap_or(0))
}

/// RETR of jobs at their ends, and the TQLBs.
pub(super) fn over_time(path: &Path, title: &str, run: &Kept) -> Result<(), SimError> {
    let line = |name, of: fn(&Sample) -> Option<u32>| {
        let point = |sample: &Sample| Some((seconds(sample.at), f64::from(of(sample)?)));
        Series::new(name, Kind::Line, run.samples.iter().filter_map(point).collect())
    };
    let series = [
        Series::new("RETR", Kind::Dots, thinned(&run.points)),
        line("max TQLB", |sample| sample.max_tqlb),
        line("min TQLB", |sample| sample.min_tqlb),
    ];
    let frame = Frame { title, x: "time, units", y: "RETR, jobs on a processor", top: None };
    chart(path, &frame, &series)
}

fn histograms(path: &Path, run: &Kept) -> Result<(), SimError> {
    let mut series = Vec::new();
    let most = run.points.iter().map(|point| point.1).fold(1.0, f64::max);
    for row in &run.report.sizes {
        let mut counts = vec![0u32; most as usize + 2];
        let jobs = run.points.iter().filter(|point| point.2 == row.size);
        jobs.for_each(|&(_, retr, _)| counts[retr as usize] += 1);
        let points = counts.iter().enumerate().map(|(at, &n)| (at as f64 + 0.5, f64::from(n)));
        series.push(Series::new(&format!("size {}", row.size), Kind::Line, points.collect()));
    }
    let frame = Frame { title: "Frequency of RETR by size", x: "RETR", y: "jobs", top: None };
    chart(path, &frame, &series)
}

/// Figures 7.12 to 7.17.
pub(super) struct Gradients;

/// Figure, policy, processors.
const RUNS: [(u32, &str, u32); 6] = [
    (12, "dqt:max", 128),
    (13, "dqt:min", 128),
    (14, "dqt:ff", 128),
    (15, "dqt:ff", 2048),
    (16, "dqt:apa", 128),
    (17, "dqt:ff-apa", 128),
];

const UNITS: u64 = 2_200_000;

impl Gradients {
    /// More than one seed, to judge; the first is drawn.
    fn seeds(extent: Extent) -> u64 {
        if extent.quick { 1 } else { 10 }
    }
}

/// What a run says about low and high load.
struct Levels {
    /// Mean over the time of loads up to a half of the largest TQLB.
    low: f64,
    /// The largest TQLB of the whole run.
    high: f64,
    /// Mean difference of largest and smallest TQLB while load is above 1.
    width: f64,
}

fn levels(run: &Kept, units: u64) -> Levels {
    let arrivals = units as f64 * 10.0 / 11.0;
    let load = |sample: &&Sample| {
        let step = (seconds(sample.at) * f64::from(STEPS) / arrivals).floor() + 1.0;
        if step > f64::from(STEPS) { 0.0 } else { PEAK * step / f64::from(STEPS) }
    };
    let tqlb = |tqlb: Option<u32>| f64::from(tqlb.unwrap_or(0));
    let chosen = |from: f64, to: f64, of: &dyn Fn(&Sample) -> f64| {
        let within = run.samples.iter().filter(|sample| load(sample) > from && load(sample) <= to);
        mean(&within.map(of).collect::<Vec<f64>>())
    };
    Levels {
        low: chosen(0.0, 0.5, &|sample| tqlb(sample.max_tqlb)),
        high: f64::from(run.report.max_tqlb.unwrap_or(0)),
        width: chosen(1.0, 9.0, &|sample| tqlb(sample.max_tqlb) - tqlb(sample.min_tqlb)),
    }
}

fn units_of(procs: u32) -> u64 {
    if procs == 2048 { 1_000_000 } else { UNITS }
}

impl Part for Gradients {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let mut plans = Vec::new();
        for (_, policy, procs) in RUNS {
            for seed in 1..=Self::seeds(extent) {
                let mix = mix(procs, Sizes::Inverse, LONG_SERVICE, seed);
                let case = gradient_of(policy, mix, units_of(procs));
                plans.push(Plan { case, points: seed == 1 });
            }
        }
        plans
    }

    fn draw(&self, folder: &Path, extent: Extent, kept: &[Kept]) -> Result<Section, SimError> {
        let title = "Figures 7.12 to 7.17: task allocation policies while load rises".to_owned();
        let mut section = Section { title, ..Section::default() };
        let seeds = Self::seeds(extent);
        line!(
            section.text,
            "Load rises in 20 steps to 1.33 of the machine until 10/11 of the time. Sizes inversely"
        );
        line!(
            section.text,
            "proportional, service uniform from 500 to 19,999. Drawn is seed 1; numbers are means over {seeds} seeds:"
        );
        line!(
            section.text,
            "max TQLB while load is at most 0.5, the greatest of all, and the mean difference of max and min"
        );
        line!(
            section.text,
            "TQLB while load is above 1. (The paper's captions and text disagree about which of 7.14 and 7.16"
        );
        line!(
            section.text,
            "is APA; the captions count here.)\n\n| figure | policy | processors | low | greatest | difference |\n|---|---|---|---|---|---|"
        );
        let mut found = Vec::new();
        for ((figure, policy, procs), runs) in RUNS.iter().zip(kept.chunks(seeds as usize)) {
            let file = format!("figure-7-{figure}.svg");
            let title = format!("{policy}, {procs} processors, rising load");
            over_time(&folder.join(&file), &title, &runs[0])?;
            section.figure(&file, &format!("Figure 7.{figure}: {policy} on {procs} processors"));
            let all: Vec<Levels> = runs.iter().map(|run| levels(run, units_of(*procs))).collect();
            let of = |f: fn(&Levels) -> f64| mean(&all.iter().map(f).collect::<Vec<f64>>());
            let row = Levels { low: of(|l| l.low), high: of(|l| l.high), width: of(|l| l.width) };
            line!(
                section.text,
                "| 7.{figure} | {policy} | {procs} | {:.2} | {:.1} | {:.1} |",
                row.low,
                row.high,
                row.width
            );
            found.push(row);
        }
        if let [max, min, ff, large, apa, both] = &found[..] {
            judge(&mut section, [max, min, ff, large, apa, both]);
        }
        Ok(section)
    }
}

fn judge(section: &mut Section, [max, min, ff, large, apa, both]: [&Levels; 6]) {
    section.claim(
        "7.12, 7.13: at high load MIN keeps the largest TQLB far below that of MAX (6 against 19)",
        min.high < 0.8 * max.high,
        format!("{:.1} against {:.1}", min.high, max.high),
    );
    section.claim(
        "7.12, 7.13: at low load MAX keeps TQLBs below those of MIN",
        max.low < min.low,
        format!("{:.2} against {:.2}", max.low, min.low),
    );
    section.claim(
        "7.14: with FF largest and smallest TQLB differ by about the tree's height, 7",
        (ff.width - 7.0).abs() <= 2.0,
        format!("{:.1}", ff.width),
    );
    section.claim(
        "7.15: on 2,048 processors by about 11, and the largest TQLB rises in such steps to about 44",
        (large.width - 11.0).abs() <= 3.0 && (large.high - 44.0).abs() <= 11.0,
        format!("{:.1}, up to {:.1}", large.width, large.high),
    );
    section.claim(
        "7.16: APA keeps TQLBs low at low load (below MIN and FF) and at high load (below MAX and FF)",
        apa.low < min.low.min(ff.low) && apa.high < max.high.min(ff.high),
        format!(
            "low: APA {:.2}, MIN {:.2}, FF {:.2}; high: APA {:.1}, MAX {:.1}, FF {:.1}",
            apa.low, min.low, ff.low, apa.high, max.high, ff.high
        ),
    );
    section.claim(
        "7.17: FF-APA is as APA at low load, and at high load better than either of APA and FF",
        (both.low - apa.low).abs() < 0.5 && both.high < apa.high.min(ff.high),
        format!(
            "low: {:.2} and {:.2}; high: {:.1}, APA {:.1}, FF {:.1}",
            both.low, apa.low, both.high, apa.high, ff.high
        ),
    );
}
