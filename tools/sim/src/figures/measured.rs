//! Figure 7.23 and tables 7.2 to 7.4: what SCore-D was compared with.

use std::fmt::Write as _;
use std::path::Path;

use super::gradient::over_time;
use super::{Extent, Kept, PEAK, Part, Plan, Section, case, line};
use crate::SECOND;
use crate::error::SimError;
use crate::generate::{Gradient, Mix, Service, Sizes};
use crate::report::BySize;
use crate::stats::Estimate;
use crate::sweep::Jobs;

pub(super) struct Measured;

/// How many jobs, and their mean RETR as the paper simulated and as SCore-D measured it.
pub type Cell = (u32, f64, f64);

/// Tables 7.2 to 7.4. Size; then for all jobs, those over in the first half and those over in the second. Size 0
/// is all of them.
pub const PAPER: [(u32, [Cell; 3]); 8] = [
    (1, [(221, 1.88, 2.18), (60, 1.23, 1.31), (161, 2.12, 2.49)]),
    (2, [(223, 1.88, 2.03), (60, 1.25, 1.29), (163, 2.11, 2.29)]),
    (4, [(229, 1.89, 2.08), (63, 1.19, 1.23), (166, 2.15, 2.41)]),
    (8, [(199, 1.86, 1.95), (52, 1.16, 1.18), (147, 2.10, 2.22)]),
    (16, [(218, 2.06, 2.40), (42, 1.08, 1.18), (176, 2.30, 2.69)]),
    (32, [(204, 2.27, 2.58), (61, 1.21, 1.19), (143, 2.72, 3.16)]),
    (64, [(230, 2.57, 3.17), (65, 1.47, 1.60), (165, 3.00, 3.77)]),
    (0, [(1524, 2.06, 2.35), (403, 1.23, 1.30), (1121, 2.54, 2.72)]),
];

const HOW: &str = "\
64 processors, FF-APA, sizes uniform from 1 to 64, load rising in 20 equal steps while jobs arrive for
10,000 units, then until the last job is over. The paper says neither how long its jobs ran nor, with
certainty, how high load rose: at the 133 % that it names, jobs of the second half could not have had
a mean RETR of 2.5, since time-sharing at load x makes RETR about 1/(1 - x). Half of that, 66.5 %,
with service uniform from 1 to 15 units gives its number of jobs, its division between the halves and
its RETR, so this is what is simulated here. Ours: means over SEEDS seeds with 95 % intervals.
SCore-D measured on real machines.";

/// Load of the last step.
const HALF_PEAK: f64 = PEAK / 2.0;

fn seeds(extent: Extent) -> u64 {
    if extent.quick { 5 } else { 40 }
}

impl Part for Measured {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let service = Service::Uniform { low: 1, high: 15 };
        let plan = |seed| {
            let mix = Mix { procs: 64, sizes: Sizes::Uniform, largest: Some(64), service, seed };
            let gradient = Gradient { mix, load: HALF_PEAK, arrivals: 10_000, units: None };
            let mut case = case("dqt:ff-apa", mix, HALF_PEAK, Jobs::Gradient(gradient));
            case.options.sample_ns = Some(10 * SECOND);
            Plan { case, points: seed == 1 }
        };
        (1..=seeds(extent)).map(plan).collect()
    }

    fn draw(&self, folder: &Path, extent: Extent, kept: &[Kept]) -> Result<Section, SimError> {
        let title = "Figure 7.23 and tables 7.2 to 7.4: the list that SCore-D ran".to_owned();
        let mut section = Section { title, ..Section::default() };
        line!(section.text, "{}", HOW.replace("SEEDS", &seeds(extent).to_string()));
        let file = "figure-7-23.svg";
        over_time(&folder.join(file), "DQT on 64 processors, rising load", &kept[0])?;
        section.figure(file, "Figure 7.23: RETR of jobs at their ends, 64 processors");
        let tables =
            ["Table 7.2: all jobs", "Table 7.3: over in the first half", "Table 7.4: after it"];
        let mut totals = Vec::new();
        let mut largest = Vec::new();
        for (which, title) in tables.into_iter().enumerate() {
            line!(
                section.text,
                "\n{title}\n\n| size | jobs: paper | ours | RETR: paper simulated | SCore-D | ours |"
            );
            line!(section.text, "|---|---|---|---|---|---|");
            let mut means = Vec::new();
            for (size, paper) in PAPER {
                let (jobs, simulated, measured) = paper[which];
                let rows: Vec<(f64, f64)> = kept.iter().map(|run| row(run, which, size)).collect();
                let count = Estimate::of(&rows.iter().map(|row| row.0).collect::<Vec<_>>());
                let retr = Estimate::of(&rows.iter().map(|row| row.1).collect::<Vec<_>>());
                let name = if size == 0 { "all".to_owned() } else { size.to_string() };
                line!(
                    section.text,
                    "| {name} | {jobs} | {:.0} | {simulated:.2} | {measured:.2} | {:.2} ± {:.2} |",
                    count.mean,
                    retr.mean,
                    retr.half_width
                );
                means.push(retr.mean);
            }
            totals.extend(means.last().copied());
            largest.push(means[..7].iter().all(|&mean| mean <= means[6]));
        }
        section.claim(
            "the largest jobs fare worst, in all three tables",
            largest.iter().all(|&worst| worst),
            format!("{largest:?}"),
        );
        section.claim(
            "mean RETR is 2.06 in all, 1.23 in the first half, 2.54 after it (each within a quarter)",
            totals.iter().zip([2.06, 1.23, 2.54]).all(|(ours, paper)| (ours / paper - 1.0).abs() < 0.25),
            totals.iter().map(|total| format!("{total:.2}")).collect::<Vec<_>>().join(", "),
        );
        Ok(section)
    }
}

/// Jobs of a size (0: of all) and their mean RETR in one of the three tables.
fn row(run: &Kept, which: usize, size: u32) -> (f64, f64) {
    let rows: &[BySize] = match which {
        0 => &run.report.sizes,
        half => &run.halves[half - 1],
    };
    let chosen = || rows.iter().filter(|row| size == 0 || row.size == size);
    let jobs: f64 = chosen().map(|row| row.ended as f64).sum();
    let sum: f64 = chosen().map(|row| row.mean_retr * row.ended as f64).sum();
    (jobs, if jobs > 0.0 { sum / jobs } else { 0.0 })
}
