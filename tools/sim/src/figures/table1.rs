//! Table 7.1: the task allocation policies at two constant loads.

use super::plot::Folder;
use super::section::Section;
use super::{Extent, LONG_SERVICE, Part, Plan, RunResult, mix, poisson};
use crate::error::SimError;
use crate::generate::{Sizes, WorkloadMix};
use crate::stats::Estimate;
use crate::{Job, SECOND};

pub(super) struct Table1;

/// Policy; the paper's utilisation and largest TQLB at 0.368, then at 0.793.
const PAPER: [(&str, [(f64, f64); 2]); 5] = [
    ("dqt:max", [(0.366, 4.0), (0.768, 10.0)]),
    ("dqt:min", [(0.366, 5.0), (0.775, 8.0)]),
    ("dqt:apa", [(0.366, 3.0), (0.777, 8.0)]),
    ("dqt:ff", [(0.363, 7.0), (0.768, 8.0)]),
    ("dqt:ff-apa", [(0.366, 3.0), (0.776, 7.0)]),
];

const LOADS: [f64; 2] = [0.368, 0.793];

const HOW: &str = "\
128 processors, sizes inversely proportional, UNITS units. Service is uniform from 500 to 19,999 as in the \
rest of §7.2.2: only then does what is still running at the end explain how far the paper's utilisation is \
below its load. Means over SEEDS seeds with their 95 % intervals. The jobs of a seed amount to the paper's load \
exactly, but for one job or two: without that the loads of 3,000 such jobs would scatter by 5 %, and a largest \
TQLB grows faster than its load. What is left over is added to the utilisation. The paper's are numbers \
of one run; the last column has how many of ours have a largest TQLB no higher.";

/// The table's columns.
pub(super) const HEAD: [&str; 7] = [
    "policy",
    "load",
    "utilisation: paper",
    "ours",
    "max TQLB: paper",
    "ours",
    "runs at or below the paper's",
];

/// Result of one policy at one load.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    used: Estimate,
    tqlb: Estimate,
    /// Runs whose largest TQLB does not exceed the paper's.
    below: usize,
}

impl Part for Table1 {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let size = extent.size();
        let mut plans = Vec::new();
        for (policy, _) in PAPER {
            for load in LOADS {
                for seed in 1..=size.seeds {
                    let mix = mix(128, Sizes::Inverse, LONG_SERVICE, seed);
                    let aim = aimed(mix, load, size.long);
                    let mut case = poisson(policy, mix, aim, size.long);
                    case.load = Some(load);
                    plans.push(Plan { case, points: false });
                }
            }
        }
        plans
    }

    fn draw(&self, _: &Folder, extent: Extent, kept: &[RunResult]) -> Result<Section, SimError> {
        let mut section = Section::new("Table 7.1");
        let (seeds, units) = (extent.size().seeds, extent.size().long);
        let how = HOW.replace("SEEDS", &seeds.to_string()).replace("UNITS", &units.to_string());
        section.text(how);
        let cells = cells(kept, seeds);
        section.table(&HEAD);
        rows(&cells, seeds).into_iter().for_each(|row| section.row(row));
        for ((policy, paper), ours) in PAPER.iter().zip(cells.chunks(LOADS.len())) {
            for ((load, paper), cell) in LOADS.iter().zip(paper).zip(ours) {
                judge_cell(&mut section, extent, (policy, *load), *paper, cell);
            }
        }
        let high: Vec<(&str, Cell)> =
            PAPER.iter().zip(cells.chunks(2)).map(|((name, _), cells)| (*name, cells[1])).collect();
        judge_best(&mut section, extent, &high);
        Ok(section)
    }
}

/// One for each policy and load, in their order.
pub(super) fn cells(kept: &[RunResult], seeds: u64) -> Vec<Cell> {
    let paper = PAPER.iter().flat_map(|(_, cells)| LOADS.into_iter().zip(cells));
    kept.chunks(seeds as usize)
        .zip(paper)
        .map(|(runs, (load, (_, tqlb)))| cell(runs, load, *tqlb))
        .collect()
}

