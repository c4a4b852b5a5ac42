//! Figures and tables of the SCore-D paper, chapter 7: simulated, drawn and with the paper's numbers beside them.
//!
//! Every part first names its simulations; all of them run as one sweep. Then each part draws and judges its
//! results.

mod bitmap;
mod compare;
mod extent;
mod gradient;
mod measured;
mod page;
mod plot;
mod section;
mod table1;
mod tables;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::engine::{Monitor, Options, Sample};
use crate::error::SimError;
use crate::generate::{Gradient, Poisson, Service, Sizes, WorkloadMix};
use crate::report::{EndedJob, Report, SizeClass, by_size_where, seconds};
use crate::sweep::{self, Case, CaseResult, JobSource};
pub use extent::Extent;
pub use measured::{Cell, PAPER, paper_total};
use plot::Folder;
pub use plot::Formats;
use section::Section;
pub use section::{Statement, Verdict};
pub use tables::{ReferenceTable, Table};

/// Data of a simulation that a figure needs.
struct RunResult {
    report: Report,
    /// End in seconds, RETR and size of every job, where they are drawn.
    points: Vec<(f64, f64, u32)>,
    samples: Vec<Sample>,
    /// Jobs that ended before half of the arrivals' time, and after.
    halves: [Vec<SizeClass>; 2],
}

/// A simulation that a part needs.
struct Plan {
    case: Case,
    /// Whether every job is drawn.
    points: bool,
}

/// A part of the chapter.
trait Part {
    fn plans(&self, extent: Extent) -> Vec<Plan>;

    fn draw(
        &self,
        folder: &Folder,
        extent: Extent,
        kept: &[RunResult],
    ) -> Result<Section, SimError>;
}

/// Results of [`make`].
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The page that shows everything.
    pub index: PathBuf,
    /// Figures drawn, by the names of their files without endings; for calls the titles of the tables.
    pub figures: Vec<String>,
    /// The paper's statements with verdicts, in its order.
    pub statements: Vec<Statement>,
}

impl Summary {
    /// Number of statements with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.statements.iter().filter(|statement| statement.verdict == verdict).count()
    }
}

fn parts() -> Vec<Box<dyn Part>> {
    vec![
        Box::new(gradient::Behaviour),
        Box::new(gradient::Gradients),
        Box::new(table1::Table1),
        Box::new(compare::Distributions),
        Box::new(compare::Policies),
        Box::new(measured::Measured),
    ]
}

/// Number of simulations in [`make`]: its monitor counts to this, in thousands.
pub fn simulations(extent: Extent) -> usize {
    parts().iter().map(|part| part.plans(extent).len()).sum()
}

/// Simulates, draws and writes everything into `folder`, which is created if it is missing.
///
/// # Errors
/// A file cannot be written, or the monitor says stop.
pub fn make(
    folder: &Path,
    extent: Extent,
    formats: Formats,
    monitor: &Monitor,
) -> Result<Summary, SimError> {
    std::fs::create_dir_all(folder)
        .map_err(|source| SimError::Unwritable { path: folder.to_owned(), source })?;
    let folder = Folder::new(folder, formats);
    let parts = parts();
    let plans: Vec<Vec<Plan>> = parts.iter().map(|part| part.plans(extent)).collect();
    let wanted: Vec<bool> = plans.iter().flatten().map(|plan| plan.points).collect();
    let cases: Vec<Case> = plans.iter().flatten().map(|plan| plan.case.clone()).collect();
    let kept = |place: usize, case: &Case, done| Ok(keep(case, done, wanted[place]));
    let mut kept = sweep::run(&cases, monitor, kept)?.into_iter();
    let mut sections = Vec::new();
    for (part, plans) in parts.iter().zip(&plans) {
        let mine: Vec<RunResult> = kept.by_ref().take(plans.len()).collect();
        sections.push(part.draw(&folder, extent, &mine)?);
    }
    index(&folder, extent, sections)
}

/// Most points of a figure; more cannot be told apart.
const MOST_POINTS: usize = 6000;

