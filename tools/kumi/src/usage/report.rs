//! What jobs have used, for people and for programs.

use super::period;
use crate::table::{self, Table};
use kumi_control::message::{JobUsage, UsageBy, UsageQuery, UsageRow, UsageSums};
use serde::Serialize;

/// Everything in the form of `--json`.
#[derive(Serialize)]
pub struct UsageView<'a> {
    by: &'static str,
    since_ms: u64,
    /// Null if the period has no end.
    until_ms: Option<u64>,
    rows: Vec<RowView<'a>>,
}

/// One row in the form of `--json`.
#[derive(Serialize)]
struct RowView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Null for users whom one may not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    #[serde(flatten)]
    job: Option<JobView<'a>>,
    jobs_started: u64,
    jobs_ended: u64,
    jobs_failed: u64,
    jobs_running: u64,
    jobs_unmeasured: u64,
    processor_s_held: f64,
    processor_s_turns: f64,
    processor_s_used: f64,
    memory_peak: Option<u64>,
    wait_s: f64,
}

/// What only a row of a job has.
#[derive(Serialize)]
struct JobView<'a> {
    job: u64,
    name: &'a str,
    ranks: u32,
    nodes: u32,
    processors: u32,
    submitted_ms: u64,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
    /// Null while it is not over.
    outcome: Option<&'a str>,
}

/// The rows as data.
pub fn view<'a>(rows: &'a [UsageRow], query: &UsageQuery) -> UsageView<'a> {
    let by = match query.by {
        UsageBy::User => "user",
        UsageBy::Job => "job",
        UsageBy::Day => "day",
    };
    let rows = in_order(rows, query.by).into_iter().map(|row| row_view(row, query.by)).collect();
    let until_ms = (query.until_ms < u64::MAX).then_some(query.until_ms);
    UsageView { by, since_ms: query.since_ms, until_ms, rows }
}

/// Who has used most comes first; jobs and days follow one another.
fn in_order(rows: &[UsageRow], by: UsageBy) -> Vec<&UsageRow> {
    let mut rows: Vec<&UsageRow> = rows.iter().collect();
    if by == UsageBy::User {
        rows.sort_by_key(|row| std::cmp::Reverse(row.sums.held_us));
    }
    rows
}

#[allow(clippy::cast_precision_loss)]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn row_view(row: &UsageRow, by: UsageBy) -> RowView<'_> {
    let UsageSums { started, ended, failed, running, unmeasured, .. } = row.sums;
    let known = uid(row) != u32::MAX;
    let of_user = by != UsageBy::Day;
    RowView {
        user: of_user.then(|| user(row)),
        uid: of_user.then(|| known.then(|| uid(row))),
        day: (by == UsageBy::Day).then(|| period::date(row.key)),
        job: row.job.as_ref().map(job_view),
        jobs_started: started,
        jobs_ended: ended,
        jobs_failed: failed,
        jobs_running: running,
        jobs_unmeasured: unmeasured,
        processor_s_held: seconds(row.sums.held_us),
        processor_s_turns: seconds(row.sums.turns_us),
        processor_s_used: seconds(row.sums.used_us),
        memory_peak: (row.sums.memory > 0).then_some(row.sums.memory),
        wait_s: seconds(row.sums.waited_ms.saturating_mul(1_000)),
    }
}

fn job_view(job: &JobUsage) -> JobView<'_> {
    JobView {
        job: job.job.0,
        name: &job.name,
        ranks: job.ranks,
        nodes: job.nodes,
        processors: job.used.processors,
        submitted_ms: job.submitted_ms,
        started_ms: job.started_ms,
        ended_ms: job.ended_ms,
        outcome: (!job.outcome.is_empty()).then_some(&job.outcome),
    }
}

/// The number of the user of a row.
fn uid(row: &UsageRow) -> u32 {
    match &row.job {
        Some(job) => job.uid,
        None => u32::try_from(row.key).unwrap_or(u32::MAX),
    }
}

/// The name of the user of a row, by the head if it knows one.
fn user(row: &UsageRow) -> String {
    let named = row.user.as_deref().filter(|name| !name.is_empty());
    named.map_or_else(|| crate::output::user_name(uid(row)), table::printable)
}

/// The rows as a table.
pub fn render(rows: &[UsageRow], by: UsageBy) -> String {
    let first: &[&str] = match by {
        UsageBy::User => &["USER", ">STARTED", ">ENDED", ">FAILED", ">RUNNING"],
        UsageBy::Job => &[">JOB", "USER", "NAME", ">CPUS", "OUTCOME"],
        UsageBy::Day => &["DAY", ">STARTED", ">ENDED", ">FAILED", ">RUNNING"],
    };
    let sums = [">HELD", ">TURNS", ">USED", ">MEMORY", ">MEAN WAIT"];
    let mut table = Table::new(&[first, &sums].concat());
    let mut unmeasured = 0;
    for row in in_order(rows, by) {
        let mut cells = match (&row.job, by) {
            (Some(job), _) => job_cells(row, job),
            (None, UsageBy::Day) => count_cells(period::date(row.key), &row.sums),
            (None, _) => count_cells(user(row), &row.sums),
        };
        cells.extend(sum_cells(&row.sums));
        unmeasured += row.sums.unmeasured;
        table.row(cells);
    }
    let mut text = table.render();
    if unmeasured > 0 {
        text += &format!(
            "Of {unmeasured} jobs not all nodes have measured; they had and used more than this says.\n"
        );
    }
    text
}

