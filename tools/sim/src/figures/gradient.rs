//! Figures 7.10 to 7.17: single jobs over time, at one load and while load rises.

use super::plot::{Folder, Frame, Kind, Series, chart};
use super::section::Section;
use super::{
    Extent, LONG_SERVICE, PEAK, Part, Plan, RunResult, SERVICE, case, gradient_of, mix, thinned,
};
use crate::SECOND;
use crate::engine::Sample;
use crate::error::SimError;
use crate::generate::{Poisson, STEPS, Sizes};
use crate::report::seconds;
use crate::stats::mean;
use crate::sweep::JobSource;

/// Figures 7.10 and 7.11.
pub(super) struct Behaviour;

impl Part for Behaviour {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let mix = mix(128, Sizes::Inverse, SERVICE, 1);
        let arrivals = extent.size().units;
        let units = arrivals / 10 * 12;
        let poisson = Poisson { mix, load: 0.99, arrivals, units: Some(units) };
        let mut case = case("dqt:ff-apa", mix, 0.99, JobSource::Poisson(poisson));
        case.options.sample_ns = Some((units / 1000).max(1) * SECOND);
        vec![Plan { case, points: true }]
    }

    fn draw(&self, folder: &Folder, _: Extent, kept: &[RunResult]) -> Result<Section, SimError> {
        let mut section = Section::new("Figures 7.10 and 7.11: single jobs at load 0.99");
        section.text("128 processors, FF-APA, sizes inversely proportional.");
        let run = &kept[0];
        over_time(folder, "figure-7-10", "RETR of every job at its end", run)?;
        let caption = "Figure 7.10: RETR of jobs over time, with the largest and the smallest TQLB";
        section.figure("figure-7-10", caption);
        histograms(folder, "figure-7-11", run)?;
        section.figure("figure-7-11", "Figure 7.11: how often which RETR, for each size");
        let near: Vec<f64> =
            run.points.iter().map(|&(at, retr, _)| retr - tqlb_at(run, at)).collect();
        let below = near.iter().filter(|&&above| above <= 1.0).count();
        let share = below as f64 / near.len().max(1) as f64;
        section.judge(
            "7.10: the largest TQLB is about the envelope of RETR",
            (!near.is_empty()).then_some(share > 0.95),
            format!(
                "{:.1} % of {} jobs have an RETR of at most the largest TQLB at their end + 1",
                100.0 * share,
                near.len()
            ),
        );
        Ok(section)
    }
}

/// The largest TQLB at about this time.
fn tqlb_at(run: &RunResult, at: f64) -> f64 {
    let next = run.samples.partition_point(|sample| seconds(sample.at) < at);
    let around = &run.samples[next.saturating_sub(1)..(next + 1).min(run.samples.len())];
    f64::from(around.iter().filter_map(|sample| sample.max_tqlb).max().unwrap_or(0))
}

/// RETR of jobs at their ends, and the TQLBs.
pub(super) fn over_time(
    folder: &Folder,
    stem: &str,
    title: &str,
    run: &RunResult,
) -> Result<(), SimError> {
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
    chart(folder, stem, &frame, &series)
}

fn histograms(folder: &Folder, stem: &str, run: &RunResult) -> Result<(), SimError> {
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
    chart(folder, stem, &frame, &series)
}

/// Figures 7.12 to 7.17.
pub(super) struct Gradients;

/// Figure, policy, and whether it is the large machine.
const RUNS: [(u32, &str, bool); 6] = [
    (12, "dqt:max", false),
    (13, "dqt:min", false),
    (14, "dqt:ff", false),
    (15, "dqt:ff", true),
    (16, "dqt:apa", false),
    (17, "dqt:ff-apa", false),
];

