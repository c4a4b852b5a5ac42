//! Figures 7.18 to 7.21: distributions of sizes, sizes of machines, and other policies.

use std::fmt::Write as _;
use std::path::Path;

use super::plot::{Frame, Kind, Series, chart};
use super::{Extent, Kept, Part, Plan, SERVICE, Section, line, mix, poisson};
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

impl Distributions {
    fn machines(extent: Extent) -> &'static [u32] {
        if extent.quick { &[128, 256, 512] } else { &[128, 256, 512, 1024, 2048, 4096] }
    }
}

/// A curve over the realised load; realised loads above 1 are left out, as in the paper.
fn curve(name: &str, runs: &[Kept], of: impl Fn(&Report) -> Option<f64>) -> Series {
    let within = runs.iter().filter(|run| run.report.actual_load <= 1.0);
    let mut points: Vec<(f64, f64)> =
        within.filter_map(|run| Some((run.report.actual_load, of(&run.report)?))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Series::new(name, Kind::Marked, points)
}

fn ideal() -> Series {
    Series::new("ideal", Kind::Line, vec![(0.2, 0.2), (1.0, 1.0)])
}

/// Mean, over the runs at target loads from `from` to `to`, of a figure.
fn mean_at(runs: &[Kept], from: f64, to: f64, of: impl Fn(&Report) -> f64) -> f64 {
    let within = LOADS.iter().zip(runs).filter(|(load, _)| (from..=to).contains(*load));
    mean(&within.map(|(_, run)| of(&run.report)).collect::<Vec<f64>>())
}

/// Utilisation over realised load.
fn efficiency(report: &Report) -> f64 {
    report.utilisation / report.actual_load
}

impl Part for Distributions {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let mut plans = Vec::new();
        for (sizes, _) in LAWS {
            for &procs in Self::machines(extent) {
                for load in LOADS {
                    let case =
                        poisson("dqt:ff-apa", mix(procs, sizes, SERVICE, 1), load, extent.units());
                    plans.push(Plan { case, points: false });
                }
            }
        }
        plans
    }

    fn draw(&self, folder: &Path, extent: Extent, kept: &[Kept]) -> Result<Section, SimError> {
        let title = "Figure 7.18: distributions of sizes and sizes of machines".to_owned();
        let mut section = Section { title, ..Section::default() };
        line!(
            section.text,
            "FF-APA, one run for each point. Below: utilisation over realised load, mean over the target loads"
        );
        line!(
            section.text,
            "from 0.8 up.\n\n| sizes | processors | utilisation / load |\n|---|---|---|"
        );
        let machines = Self::machines(extent);
        let mut by_law = Vec::new();
        let mut widest: f64 = 0.0;
        for ((_, law), runs) in LAWS.iter().zip(kept.chunks(machines.len() * LOADS.len())) {
            let each: Vec<&[Kept]> = runs.chunks(LOADS.len()).collect();
            let named = || machines.iter().map(ToString::to_string).zip(&each);
            let used =
                |(name, runs): (String, &&[Kept])| curve(&name, runs, |r| Some(r.utilisation));
            let mut series: Vec<Series> = named().map(used).collect();
            series.push(ideal());
            let file = format!("figure-7-18-{law}-utilisation.svg");
            let frame =
                Frame { title: &format!("sizes {law}"), x: "load", y: "utilisation", top: None };
            chart(&folder.join(&file), &frame, &series)?;
            section.figure(&file, &format!("Figure 7.18: utilisation, sizes {law}, by processors"));
            let retr = |(name, runs): (String, &&[Kept])| curve(&name, runs, |r| Some(r.mean_retr));
            let file = format!("figure-7-18-{law}-retr.svg");
            let frame = Frame { y: "mean RETR", ..frame };
            chart(&folder.join(&file), &frame, &named().map(retr).collect::<Vec<_>>())?;
            section.figure(&file, &format!("Figure 7.18: mean RETR, sizes {law}, by processors"));
            let shares: Vec<f64> =
                each.iter().map(|runs| mean_at(runs, 0.8, 1.0, efficiency)).collect();
            for (procs, share) in machines.iter().zip(&shares) {
                line!(section.text, "| {law} | {procs} | {share:.4} |");
            }
            let at_most_90: Vec<f64> =
                each.iter().map(|runs| mean_at(runs, 0.2, 0.9, efficiency)).collect();
            let high = at_most_90.iter().copied().fold(0.0, f64::max);
            let low = at_most_90.iter().copied().fold(1.0, f64::min);
            widest = widest.max(high - low);
            by_law.push(mean(&shares));
        }
        section.claim(
            "utilisation does not depend on the machine's size (up to load 0.9, to 0.02)",
            widest < 0.02,
            format!("largest difference {widest:.4}"),
        );
        section.claim(
            "inverse sizes are best, then proportional, uniform ones worst",
            by_law[2] > by_law[0] && by_law[0] > by_law[1],
            format!(
                "inverse {:.4}, proportional {:.4}, uniform {:.4}",
                by_law[2], by_law[0], by_law[1]
            ),
        );
        Ok(section)
    }
}