/// The table's rows, below [`HEAD`].
pub(super) fn rows(cells: &[Cell], seeds: u64) -> Vec<Vec<String>> {
    let paper = PAPER.iter().flat_map(|(policy, cells)| {
        LOADS.into_iter().zip(cells).map(move |(load, cell)| (policy, load, cell))
    });
    let row =
        |((policy, load, (paper_used, paper_tqlb)), ours): ((&&str, f64, &(f64, f64)), &Cell)| {
            let Cell { used, tqlb, below } = ours;
            vec![
                (*policy).to_owned(),
                load.to_string(),
                format!("{paper_used:.3}"),
                format!("{:.4} ± {:.4}", used.mean, used.half_width),
                format!("{paper_tqlb:.0}"),
                format!("{:.2} ± {:.2}", tqlb.mean, tqlb.half_width),
                format!("{below} of {seeds}"),
            ]
        };
    paper.zip(cells).map(row).collect()
}

/// The target load at which this seed's jobs amount to `load`. Sizes and services are the same at every load;
/// only the gaps between arrivals change. An error of the list appears when it runs.
fn aimed(mix: WorkloadMix, load: f64, units: u64) -> f64 {
    let offered = |aim| {
        let jobs = poisson("dqt", mix, aim, units)
            .jobs
            .workload()
            .map_or_else(|_| Vec::new(), |all| all.jobs.clone());
        let asked = |job: &Job| u128::from(job.service) * u128::from(job.size);
        jobs.iter().map(asked).sum::<u128>() as f64
            / (f64::from(mix.procs) * (units * SECOND) as f64)
    };
    (0..6).fold(load, |aim, _| match offered(aim) {
        offered if offered > 0.0 => aim * load / offered,
        _ => aim,
    })
}

fn cell(runs: &[RunResult], load: f64, paper: f64) -> Cell {
    let tqlb = |kept: &RunResult| f64::from(kept.report.max_tqlb.unwrap_or(0));
    let of = |value: &dyn Fn(&RunResult) -> f64| {
        Estimate::of(&runs.iter().map(value).collect::<Vec<f64>>())
    };
    Cell {
        used: of(&|kept| kept.report.utilisation - kept.report.actual_load + load),
        tqlb: of(&tqlb),
        below: runs.iter().filter(|kept| tqlb(kept) <= paper).count(),
    }
}

fn judge_cell(
    section: &mut Section,
    extent: Extent,
    (policy, load): (&str, f64),
    (paper_used, paper_tqlb): (f64, f64),
    Cell { used, tqlb, .. }: &Cell,
) {
    section.judge(
        &format!("{policy} at {load}: utilisation {paper_used} (± 0.01)"),
        extent.is_whole().then_some((used.mean - paper_used).abs() <= 0.01),
        format!("{:.4} ± {:.4}", used.mean, used.half_width),
    );
    section.judge(
        &format!("{policy} at {load}: max TQLB {paper_tqlb:.0} (± 1)"),
        extent.is_whole().then_some((tqlb.mean - paper_tqlb).abs() <= 1.0),
        format!("{:.2} ± {:.2}", tqlb.mean, tqlb.half_width),
    );
}

fn judge_best(section: &mut Section, extent: Extent, high: &[(&str, Cell)]) {
    let best = high.iter().map(|(_, cell)| cell.used.mean).fold(0.0, f64::max);
    let fewest = high.iter().map(|(_, cell)| cell.tqlb.mean).fold(f64::INFINITY, f64::min);
    let both = high.iter().find(|(name, _)| *name == "dqt:ff-apa");
    let rows = high
        .iter()
        .map(|(name, cell)| format!("{name} {:.4} / {:.2}", cell.used.mean, cell.tqlb.mean));
    section.judge(
        "FF-APA is best at the high load (utilisation to 0.001 and TQLB to 0.1 of the best)",
        both.filter(|_| extent.is_whole())
            .map(|(_, cell)| cell.used.mean >= best - 0.001 && cell.tqlb.mean <= fewest + 0.1),
        rows.collect::<Vec<_>>().join(", "),
    );
}
