//! Table 7.1: the task allocation policies at two constant loads.

use super::plot::Folder;
use super::section::Section;
use super::{Extent, Kept, LONG_SERVICE, Part, Plan, mix, poisson};
use crate::error::SimError;
use crate::generate::Sizes;
use crate::stats::Estimate;

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
below its load. Means over SEEDS seeds with their 95 % intervals. Realised loads scatter around the one aimed \
at, in one run by about 2 %; utilisation is set to the paper's load by adding the difference of loads to each \
run's utilisation. The paper's are numbers of one run.";

/// What came of one policy at one load.
#[derive(Clone, Copy)]
struct Cell {
    used: Estimate,
    tqlb: Estimate,
}

impl Part for Table1 {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let size = extent.size();
        let mut plans = Vec::new();
        for (policy, _) in PAPER {
            for load in LOADS {
                for seed in 1..=size.seeds {
                    let mix = mix(128, Sizes::Inverse, LONG_SERVICE, seed);
                    let case = poisson(policy, mix, load, size.long);
                    plans.push(Plan { case, points: false });
                }
            }
        }
        plans
    }

    fn draw(&self, _: &Folder, extent: Extent, kept: &[Kept]) -> Result<Section, SimError> {
        let mut section = Section::new("Table 7.1");
        let (seeds, units) = (extent.size().seeds, extent.size().long);
        let how = HOW.replace("SEEDS", &seeds.to_string()).replace("UNITS", &units.to_string());
        section.text(how);
        section.table(&["policy", "load", "utilisation: paper", "ours", "max TQLB: paper", "ours"]);
        let cells: Vec<Cell> =
            kept.chunks(seeds as usize).zip(LOADS.into_iter().cycle()).map(cell).collect();
        for ((policy, paper), ours) in PAPER.iter().zip(cells.chunks(LOADS.len())) {
            for ((load, (paper_used, paper_tqlb)), Cell { used, tqlb }) in
                LOADS.iter().zip(paper).zip(ours)
            {
                section.row(vec![
                    (*policy).to_owned(),
                    load.to_string(),
                    format!("{paper_used:.3}"),
                    format!("{:.4} ± {:.4}", used.mean, used.half_width),
                    format!("{paper_tqlb:.0}"),
                    format!("{:.2} ± {:.2}", tqlb.mean, tqlb.half_width),
                ]);
            }
        }
        for ((policy, paper), ours) in PAPER.iter().zip(cells.chunks(LOADS.len())) {
            for ((load, paper), cell) in LOADS.iter().zip(paper).zip(ours) {
                judge_cell(&mut section, extent, (policy, *load), *paper, cell);
            }
        }
        let high: Vec<(&str, Cell)> =
            PAPER.iter().zip(cells.chunks(2)).map(|((name, _), cells)| (*name, cells[1])).collect();
        judge_best(&mut section, &high);
        Ok(section)
    }
}

fn cell((runs, load): (&[Kept], f64)) -> Cell {
    let of =
        |value: &dyn Fn(&Kept) -> f64| Estimate::of(&runs.iter().map(value).collect::<Vec<f64>>());
    Cell {
        used: of(&|kept| kept.report.utilisation - kept.report.actual_load + load),
        tqlb: of(&|kept| f64::from(kept.report.max_tqlb.unwrap_or(0))),
    }
}

fn judge_cell(
    section: &mut Section,
    extent: Extent,
    (policy, load): (&str, f64),
    (paper_used, paper_tqlb): (f64, f64),
    Cell { used, tqlb }: &Cell,
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

fn judge_best(section: &mut Section, high: &[(&str, Cell)]) {
    let best = high.iter().map(|(_, cell)| cell.used.mean).fold(0.0, f64::max);
    let fewest = high.iter().map(|(_, cell)| cell.tqlb.mean).fold(f64::INFINITY, f64::min);
    let both = high.iter().find(|(name, _)| *name == "dqt:ff-apa");
    let rows = high
        .iter()
        .map(|(name, cell)| format!("{name} {:.4} / {:.2}", cell.used.mean, cell.tqlb.mean));
    section.judge(
        "FF-APA is best at the high load (utilisation to 0.001 and TQLB to 0.1 of the best)",
        both.map(|(_, cell)| cell.used.mean >= best - 0.001 && cell.tqlb.mean <= fewest + 0.1),
        rows.collect::<Vec<_>>().join(", "),
    );
}