fn keep(case: &Case, done: CaseResult, drawn: bool) -> RunResult {
    let CaseResult { report, workload, outcome } = done;
    let half = match &case.jobs {
        JobSource::Poisson(poisson) => poisson.arrivals,
        JobSource::Gradient(gradient) => gradient.arrivals,
        JobSource::Made(_) => 0,
    } * crate::SECOND
        / 2;
    let mut points = Vec::new();
    if drawn {
        for (index, job) in workload.jobs.iter().enumerate() {
            let retr = EndedJob::of(job, &outcome, index).and_then(|ended| ended.retr);
            if let (Some(end), Some(retr)) = (outcome.end(index), retr) {
                points.push((seconds(end), retr, job.size));
            }
        }
    }
    let halves = [
        by_size_where(&workload, &outcome, |end| end < half),
        by_size_where(&workload, &outcome, |end| end >= half),
    ];
    RunResult { report, points, samples: outcome.samples, halves }
}

/// Every n-th point, so that there are not too many.
fn thinned(points: &[(f64, f64, u32)]) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(MOST_POINTS).max(1);
    points.iter().step_by(step).map(|&(x, y, _)| (x, y)).collect()
}

fn poisson(policy: &str, mix: WorkloadMix, load: f64, units: u64) -> Case {
    let jobs = JobSource::Poisson(Poisson { mix, load, arrivals: units, units: Some(units) });
    case(policy, mix, load, jobs)
}

fn case(policy: &str, mix: WorkloadMix, load: f64, jobs: JobSource) -> Case {
    let options = Options::new(mix.procs);
    Case { policy: policy.to_owned(), load: Some(load), seed: Some(mix.seed), jobs, options }
}

/// The gradient of §7.2.2 over `units`, up to the load `peak`.
fn gradient_of(policy: &str, mix: WorkloadMix, units: u64, peak: f64) -> Case {
    let arrivals = units / 11 * 10;
    let gradient = Gradient { mix, load: peak, arrivals, units: Some(units) };
    let mut case = case(policy, mix, peak, JobSource::Gradient(gradient));
    case.options.sample_ns = Some((units / 1000).max(1) * crate::SECOND);
    case
}

/// Load at the end of a gradient (§7.2.2).
const PEAK: f64 = 1.33;

/// Service times of §7.2 where it names no others.
const SERVICE: Service = Service::Exponential { mean: 1000.0 };

/// Service of §7.2.2.
const LONG_SERVICE: Service = Service::Uniform { low: 500, high: 19_999 };

fn mix(procs: u32, sizes: Sizes, service: Service, seed: u64) -> WorkloadMix {
    WorkloadMix { procs, sizes, largest: None, service, seed }
}

/// Writes a line; writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($rest:tt)*) => {
        { let written = writeln!($text, $($rest)*); debug_assert!(written.is_ok()); }
    };
}
pub(crate) use line;

/// Writes the pages that show everything.
fn index(folder: &Folder, extent: Extent, sections: Vec<Section>) -> Result<Summary, SimError> {
    let statements = || sections.iter().flat_map(|section| &section.statements);
    let count = |verdict| statements().filter(|statement| statement.verdict == verdict).count();
    let mut lines =
        vec![format!("Made by `kumi sim figures`, version {}.", env!("CARGO_PKG_VERSION"))];
    lines.extend(extent.warning().map(str::to_owned));
    lines.push(format!(
        "Of {} statements of the paper {} hold here, {} do not, of {} it cannot be said.",
        statements().count(),
        count(Verdict::Holds),
        count(Verdict::Fails),
        count(Verdict::Open),
    ));
    let head = page::Head { title: "Chapter 7, simulated anew", lines };
    let endings = folder.formats.endings();
    let shown = endings.first().copied().unwrap_or_default();
    folder.write("index.md", &page::markdown(&head, &sections, shown))?;
    let index = folder.write("index.html", &page::html(&head, &sections, endings))?;
    let stem = |(stem, _): &(String, String)| stem.clone();
    Ok(Summary {
        index,
        figures: sections.iter().flat_map(|section| section.figures.iter().map(stem)).collect(),
        statements: sections.into_iter().flat_map(|section| section.statements).collect(),
    })
}