/// Figures 7.19 to 7.21.
pub(super) struct Policies;

const POLICIES: [(&str, &str); 4] = [
    ("dqt:apa", "DQT"),
    ("fair-dqt:apa", "Fair-DQT"),
    ("fcfs-bb", "FCFS-BB"),
    ("scan-up", "ScanUp"),
];

impl Policies {
    fn procs(extent: Extent) -> u32 {
        if extent.quick { 256 } else { 1024 }
    }
}

/// The runs of one distribution: for each policy one at each load.
type Runs<'a> = Vec<&'a [Kept]>;

impl Part for Policies {
    fn plans(&self, extent: Extent) -> Vec<Plan> {
        let mut plans = Vec::new();
        for (sizes, _) in LAWS {
            for (policy, _) in POLICIES {
                for load in LOADS {
                    let mix = mix(Self::procs(extent), sizes, SERVICE, 1);
                    plans.push(Plan {
                        case: poisson(policy, mix, load, extent.units()),
                        points: false,
                    });
                }
            }
        }
        plans
    }

    fn draw(&self, folder: &Path, extent: Extent, kept: &[Kept]) -> Result<Section, SimError> {
        let title = "Figures 7.19 to 7.21: Fair-DQT, batch scheduling, fairness".to_owned();
        let mut section = Section { title, ..Section::default() };
        line!(section.text, "{} processors, APA, one run for each point.", Self::procs(extent));
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
    folder: &Path,
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
        let file = format!("figure-7-{number}-{law}-{}.svg", what.replace(' ', "-").to_lowercase());
        let title = format!("sizes {law}");
        // Batch policies make small jobs wait so long that the others could not be told apart.
        let top = (what == "mean RETR").then_some(40.0);
        chart(&folder.join(&file), &Frame { title: &title, x: "load", y: what, top }, &series)?;
        section.figure(&file, &format!("Figure 7.{number}: {what}, sizes {law}"));
        Ok::<(), SimError>(())
    };
    figure(19, "utilisation", 2, |report| Some(report.utilisation))?;
    figure(19, "mean RETR", 2, |report| Some(report.mean_retr))?;
    figure(20, "utilisation", 4, |report| Some(report.utilisation))?;
    figure(21, "correlation", 4, |report| report.correlation_log2_size_retr)
}

