//! Text tables of simulation results.

use crate::output;
use crate::table::{Table, printable};
use kumi_sim::sweep::Case;
use kumi_sim::{Report, history, swf};

/// Prints the errors in a trace, if any, on standard error.
pub fn trace(summary: &swf::Summary) {
    for (line, reason) in &summary.malformed_lines {
        output::note(&format!("line {line} is malformed: {}", printable(reason)));
    }
    let told = summary.malformed_lines.len() as u64;
    if summary.malformed > told {
        output::note(&format!("{} more lines are malformed", summary.malformed - told));
    }
    let counts = [
        (summary.malformed, "malformed lines are skipped; --strict stops at the first"),
        (summary.unknown_run_time, "jobs are left out because their run time is unknown"),
        (summary.unknown_size, "jobs are left out because their size is unknown"),
        (summary.out_of_order, "jobs are not in the order of submission; they were sorted"),
    ];
    for (count, what) in counts.into_iter().filter(|&(count, _)| count > 0) {
        output::note(&format!("{count} {what}"));
    }
}

/// Prints the errors in a history, if any, on standard error.
pub fn history(summary: &history::Summary) {
    for (place, reason) in &summary.malformed_records {
        output::note(&format!("record {place} is malformed: {}", printable(reason)));
    }
    let told = summary.malformed_records.len() as u64;
    if summary.malformed > told {
        output::note(&format!("{} more records are malformed", summary.malformed - told));
    }
    let counts = [
        (summary.malformed, "malformed records are skipped; --strict stops at the first"),
        (summary.not_over, "jobs are left out because they are not over"),
        (summary.never_ran, "jobs are left out because they never ran"),
    ];
    for (count, what) in counts.into_iter().filter(|&(count, _)| count > 0) {
        output::note(&format!("{count} {what}"));
    }
}

/// The figures of one simulation in full, or one line for each simulation of a sweep.
pub fn table(cases: &[Case], reports: &[&Report]) -> String {
    match (cases, reports) {
        ([_], [report]) => one(report),
        _ => many(cases, reports),
    }
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn many(cases: &[Case], reports: &[&Report]) -> String {
    let mut table = Table::new(&[
        "policy",
        ">load",
        ">seed",
        ">jobs",
        ">actual",
        ">util",
        ">wait s",
        ">slowdown",
        ">RETR",
        ">max TQLB",
        ">corr",
    ]);
    for (case, report) in cases.iter().zip(reports) {
        table.row(vec![
            report.policy.clone(),
            optional(case.load),
            optional(case.seed),
            report.jobs.to_string(),
            format!("{:.4}", report.actual_load),
            format!("{:.4}", report.utilisation),
            format!("{:.1}", report.mean_wait_s),
            format!("{:.3}", report.mean_bounded_slowdown),
            format!("{:.3}", report.mean_retr),
            optional(report.max_tqlb),
            optional(report.correlation_log2_size_retr.map(|value| format!("{value:.3}"))),
        ]);
    }
    table.render()
}

fn one(report: &Report) -> String {
    let mut lines = Table::new(&["policy", &format!(">{}", report.policy)]);
    let mut line = |name: &str, value: String| lines.row(vec![name.to_owned(), value]);
    line("processors", report.procs.to_string());
    line("time simulated, s", format!("{:.0}", report.time_s));
    line("jobs submitted", report.jobs.to_string());
    line("jobs ended", report.jobs_ended.to_string());
    line("actual load", format!("{:.4}", report.actual_load));
    line("utilisation", format!("{:.4}", report.utilisation));
    line("overhead", format!("{:.4}", report.overhead));
    if let Some(share) = report.internal_fragmentation {
        line("internal fragmentation", format!("{share:.4}"));
    }
    line("wait, mean, s", format!("{:.1}", report.mean_wait_s));
    line("wait, 50/90/99 %, s", {
        let wait = &report.wait_s;
        format!("{:.0} / {:.0} / {:.0}", wait.p50, wait.p90, wait.p99)
    });
    line("wait, greatest, s", format!("{:.0}", report.max_wait_s));
    line("bounded slowdown, mean", format!("{:.3}", report.mean_bounded_slowdown));
    line("RETR, mean", format!("{:.3}", report.mean_retr));
    line("RETR, greatest", format!("{:.1}", report.max_retr));
    let correlation = report.correlation_log2_size_retr.map(|value| format!("{value:.3}"));
    line("correlation of log2 size and RETR", optional(correlation));
    if let Some(tqlb) = report.max_tqlb {
        line("most jobs on a processor (max TQLB)", tqlb.to_string());
    }
    if report.migrations > 0 {
        line("jobs moved", report.migrations.to_string());
    }
    let mut sizes = Table::new(&[">size", ">jobs", ">ended", ">wait s", ">slowdown", ">RETR"]);
    for row in &report.sizes {
        sizes.row(vec![
            row.size.to_string(),
            row.jobs.to_string(),
            row.ended.to_string(),
            format!("{:.1}", row.mean_wait_s),
            format!("{:.3}", row.mean_bounded_slowdown),
            format!("{:.3}", row.mean_retr),
        ]);
    }
    format!("{}\n{}", lines.render(), sizes.render())
}
