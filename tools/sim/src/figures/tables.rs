//! Tables that the documentation shows: of the figures' simulations in full, and of other readings of the paper.

use super::gradient::PROCS;
use super::measured::{HALF_PEAK, Line, Measured, list, paper_total};
use super::table1::Table1;
use super::{
    Extent, LONG_SERVICE, PEAK, Part, RunResult, gradient_of, keep, measured, mix, table1,
};
use crate::engine::Monitor;
use crate::error::SimError;
use crate::generate::Sizes;
use crate::stats::mean;
use crate::sweep::{self, Case};

/// A table of the documentation, made by simulations. Its numbers depend on the code only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceTable {
    /// Table 7.1 in full.
    TaskAllocation,
    /// Tables 7.2 to 7.4 in full, jobs of all sizes.
    Lists,
    /// The largest TQLB of figures 7.12 to 7.17, for several loads at the end.
    GradientPeaks,
    /// The same of figure 7.15.
    LargeMachinePeaks,
    /// Mean RETR of tables 7.2 to 7.4, for several loads at the end.
    ListPeaks,
}

/// A table as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns.
    pub head: Vec<String>,
    /// As many cells in each as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// Policies of the gradients, as the paper names them.
const POLICIES: [(&str, &str); 5] = [
    ("MAX", "dqt:max"),
    ("MIN", "dqt:min"),
    ("FF", "dqt:ff"),
    ("APA", "dqt:apa"),
    ("FF-APA", "dqt:ff-apa"),
];

/// Load at the end, and units until then.
const PEAKS: [(f64, u64); 5] =
    [(1.0, 2_200_000), (1.1, 2_200_000), (1.2, 2_200_000), (PEAK, 2_200_000), (PEAK, 1_100_000)];
const PEAK_SEEDS: u64 = 8;

/// Loads at the end for figure 7.15: 2.07 is that of the same arrivals for each processor.
const LARGE_PEAKS: [f64; 6] = [0.67, 0.95, 1.33, 1.70, 2.07, 2.66];
const LARGE_SEEDS: u64 = 2;

/// Loads at the end for tables 7.2 to 7.4.
const LIST_PEAKS: [f64; 6] = [0.60, HALF_PEAK, 0.75, 0.85, 0.95, PEAK];
const LIST_SEEDS: u64 = 20;

/// Whose jobs are in tables 7.2 to 7.4.
const LISTS: [&str; 3] = ["all (7.2)", "over in the first half (7.3)", "after it (7.4)"];

impl ReferenceTable {
    /// All of them, in the documentation's order.
    pub const ALL: [Self; 5] = [
        Self::GradientPeaks,
        Self::LargeMachinePeaks,
        Self::ListPeaks,
        Self::TaskAllocation,
        Self::Lists,
    ];