fn count_cells(first: String, sums: &UsageSums) -> Vec<String> {
    let counts = [sums.started, sums.ended, sums.failed, sums.running];
    std::iter::once(first).chain(counts.map(|count| count.to_string())).collect()
}

fn job_cells(row: &UsageRow, job: &JobUsage) -> Vec<String> {
    let outcome = match (&*job.outcome, job.started_ms) {
        ("", None) => "queued".to_owned(),
        ("", Some(_)) => "running".to_owned(),
        (outcome, _) => outcome.replace('_', " "),
    };
    let name = table::shortened(&job.name, 24);
    vec![job.job.to_string(), user(row), name, job.used.processors.to_string(), outcome]
}

fn sum_cells(sums: &UsageSums) -> Vec<String> {
    let time = |micros: u64| table::elapsed(micros / 1_000);
    let memory = if sums.memory > 0 { table::bytes(sums.memory) } else { "-".to_owned() };
    let wait = sums.waited_ms.checked_div(sums.started);
    let wait = wait.map_or_else(|| "-".to_owned(), table::elapsed);
    vec![time(sums.held_us), time(sums.turns_us), time(sums.used_us), memory, wait]
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::JobUse;
    use kumi_sched::JobId;
    use serde_json::{Value, json};

    const SUMS: UsageSums = UsageSums {
        ended: 3,
        failed: 1,
        running: 1,
        unmeasured: 0,
        held_us: 7_200_000_000,
        turns_us: 3_600_000_000,
        used_us: 61_000_000,
        memory: 3 << 30,
        started: 4,
        waited_ms: 10_000,
    };

    fn row(key: u64, name: Option<&str>, sums: UsageSums) -> UsageRow {
        UsageRow { key, user: name.map(str::to_owned), job: None, sums }
    }

    #[test]
    fn the_table_of_users() {
        let few = UsageSums { ended: 1, held_us: 500_000, ..UsageSums::default() };
        let rows = [row(7, Some("ben"), few), row(8, Some("ada"), SUMS)];
        let expected = "\
USER  STARTED  ENDED  FAILED  RUNNING   HELD  TURNS   USED  MEMORY  MEAN WAIT
ada         4      3       1        1  2h00m  1h00m  1m01s   3 GiB       2.5s
ben         0      1       0        0   0.5s   0.0s   0.0s       -          -
";
        assert_eq!(render(&rows, UsageBy::User), expected);
        let query = UsageQuery::default();
        let value = serde_json::to_value(view(&rows, &query)).unwrap();
        let first = &value["rows"][0];
        assert_eq!((&first["user"], &first["uid"]), (&json!("ada"), &json!(8)));
        assert_eq!(first["processor_s_held"], 7_200.0);
        assert_eq!((&first["wait_s"], &first["jobs_failed"]), (&json!(10.0), &json!(1)));
        assert_eq!(value["rows"][1]["memory_peak"], Value::Null);
        assert!(first.get("job").is_none() && first.get("day").is_none());
    }

    #[test]
    fn what_is_not_measured_is_said() {
        let some = UsageSums { unmeasured: 2, ..SUMS };
        let text = render(&[row(0, None, some), row(1, None, SUMS)], UsageBy::Day);
        assert!(text.contains("1970-01-02") && text.ends_with("Of 2 jobs not all nodes have measured; they had and used more than this says.\n"), "{text}");
    }

    #[test]
    fn jobs_and_users_whom_one_may_not_know() {
        let job = JobUsage {
            job: JobId(5),
            uid: u32::MAX,
            user: String::new(),
            name: "-".into(),
            ranks: 4,
            nodes: 2,
            submitted_ms: 1,
            started_ms: Some(2),
            ended_ms: None,
            used: JobUse { processors: 4, ..JobUse::default() },
            outcome: String::new(),
        };
        let rows = [UsageRow { job: Some(job), ..row(5, Some(""), SUMS) }];
        let text = render(&rows, UsageBy::Job);
        assert!(
            text.lines().nth(1).unwrap().starts_with("  5  -     -        4  running"),
            "{text}"
        );
        let query = UsageQuery { by: UsageBy::Job, ..UsageQuery::default() };
        let value = serde_json::to_value(view(&rows, &query)).unwrap();
        let row = &value["rows"][0];
        assert_eq!(
            (&row["uid"], &row["outcome"], &row["user"]),
            (&Value::Null, &Value::Null, &json!("-"))
        );
        assert_eq!((&row["job"], &row["processors"]), (&json!(5), &json!(4)));
    }
}