const HOW: &str = "Load rises in 20 steps to 1.33 of the machine until 10/11 of the time. Sizes inversely proportional, service uniform from 500 to 19,999. Drawn is seed 1; numbers are means over SEEDS seeds: max TQLB while load is at most 0.5, the greatest of all, and the mean difference of max and min TQLB while load is above 1. (The paper's \
captions and text disagree about which of 7.14 and 7.16 is APA; the captions count here.) Figure 7.15 has as \
many arrivals for each processor as the others. Its jobs are larger, so that load rises to LARGE: the paper \
does not say so, but the four steps that it shows need a load of about 2.";

/// The machine whose load rises to [`PEAK`].
pub(super) const PROCS: u32 = 128;

/// Processors and units of a run, and the load that it ends with.
fn machine(extent: Extent, large: bool) -> (u32, u64, f64) {
    let size = extent.size();
    if !large {
        return (PROCS, size.gradient, PEAK);
    }
    let (procs, units) = size.large;
    (procs, units, PEAK * mean_size(procs) / mean_size(PROCS))
}

/// Mean size of jobs on a machine where each power of two below its own size is half as likely as
/// the one before.
fn mean_size(procs: u32) -> f64 {
    let sizes = procs.ilog2();
    f64::from(sizes) / (2.0 - 2.0 / 2f64.powf(f64::from(sizes)))
}

/// Results of runs at low and high load.
#[derive(Clone, Copy)]
struct Levels {
    /// Mean over the time of loads up to a half of the largest TQLB.
    low: f64,
    /// The largest TQLB of the whole run.
    high: f64,
    /// Mean difference of largest and smallest TQLB while load is above 1.
    width: f64,
}

impl Levels {
    fn of(run: &RunResult, units: u64, peak: f64) -> Self {
        let arrivals = units as f64 * 10.0 / 11.0;
        let load = |sample: &&Sample| {
            let step = (seconds(sample.at) * f64::from(STEPS) / arrivals).floor() + 1.0;
            if step > f64::from(STEPS) { 0.0 } else { peak * step / f64::from(STEPS) }
        };
        let tqlb = |tqlb: Option<u32>| f64::from(tqlb.unwrap_or(0));
        let chosen = |from: f64, to: f64, of: &dyn Fn(&Sample) -> f64| {
            let within =
                run.samples.iter().filter(|sample| load(sample) > from && load(sample) <= to);
            mean(&within.map(of).collect::<Vec<f64>>())
        };
        Self {
            low: chosen(0.0, 0.5, &|sample| tqlb(sample.max_tqlb)),
            high: f64::from(run.report.max_tqlb.unwrap_or(0)),
            width: chosen(1.0, 9.0, &|sample| tqlb(sample.max_tqlb) - tqlb(sample.min_tqlb)),
        }
    }

    /// Means over several runs.
    fn mean(all: &[Self]) -> Self {
        let of = |f: fn(&Self) -> f64| mean(&all.iter().map(f).collect::<Vec<f64>>());
        Self { low: of(|l| l.low), high: of(|l| l.high), width: of(|l| l.width) }
    }
}

impl Part for Gradients {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let mut plans = Vec::new();
        for (_, policy, large) in RUNS {
            let (procs, units, peak) = machine(extent, large);
            for seed in 1..=extent.size().gradient_seeds {
                let mix = mix(procs, Sizes::Inverse, LONG_SERVICE, seed);
                plans.push(Plan { case: gradient_of(policy, mix, units, peak), points: seed == 1 });
            }
        }
        plans
    }

    fn draw(
        &self,
        folder: &Folder,
        extent: Extent,
        kept: &[RunResult],
    ) -> Result<Section, SimError> {
        let title = "Figures 7.12 to 7.17: task allocation policies while load rises";
        let mut section = Section::new(title);
        let seeds = extent.size().gradient_seeds;
        let large = format!("{:.2}", machine(extent, true).2);
        section.text(HOW.replace("SEEDS", &seeds.to_string()).replace("LARGE", &large));
        section.table(&["figure", "policy", "processors", "low", "greatest", "difference"]);
        let mut found = Vec::new();
        for ((figure, policy, large), runs) in RUNS.iter().zip(kept.chunks(seeds as usize)) {
            let (procs, units, peak) = machine(extent, *large);
            let stem = format!("figure-7-{figure}");
            let title = format!("{policy}, {procs} processors, rising load");
            over_time(folder, &stem, &title, &runs[0])?;
            section.figure(&stem, &format!("Figure 7.{figure}: {policy} on {procs} processors"));
            let all: Vec<Levels> = runs.iter().map(|run| Levels::of(run, units, peak)).collect();
            let row = Levels::mean(&all);
            section.row(vec![
                format!("7.{figure}"),
                (*policy).to_owned(),
                procs.to_string(),
                format!("{:.2}", row.low),
                format!("{:.1}", row.high),
                format!("{:.1}", row.width),
            ]);
            found.push(row);
        }
        if let [max, min, ff, large, apa, both] = found[..] {
            judge_max_and_min(&mut section, extent, [max, min]);
            judge_ff(&mut section, extent, [ff, large]);
            judge_apa(&mut section, [max, min, ff, apa, both]);
        }
        Ok(section)
    }
}

