//! Tables that simulations make: those of the paper's figures, and a real trace under batch policies.
//!
//! They depend on the code only. Some take minutes, so [`crate::reference`] does not make them.

use crate::region::{replace, table};
use crate::{DocsError, read};
use kumi_sim::figures::ReferenceTable;
use kumi_sim::sweep::{self, Case, JobSource};
use kumi_sim::{Instant, Monitor, Options, Report, swf};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The page of the tables of simulations.
pub const CHECKS: &str = "docs/guide/simulation-checks.md";
/// The page of the table of the trace.
pub const SCHEDULING: &str = "docs/guide/scheduling.md";
/// The region of the table of the trace.
pub const TRACE_REGION: &str = "kth-trace";
/// The trace, of the Parallel Workloads Archive, with `.swf` or `.swf.gz` behind it.
pub const TRACE: &str = "KTH-SP2-1996-2.1-cln";
/// Processors of the machine that it was taken on.
const TRACE_PROCS: u32 = 100;

/// A simulated table as it stands on [`CHECKS`].
///
/// # Errors
/// A simulation fails.
pub fn reference_table(which: ReferenceTable) -> Result<String, DocsError> {
    let made = which.make(&Monitor::default())?;
    let head: Vec<&str> = made.head.iter().map(String::as_str).collect();
    Ok(table(&head, &made.rows))
}

/// The trace in a folder.
///
/// # Errors
/// It is not there.
pub fn trace(folder: &Path) -> Result<PathBuf, DocsError> {
    let paths = ["swf.gz", "swf"].map(|ending| folder.join(format!("{TRACE}.{ending}")));
    let missing = || DocsError::Trace { path: paths[0].clone() };
    paths.iter().find(|path| path.exists()).cloned().ok_or_else(missing)
}

/// The table of batch policies on the trace, as it stands on [`SCHEDULING`].
///
/// # Errors
/// The trace cannot be read, or a simulation fails.
pub fn trace_table(trace: &Path) -> Result<String, DocsError> {
    let workload = Arc::new(swf::read(trace, true)?);
    let policies = ["fcfs", "easy", "conservative"];
    let orders = [(Instant::Single, "one by one"), (Instant::Batched, "all of an instant")];
    let case = |policy: &str, instant| Case {
        policy: policy.to_owned(),
        load: None,
        seed: None,
        jobs: JobSource::Made(Arc::clone(&workload)),
        options: Options { instant, ..Options::new(TRACE_PROCS) },
    };
    let both = |policy| orders.map(|(instant, _)| case(policy, instant));
    let cases: Vec<Case> = policies.into_iter().flat_map(both).collect();
    let reports = sweep::run(&cases, &Monitor::default(), |_, _, done| Ok(done.report))?;
    let mut rows = Vec::new();
    for (policy, reports) in policies.iter().zip(reports.chunks(orders.len())) {
        let cells: Vec<Vec<String>> = reports.iter().map(cells).collect();
        let named = |order: &str, cells: &[String]| {
            let name = format!("`{policy}`, {order}");
            [&[name][..], cells].concat()
        };
        if cells[0] == cells[1] {
            rows.push(named("either way", &cells[0]));
        } else {
            rows.extend(orders.iter().zip(&cells).map(|((_, order), cells)| named(order, cells)));
        }
    }
    Ok(table(&["policy", "mean wait, s", "mean bounded slowdown (10 s)", "longest wait, s"], &rows))
}

fn cells(report: &Report) -> Vec<String> {
    vec![
        thousands(report.mean_wait_s, 3),
        thousands(report.mean_bounded_slowdown, 4),
        thousands(report.max_wait_s, 0),
    ]
}

/// A number with commas between its thousands.
fn thousands(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// Writes a table into its place on a page of the repository.
///
/// # Errors
/// The page cannot be read or written, or has no such place.
pub fn write(root: &Path, page: &str, region: &str, content: &str) -> Result<(), DocsError> {
    let text = replace(&read(root, page)?, region, content)
        .ok_or_else(|| DocsError::Region { page: page.to_owned(), region: region.to_owned() })?;
    std::fs::write(root.join(page), text)
        .map_err(|source| DocsError::File { path: page.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        assert_eq!(thousands(218_980.575_4, 3), "218,980.575");
        assert_eq!(thousands(86.281_24, 4), "86.2812");
        assert_eq!(thousands(1_234_567.0, 0), "1,234,567");
        assert_eq!(thousands(999.0, 0), "999");
    }
}