fn judge_fair(section: &mut Section, laws: &[Runs<'_>]) {
    let loss = |law: &Runs<'_>| {
        mean_at(law[0], 0.9, 1.0, efficiency) - mean_at(law[1], 0.9, 1.0, efficiency)
    };
    let losses: Vec<f64> = laws.iter().map(loss).collect();
    section.claim(
        "7.19: Fair-DQT uses the processors little less than DQT where sizes are proportional or uniform, and clearly less where they are inverse (loads from 0.9)",
        losses.iter().all(|&loss| loss > -0.005) && losses[2] > 2.0 * losses[0].max(losses[1]),
        format!(
            "lost: proportional {:.4}, uniform {:.4}, inverse {:.4}",
            losses[0], losses[1], losses[2]
        ),
    );
    let retr = |runs: &[Kept]| mean_at(runs, 0.9, 1.0, |report| report.mean_retr);
    let pairs: Vec<(f64, f64)> = laws.iter().map(|law| (retr(law[0]), retr(law[1]))).collect();
    let shown: Vec<String> =
        pairs.iter().map(|(dqt, fair)| format!("{dqt:.1} / {fair:.1}")).collect();
    section.claim(
        "7.19: at high load mean RETR is worse under Fair-DQT than under DQT",
        pairs.iter().all(|(dqt, fair)| fair > dqt),
        format!("DQT / Fair-DQT, proportional, uniform, inverse: {}", shown.join(", ")),
    );
}

fn judge_batch(section: &mut Section, laws: &[Runs<'_>]) {
    let mut near: f64 = 0.0;
    let mut behind = f64::INFINITY;
    for law in laws {
        let share = |runs| mean_at(runs, 0.8, 1.0, efficiency);
        near = near.max((share(law[0]) - share(law[3])).abs());
        behind = behind.min(share(law[0]).min(share(law[3])) - share(law[2]));
    }
    section.claim(
        "7.20: ScanUp uses the processors nearly as well as DQT (loads from 0.8, to 0.05)",
        near < 0.05,
        format!("largest difference {near:.4}"),
    );
    section.claim(
        "7.20: FCFS-BB is far behind both (by 0.05 at least)",
        behind > 0.05,
        format!("smallest difference {behind:.4}"),
    );
}

fn judge_fairness(section: &mut Section, laws: &[Runs<'_>]) {
    let correlation = |report: &Report| report.correlation_log2_size_retr.unwrap_or(0.0);
    let all = |policy: usize| laws.iter().flat_map(move |law| law[policy]).map(|run| &run.report);
    let count = all(0).count() as f64;
    let positive = all(0).filter(|report| correlation(report) > 0.0).count() as f64 / count;
    section.claim(
        "7.21: under DQT the correlation of size and RETR is nearly always positive: large jobs fare worse",
        positive >= 0.75,
        format!("in {:.0} % of the runs", 100.0 * positive),
    );
    let size =
        |policy| mean(&all(policy).map(|report| correlation(report).abs()).collect::<Vec<f64>>());
    section.claim(
        "7.21: Fair-DQT is fairer",
        size(1) < size(0),
        format!("mean absolute correlation {:.3} against {:.3}", size(1), size(0)),
    );
    let falls = |law: &Runs<'_>| {
        (mean_at(law[0], 0.2, 0.6, correlation), mean_at(law[0], 0.95, 1.0, correlation))
    };
    let (uniform, inverse) = (falls(&laws[1]), falls(&laws[2]));
    section.claim(
        "7.21: with uniform and inverse sizes DQT's correlation is high at low load and falls at high load",
        uniform.0 > uniform.1 && inverse.0 > inverse.1,
        format!(
            "uniform {:.3} to {:.3}, inverse {:.3} to {:.3}",
            uniform.0, uniform.1, inverse.0, inverse.1
        ),
    );
    let scan: Vec<f64> = laws
        .iter()
        .map(|law| mean_at(law[3], 0.2, 1.0, |report| correlation(report).abs()))
        .collect();
    section.claim(
        "7.21: ScanUp is fair with inverse sizes, less so with the others",
        scan[2] < scan[0].min(scan[1]),
        format!("proportional {:.3}, uniform {:.3}, inverse {:.3}", scan[0], scan[1], scan[2]),
    );
}