    /// What the documentation calls its place.
    pub fn name(self) -> &'static str {
        match self {
            Self::TaskAllocation => "table-7-1",
            Self::Lists => "tables-7-2-to-7-4",
            Self::GradientPeaks => "gradient-peaks",
            Self::LargeMachinePeaks => "large-machine-peaks",
            Self::ListPeaks => "list-peaks",
        }
    }

    /// Whether the simulations take seconds and not minutes.
    pub fn is_quick(self) -> bool {
        matches!(self, Self::Lists | Self::ListPeaks)
    }

    /// Its simulations.
    fn cases(self) -> Vec<Case> {
        let part =
            |part: &dyn Part| part.plans(Extent::Full).into_iter().map(|plan| plan.case).collect();
        let gradient = |policy, procs, seed, units, peak| {
            let mut case =
                gradient_of(policy, mix(procs, Sizes::Inverse, LONG_SERVICE, seed), units, peak);
            case.options.sample_ns = None;
            case
        };
        let mut cases = Vec::new();
        match self {
            Self::TaskAllocation => return part(&Table1),
            Self::Lists => return part(&Measured),
            Self::GradientPeaks => {
                for (peak, units) in PEAKS {
                    for (_, policy) in POLICIES {
                        cases.extend(
                            (1..=PEAK_SEEDS).map(|seed| gradient(policy, PROCS, seed, units, peak)),
                        );
                    }
                }
            }
            Self::LargeMachinePeaks => {
                let (procs, units) = Extent::Full.size().large;
                for peak in LARGE_PEAKS {
                    cases.extend(
                        (1..=LARGE_SEEDS).map(|seed| gradient("dqt:ff", procs, seed, units, peak)),
                    );
                }
            }
            Self::ListPeaks => {
                for peak in LIST_PEAKS {
                    cases.extend((1..=LIST_SEEDS).map(|seed| list(seed, peak)));
                }
            }
        }
        cases
    }

    /// Simulates it.
    ///
    /// # Errors
    /// The monitor says stop.
    pub fn make(self, monitor: &Monitor) -> Result<Table, SimError> {
        let kept = sweep::run(&self.cases(), monitor, |_, case, done| Ok(keep(case, done, false)))?;
        Ok(match self {
            Self::TaskAllocation => {
                let seeds = Extent::Full.size().seeds;
                let rows = table1::rows(&table1::cells(&kept, seeds), seeds);
                Table { head: owned(&table1::HEAD), rows }
            }
            Self::Lists => lists(&kept),
            Self::GradientPeaks => gradient_peaks(&kept),
            Self::LargeMachinePeaks => large_machine_peaks(&kept),
            Self::ListPeaks => list_peaks(&kept),
        })
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A load as people read it, in percent.
fn percent(load: f64) -> String {
    format!("{} %", (1000.0 * load).round() / 10.0)
}

fn lists(kept: &[RunResult]) -> Table {
    let mut head = owned(&measured::HEAD);
    head[0] = "tables 7.2 to 7.4, all sizes".to_owned();
    let row =
        |(which, name): (usize, &&str)| Line::of(kept, which, 0).cells(name, paper_total(which));
    Table { head, rows: LISTS.iter().enumerate().map(row).collect() }
}

/// Mean of the largest TQLB of some runs.
fn largest_tqlb(runs: &[RunResult]) -> f64 {
    mean(&runs.iter().map(|run| f64::from(run.report.max_tqlb.unwrap_or(0))).collect::<Vec<f64>>())
}

fn gradient_peaks(kept: &[RunResult]) -> Table {
    let mut head = owned(&["load at the end", "units"]);
    head.extend(POLICIES.map(|(name, _)| name.to_owned()));
    let mut rows = vec![owned(&["paper, 133 %", "2200000", "19", "6", "-", "-", "-"])];
    for ((peak, units), runs) in PEAKS.iter().zip(kept.chunks(POLICIES.len() * PEAK_SEEDS as usize))
    {
        let mut row = vec![percent(*peak), units.to_string()];
        row.extend(
            runs.chunks(PEAK_SEEDS as usize).map(|runs| format!("{:.1}", largest_tqlb(runs))),
        );
        rows.push(row);
    }
    Table { head, rows }
}

fn large_machine_peaks(kept: &[RunResult]) -> Table {
    let mut head = owned(&["figure 7.15: load at the end"]);
    head.extend(LARGE_PEAKS.map(percent));
    head.push("paper".to_owned());
    let mut row = owned(&["largest TQLB under FF, 2,048 processors"]);
    row.extend(kept.chunks(LARGE_SEEDS as usize).map(|runs| format!("{:.1}", largest_tqlb(runs))));
    row.push("44".to_owned());
    Table { head, rows: vec![row] }
}

fn list_peaks(kept: &[RunResult]) -> Table {
    let mut head = owned(&["tables 7.2 to 7.4: load at the end"]);
    head.extend(LIST_PEAKS.map(percent));
    head.push("paper".to_owned());
    let names = ["mean RETR of all jobs", "over in the first half", "over after it"];
    let row = |(which, name): (usize, &&str)| {
        let of = |runs| format!("{:.2}", Line::of(runs, which, 0).retr.mean);
        let mut row = owned(&[name]);
        row.extend(kept.chunks(LIST_SEEDS as usize).map(of));
        row.push(format!("{:.3}", paper_total(which).1));
        row
    };
    Table { head, rows: names.iter().enumerate().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_place_of_its_own() {
        let mut names = ReferenceTable::ALL.map(ReferenceTable::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ReferenceTable::ALL.len());
    }

    #[test]
    fn loads_are_percentages() {
        assert_eq!([1.0, 1.1, HALF_PEAK, 2.07].map(percent), ["100 %", "110 %", "66.5 %", "207 %"]);
    }

    #[test]
    fn each_table_has_all_of_its_simulations() {
        let sizes = ReferenceTable::ALL.map(|table| (table, table.cases().len() as u64));
        let expected = [200, 12, 120, 200, 40];
        for ((table, cases), expected) in sizes.into_iter().zip(expected) {
            assert_eq!(cases, expected, "{table:?}");
        }
    }
}
