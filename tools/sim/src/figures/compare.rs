//! Figures 7.18 to 7.21: distributions of sizes, sizes of machines, and other policies.

use super::plot::{Folder, Frame, Kind, Series, chart};
use super::section::Section;
use super::{Extent, Part, Plan, RunResult, SERVICE, mix, poisson};
use crate::error::SimError;
use crate::generate::Sizes;
use crate::report::Report;
use crate::stats::mean;

/// Target loads of §7.2.3.
const LOADS: [f64; 8] = [0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.97, 0.99];

const LAWS: [(Sizes, &str); 3] = [
    (Sizes::Proportional, "proportional"),
    (Sizes::Uniform, "uniform"),
    (Sizes::Inverse, "inverse"),
];

/// Figure 7.18.
pub(super) struct Distributions;

/// A curve over the realised load; realised loads above 1 are left out, as in the paper.
fn curve(name: &str, runs: &[RunResult], of: impl Fn(&Report) -> Option<f64>) -> Series {
    let within = runs.iter().filter(|run| run.report.actual_load <= 1.0);
    let mut points: Vec<(f64, f64)> =
        within.filter_map(|run| Some((run.report.actual_load, of(&run.report)?))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Series::new(name, Kind::Marked, points)
}

fn ideal() -> Series {
    Series::new("ideal", Kind::Line, vec![(0.2, 0.2), (1.0, 1.0)])
}

/// Mean of a figure over the runs at target loads from `from` to `to`. Runs with a realised load above 1 do
/// not count, as in the paper; `None` if no others exist.
fn mean_at(
    runs: &[RunResult],
    from: f64,
    to: f64,
    of: impl Fn(&Report) -> Option<f64>,
) -> Option<f64> {
    let within = LOADS
        .iter()
        .zip(runs)
        .filter(|(load, run)| (from..=to).contains(*load) && run.report.actual_load <= 1.0);
    let values: Vec<f64> = within.filter_map(|(_, run)| of(&run.report)).collect();
    (!values.is_empty()).then(|| mean(&values))
}

/// A number, or a dash.
fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Several of them with names, as [`shown`].
fn named(names: &[&str], values: &[Option<f64>], decimals: usize) -> String {
    let each = names.iter().zip(values);
    let each = each.map(|(name, &value)| format!("{name} {}", shown(value, decimals)));
    each.collect::<Vec<_>>().join(", ")
}

/// All of them, if all are known.
fn all(values: &[Option<f64>]) -> Option<Vec<f64>> {
    values.iter().copied().collect()
}

const LAW_NAMES: [&str; 3] = [LAWS[0].1, LAWS[1].1, LAWS[2].1];

/// Utilisation over realised load.
fn efficiency(report: &Report) -> Option<f64> {
    (report.actual_load > 0.0).then(|| report.utilisation / report.actual_load)
}

impl Part for Distributions {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let size = extent.size();
        let mut plans = Vec::new();
        for (sizes, _) in LAWS {
            // Each point has a seed of its own, so means over many points are means over as many lists of
            // jobs.
            for (&procs, first) in size.machines.iter().zip((1..).step_by(LOADS.len())) {
                for (load, seed) in LOADS.into_iter().zip(first..) {
                    let mix = mix(procs, sizes, SERVICE, seed);
                    let case = poisson("dqt:ff-apa", mix, load, size.units);
                    plans.push(Plan { case, points: false });
                }
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
        let mut section = Section::new("Figure 7.18: distributions of sizes and sizes of machines");
        section.text(
            "FF-APA, one run for each point, with jobs of its own. Runs whose realised load is above 1 are left out, as in the paper. \
             Below: utilisation over realised load, mean over the target loads from 0.8 up.",
        );
        section.table(&["sizes", "processors", "utilisation / load"]);
        let machines = extent.size().machines;
        let (mut by_law, mut spreads) = (Vec::new(), Vec::new());
        for ((_, law), runs) in LAWS.iter().zip(kept.chunks(machines.len() * LOADS.len())) {
            let each: Vec<&[RunResult]> = runs.chunks(LOADS.len()).collect();
            draw_machines(&mut section, folder, law, machines, &each)?;
            let shares: Vec<Option<f64>> =
                each.iter().map(|runs| mean_at(runs, 0.8, 1.0, efficiency)).collect();
            for (procs, &share) in machines.iter().zip(&shares) {
                section.row(vec![(*law).to_owned(), procs.to_string(), shown(share, 4)]);
            }
            let known: Vec<f64> = shares.into_iter().flatten().collect();
            by_law.push((!known.is_empty()).then(|| mean(&known)));
            let at_most_90: Vec<Option<f64>> =
                each.iter().map(|runs| mean_at(runs, 0.2, 0.9, efficiency)).collect();
            spreads.push(all(&at_most_90).map(|values| spread(&values)));
        }
        section.judge(
            "7.18: utilisation does not depend on the machine's size (up to load 0.9, to 0.02)",
            all(&spreads).map(|spreads| spreads.iter().all(|&spread| spread < 0.02)),
            format!("largest difference: {}", named(&LAW_NAMES, &spreads, 4)),
        );
        section.judge(
            "7.18: inverse sizes are best, then proportional, uniform ones worst (loads from 0.8)",
            all(&by_law).map(|laws| laws[2] > laws[0] && laws[0] > laws[1]),
            format!("utilisation / load: {}", named(&LAW_NAMES, &by_law, 4)),
        );
        Ok(section)
    }
}

fn spread(values: &[f64]) -> f64 {
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    high - low
}

/// The two drawings of one distribution: for each machine one run at each load.
fn draw_machines(
    section: &mut Section,
    folder: &Folder,
    law: &str,
    machines: &[u32],
    each: &[&[RunResult]],
) -> Result<(), SimError> {
    let curves = |of: fn(&Report) -> Option<f64>| -> Vec<Series> {
        machines.iter().zip(each).map(|(procs, runs)| curve(&procs.to_string(), runs, of)).collect()
    };
    let mut used = curves(|report| Some(report.utilisation));
    used.push(ideal());
    let title = format!("sizes {law}");
    let frame = Frame { title: &title, x: "load", y: "utilisation", top: None };
    let stem = format!("figure-7-18-{law}-utilisation");
    chart(folder, &stem, &frame, &used)?;
    section.figure(&stem, &format!("Figure 7.18: utilisation, sizes {law}, by processors"));
    let frame = Frame { y: "mean RETR", ..frame };
    let stem = format!("figure-7-18-{law}-retr");
    chart(folder, &stem, &frame, &curves(|report| Some(report.mean_retr)))?;
    section.figure(&stem, &format!("Figure 7.18: mean RETR, sizes {law}, by processors"));
    Ok(())
}

/// Figures 7.19 to 7.21.
pub(super) struct Policies;

const POLICIES: [(&str, &str); 4] = [
    ("dqt:apa", "DQT"),
    ("fair-dqt:apa", "Fair-DQT"),
    ("fcfs-bb", "FCFS-BB"),
    ("scan-up", "ScanUp"),
];

/// The runs of one distribution: for each policy one at each load.
type Runs<'a> = Vec<&'a [RunResult]>;

impl Part for Policies {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let size = extent.size();
        let mut plans = Vec::new();
        for (sizes, _) in LAWS {
            for (policy, _) in POLICIES {
                for (load, seed) in LOADS.into_iter().zip(1..) {
                    let mix = mix(size.compared, sizes, SERVICE, seed);
                    let case = poisson(policy, mix, load, size.units);
                    plans.push(Plan { case, points: false });
                }
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
        let mut section =
            Section::new("Figures 7.19 to 7.21: Fair-DQT, batch scheduling, fairness");
        section.text(format!(
            "{} processors, APA, one run for each point; at each load all policies have the same jobs. Runs whose realised load is above 1 are left out.",
            extent.size().compared
        ));
        let laws: Vec<Runs<'_>> = kept
            .chunks(POLICIES.len() * LOADS.len())
            .map(|law| law.chunks(LOADS.len()).collect())
            .collect();
        for ((_, law), runs) in LAWS.iter().zip(&laws) {
            draw_law(&mut section, folder, law, runs)?;
        }
        judge_fair(&mut section, &laws);
        judge_batch(&mut section, &laws);
        judge_fairness(&mut section, &laws);
        Ok(section)
    }
}

fn draw_law(
    section: &mut Section,
    folder: &Folder,
    law: &str,
    runs: &Runs<'_>,
) -> Result<(), SimError> {
    let mut figure = |number: u32, what: &str, many: usize, of: fn(&Report) -> Option<f64>| {
        let named = POLICIES.iter().zip(runs).take(many);
        let mut series: Vec<Series> =
            named.map(|((_, name), runs)| curve(name, runs, of)).collect();
        if what == "utilisation" {
            series.push(ideal());
        }
        let stem = format!("figure-7-{number}-{law}-{}", what.replace(' ', "-").to_lowercase());
        let title = format!("sizes {law}");
        // Small jobs wait so long under batch policies that the other curves could not be told apart.
        let top = (what == "mean RETR").then_some(40.0);
        chart(folder, &stem, &Frame { title: &title, x: "load", y: what, top }, &series)?;
        section.figure(&stem, &format!("Figure 7.{number}: {what}, sizes {law}"));
        Ok::<(), SimError>(())
    };
    figure(19, "utilisation", 2, |report| Some(report.utilisation))?;
    figure(19, "mean RETR", 2, |report| Some(report.mean_retr))?;
    figure(20, "utilisation", 4, |report| Some(report.utilisation))?;
    figure(21, "correlation", 4, |report| report.correlation_log2_size_retr)
}

/// By distribution.
fn each_law(laws: &[Runs<'_>], of: impl Fn(&Runs<'_>) -> Option<f64>) -> Vec<Option<f64>> {
    laws.iter().map(of).collect()
}

fn judge_fair(section: &mut Section, laws: &[Runs<'_>]) {
    let used = |runs: &[RunResult]| mean_at(runs, 0.9, 1.0, efficiency);
    let losses = each_law(laws, |law| Some(used(law[0])? - used(law[1])?));
    section.judge(
        "7.19: Fair-DQT uses the processors little less than DQT where sizes are proportional or uniform, and clearly less where they are inverse (loads from 0.9)",
        all(&losses).map(|losses| {
            losses.iter().all(|&loss| loss > -0.005) && losses[2] > 2.0 * losses[0].max(losses[1])
        }),
        format!("share of the load lost: {}", named(&LAW_NAMES, &losses, 4)),
    );
    let retr = |runs: &[RunResult]| mean_at(runs, 0.9, 1.0, |report| Some(report.mean_retr));
    let (dqt, fair) = (each_law(laws, |law| retr(law[0])), each_law(laws, |law| retr(law[1])));
    section.judge(
        "7.19: at high load mean RETR is worse under Fair-DQT than under DQT (loads from 0.9)",
        all(&dqt)
            .zip(all(&fair))
            .map(|(dqt, fair)| dqt.iter().zip(&fair).all(|(dqt, fair)| fair > dqt)),
        format!("DQT: {}; Fair-DQT: {}", named(&LAW_NAMES, &dqt, 1), named(&LAW_NAMES, &fair, 1)),
    );
}

fn judge_batch(section: &mut Section, laws: &[Runs<'_>]) {
    let used = |law: &Runs<'_>, policy: usize| mean_at(law[policy], 0.8, 1.0, efficiency);
    let near = each_law(laws, |law| Some((used(law, 0)? - used(law, 3)?).abs()));
    section.judge(
        "7.20: ScanUp uses the processors nearly as well as DQT (loads from 0.8, to 0.05)",
        all(&near).map(|near| near.iter().all(|&difference| difference < 0.05)),
        format!("difference of utilisation / load: {}", named(&LAW_NAMES, &near, 4)),
    );
    let behind = each_law(laws, |law| Some(used(law, 0)?.min(used(law, 3)?) - used(law, 2)?));
    section.judge(
        "7.20: FCFS-BB is far behind both (loads from 0.8, by 0.05 at least)",
        all(&behind).map(|behind| behind.iter().all(|&difference| difference > 0.05)),
        format!("behind the worse of both: {}", named(&LAW_NAMES, &behind, 4)),
    );
}

fn correlation(report: &Report) -> Option<f64> {
    report.correlation_log2_size_retr
}

fn judge_fairness(section: &mut Section, laws: &[Runs<'_>]) {
    let known = |policy: usize| -> Vec<f64> {
        let runs = laws.iter().flat_map(|law| law[policy]).map(|run| &run.report);
        runs.filter(|report| report.actual_load <= 1.0).filter_map(correlation).collect()
    };
    let (dqt, fair) = (known(0), known(1));
    let positive = dqt.iter().filter(|&&value| value > 0.0).count();
    section.judge(
        "7.21: under DQT the correlation of size and RETR is nearly always positive, large jobs fare worse (in three of four runs)",
        (!dqt.is_empty()).then_some(4 * positive >= 3 * dqt.len()),
        format!("in {positive} of {} runs", dqt.len()),
    );
    let size = |values: &[f64]| {
        let sizes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
        (!sizes.is_empty()).then(|| mean(&sizes))
    };
    let sizes = [size(&dqt), size(&fair)];
    section.judge(
        "7.21: Fair-DQT is fairer than DQT (smaller mean absolute correlation)",
        all(&sizes).map(|sizes| sizes[1] < sizes[0]),
        named(&["DQT", "Fair-DQT"], &sizes, 3),
    );
    for (law, name) in [(1, "uniform"), (2, "inverse")] {
        let ends = [
            mean_at(laws[law][0], 0.2, 0.6, correlation),
            mean_at(laws[law][0], 0.95, 1.0, correlation),
        ];
        section.judge(
            &format!("7.21: with {name} sizes DQT's correlation is high at low load and falls at high load"),
            all(&ends).map(|ends| ends[0] > ends[1]),
            named(&["loads to 0.6:", "from 0.95:"], &ends, 3),
        );
    }
    let scan =
        each_law(laws, |law| mean_at(law[3], 0.2, 1.0, |report| correlation(report).map(f64::abs)));
    section.judge(
        "7.21: ScanUp is fair with inverse sizes, less so with the others",
        all(&scan).map(|scan| scan[2] < scan[0].min(scan[1])),
        format!("mean absolute correlation: {}", named(&LAW_NAMES, &scan, 3)),
    );
}