fn judge_max_and_min(section: &mut Section, extent: Extent, [max, min]: [Levels; 2]) {
    section.judge(
        "7.12: the largest TQLB under MAX is 19 (± 3)",
        extent.is_whole().then_some((max.high - 19.0).abs() <= 3.0),
        format!("{:.1}", max.high),
    );
    section.judge(
        "7.13: the largest TQLB under MIN is 6 (± 3)",
        extent.is_whole().then_some((min.high - 6.0).abs() <= 3.0),
        format!("{:.1}", min.high),
    );
    section.judge(
        "7.12, 7.13: at high load MIN keeps TQLBs below those of MAX",
        Some(min.high < max.high),
        format!("{:.1} against {:.1}", min.high, max.high),
    );
    section.judge(
        "7.12, 7.13: at low load MAX keeps TQLBs below those of MIN",
        Some(max.low < min.low),
        format!("{:.2} against {:.2}", max.low, min.low),
    );
}

fn judge_ff(section: &mut Section, extent: Extent, [ff, large]: [Levels; 2]) {
    let (procs, ..) = machine(extent, true);
    section.judge(
        "7.14: with FF largest and smallest TQLB differ by about the tree's height, 7 (± 2)",
        extent.is_whole().then_some((ff.width - 7.0).abs() <= 2.0),
        format!("{:.1}", ff.width),
    );
    let height = f64::from(procs.ilog2());
    section.judge(
        &format!("7.15: on {procs} processors by about {height} (± 3)"),
        extent.is_whole().then_some((large.width - height).abs() <= 3.0),
        format!("{:.1}", large.width),
    );
    section.judge(
        &format!(
            "7.15: the largest TQLB rises in steps of {height} to about {} (± {height})",
            4.0 * height
        ),
        extent.is_whole().then_some((large.high - 4.0 * height).abs() <= height),
        format!("{:.1}", large.high),
    );
}

fn judge_apa(section: &mut Section, [max, min, ff, apa, both]: [Levels; 5]) {
    section.judge(
        "7.16: APA keeps TQLBs low at low load (below MIN and FF)",
        Some(apa.low < min.low.min(ff.low)),
        format!("APA {:.2}, MIN {:.2}, FF {:.2}", apa.low, min.low, ff.low),
    );
    section.judge(
        "7.16: and at high load (below MAX and FF)",
        Some(apa.high < max.high.min(ff.high)),
        format!("APA {:.1}, MAX {:.1}, FF {:.1}", apa.high, max.high, ff.high),
    );
    section.judge(
        "7.17: FF-APA is as APA at low load (to 0.5)",
        Some((both.low - apa.low).abs() < 0.5),
        format!("{:.2} and {:.2}", both.low, apa.low),
    );
    section.judge(
        "7.17: at high load it is better than either of APA and FF",
        Some(both.high < apa.high.min(ff.high)),
        format!("FF-APA {:.1}, APA {:.1}, FF {:.1}", both.high, apa.high, ff.high),
    );
}
