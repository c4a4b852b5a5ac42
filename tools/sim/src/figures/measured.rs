//! Figure 7.23 and tables 7.2 to 7.4: comparison with measurements of SCore-D.

use super::gradient::over_time;
use super::plot::Folder;
use super::section::Section;
use super::{Extent, PEAK, Part, Plan, RunResult, case};
use crate::SECOND;
use crate::error::SimError;
use crate::generate::{Gradient, Service, Sizes, WorkloadMix};
use crate::report::SizeClass;
use crate::stats::Estimate;
use crate::sweep::{Case, JobSource};

pub(super) struct Measured;

/// Number of jobs, and their mean RETR: simulated by the paper, and measured with SCore-D.
pub type Cell = (u32, f64, f64);

/// Tables 7.2 to 7.4. Size; then numbers for all jobs, for jobs that ended in the first half, and for the
/// others.
pub const PAPER: [(u32, [Cell; 3]); 7] = [
    (1, [(221, 1.88, 2.18), (60, 1.23, 1.31), (161, 2.12, 2.49)]),
    (2, [(223, 1.88, 2.03), (60, 1.25, 1.29), (163, 2.11, 2.29)]),
    (4, [(229, 1.89, 2.08), (63, 1.19, 1.23), (166, 2.15, 2.41)]),
    (8, [(199, 1.86, 1.95), (52, 1.16, 1.18), (147, 2.10, 2.22)]),
    (16, [(218, 2.06, 2.40), (42, 1.08, 1.18), (176, 2.30, 2.69)]),
    (32, [(204, 2.27, 2.58), (61, 1.21, 1.19), (143, 2.72, 3.16)]),
    (64, [(230, 2.57, 3.17), (65, 1.47, 1.60), (165, 3.00, 3.77)]),
];

const TABLES: [&str; 3] =
    ["Table 7.2: all jobs.", "Table 7.3: over in the first half.", "Table 7.4: over after it."];

/// The tables' columns.
pub(super) const HEAD: [&str; 6] =
    ["size", "jobs: paper", "ours", "RETR: paper simulated", "SCore-D", "ours"];

const HOW: &str = "\
64 processors, FF-APA, sizes uniform from 1 to 64, load rising in 20 equal steps while jobs arrive for 10,000 \
units, then until the last job is over. The paper says neither how long its jobs ran nor, with certainty, how \
high load rose: at the 133 % that it names for the figures before, its jobs would have had a mean RETR of 14 \
and more. With half of that, 66.5 %, and service uniform from 1 to 15 units the number of jobs, its division \
between the halves and RETR agree, so this is what is simulated. Ours are means over SEEDS seeds with 95 % \
intervals; SCore-D was measured on real machines and is not judged. The last rows are the paper's rows added \
up: table 7.4 prints a mean of 2.54 for its simulation, which its own rows do not give (they give 2.355, and \
only that agrees with the 2.06 of table 7.2); 2.355 is what is compared.";

/// Load of the last step.
pub(super) const HALF_PEAK: f64 = PEAK / 2.0;

/// All sizes of one of the paper's tables: jobs, and RETR simulated and measured.
pub fn paper_total(which: usize) -> Cell {
    let cells = || PAPER.iter().map(|(_, cells)| cells[which]);
    let jobs: u32 = cells().map(|cell| cell.0).sum();
    let mean = |of: fn(&Cell) -> f64| {
        cells().map(|cell| f64::from(cell.0) * of(&cell)).sum::<f64>() / f64::from(jobs)
    };
    (jobs, mean(|cell| cell.1), mean(|cell| cell.2))
}

/// A list as SCore-D ran it, with a load that ends at `peak`.
pub(super) fn list(seed: u64, peak: f64) -> Case {
    let service = Service::Uniform { low: 1, high: 15 };
    let mix = WorkloadMix { procs: 64, sizes: Sizes::Uniform, largest: Some(64), service, seed };
    let gradient = Gradient { mix, load: peak, arrivals: 10_000, units: None };
    case("dqt:ff-apa", mix, peak, JobSource::Gradient(gradient))
}

/// One line of a table as simulated here.
pub(super) struct Line {
    jobs: Estimate,
    pub(super) retr: Estimate,
}

impl Line {
    /// Numbers of one of the three tables for a size; 0: for all sizes.
    pub(super) fn of(kept: &[RunResult], which: usize, size: u32) -> Self {
        let rows: Vec<(f64, f64)> = kept.iter().map(|run| row(run, which, size)).collect();
        let column =
            |of: fn(&(f64, f64)) -> f64| Estimate::of(&rows.iter().map(of).collect::<Vec<f64>>());
        Self { jobs: column(|row| row.0), retr: column(|row| row.1) }
    }

    pub(super) fn cells(&self, name: &str, (jobs, simulated, measured): Cell) -> Vec<String> {
        vec![
            name.to_owned(),
            jobs.to_string(),
            format!("{:.0} ± {:.0}", self.jobs.mean, self.jobs.half_width),
            format!("{simulated:.2}"),
            format!("{measured:.2}"),
            format!("{:.2} ± {:.2}", self.retr.mean, self.retr.half_width),
        ]
    }
}

impl Part for Measured {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let plan = |seed| {
            let mut case = list(seed, HALF_PEAK);
            case.options.sample_ns = Some(10 * SECOND);
            Plan { case, points: seed == 1 }
        };
        (1..=extent.size().list_seeds).map(plan).collect()
    }

    fn draw(
        &self,
        folder: &Folder,
        extent: Extent,
        kept: &[RunResult],
    ) -> Result<Section, SimError> {
        let title = "Figure 7.23 and tables 7.2 to 7.4: the list that SCore-D ran";
        let mut section = Section::new(title);
        section.text(HOW.replace("SEEDS", &extent.size().list_seeds.to_string()));
        over_time(folder, "figure-7-23", "DQT on 64 processors, rising load", &kept[0])?;
        section.figure("figure-7-23", "Figure 7.23: RETR of jobs at their ends, 64 processors");
        let mut totals = Vec::new();
        let mut by_size = Vec::new();
        for (which, title) in TABLES.into_iter().enumerate() {
            section.text(title);
            section.table(&HEAD);
            let mut means = Vec::new();
            for (size, paper) in PAPER {
                let line = Line::of(kept, which, size);
                section.row(line.cells(&size.to_string(), paper[which]));
                means.push(line.retr.mean);
            }
            let line = Line::of(kept, which, 0);
            section.row(line.cells("all", paper_total(which)));
            totals.push(line);
            by_size.push(means);
        }
        judge(&mut section, &totals, &by_size);
        Ok(section)
    }
}

fn judge(section: &mut Section, totals: &[Line], by_size: &[Vec<f64>]) {
    for (which, (line, table)) in totals.iter().zip(["7.2", "7.3", "7.4"]).enumerate() {
        let (jobs, retr, _) = paper_total(which);
        section.judge(
            &format!("{table}: {jobs} jobs (± 5 %)"),
            Some((line.jobs.mean / f64::from(jobs) - 1.0).abs() <= 0.05),
            format!("{:.0} ± {:.0}", line.jobs.mean, line.jobs.half_width),
        );
        section.judge(
            &format!("{table}: mean RETR {retr:.3} (± 10 %)"),
            Some((line.retr.mean / retr - 1.0).abs() <= 0.1),
            format!("{:.3} ± {:.3}", line.retr.mean, line.retr.half_width),
        );
    }
    let share = totals[1].jobs.mean / totals[0].jobs.mean.max(1.0);
    section.judge(
        "7.3: 403 of 1,524 jobs, 26.4 %, are over in the first half (± 2 points)",
        Some((share - 403.0 / 1524.0).abs() <= 0.02),
        format!("{:.1} %", 100.0 * share),
    );
    let row = |means: &Vec<f64>| {
        means.iter().map(|mean| format!("{mean:.2}")).collect::<Vec<_>>().join(" ")
    };
    for (means, table) in by_size.iter().zip(["7.2", "7.3", "7.4"]) {
        section.judge(
            &format!("{table}: the largest jobs fare worst"),
            Some(means.iter().all(|mean| mean <= &means[means.len() - 1])),
            format!("RETR by size: {}", row(means)),
        );
    }
    let off = |which: usize| {
        let pairs = PAPER.iter().zip(&by_size[which]);
        pairs.map(|((_, cells), ours)| (ours / cells[which].1 - 1.0).abs()).fold(0.0, f64::max)
    };
    let worst = [0, 1, 2].map(off);
    section.judge(
        "7.2 to 7.4: RETR of every size (± 20 %)",
        Some(worst.iter().all(|&off| off <= 0.2)),
        format!("farthest off: {}", worst.map(|off| format!("{:.0} %", 100.0 * off)).join(", ")),
    );
}

/// Jobs of a size (0: of all) and their mean RETR in one of the three tables.
fn row(run: &RunResult, which: usize, size: u32) -> (f64, f64) {
    let rows: &[SizeClass] = match which {
        0 => &run.report.sizes,
        half => &run.halves[half - 1],
    };
    let chosen = || rows.iter().filter(|row| size == 0 || row.size == size);
    let jobs: f64 = chosen().map(|row| row.ended as f64).sum();
    let sum: f64 = chosen().map(|row| row.mean_retr * row.ended as f64).sum();
    (jobs, if jobs > 0.0 { sum / jobs } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_rows_give_its_means_but_for_one() {
        let printed = [(1524, 2.06, 2.35), (403, 1.23, 1.30), (1121, 2.54, 2.72)];
        for (which, (jobs, simulated, measured)) in printed.into_iter().enumerate() {
            let found = paper_total(which);
            assert_eq!(found.0, jobs);
            assert!((found.2 - measured).abs() < 0.01, "{found:?}");
            // The misprint in table 7.4.
            assert_eq!((found.1 - simulated).abs() < 0.01, which != 2, "{found:?}");
        }
        assert!((paper_total(2).1 - 2.355).abs() < 0.001);
    }
}
