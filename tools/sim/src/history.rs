//! Lists of jobs taken from a cluster's history: what `kumi ps --all --json` prints.
//!
//! A job that ran and is over becomes a job of the list: submitted when it was, on as many
//! processors as it had nodes, with the time from its start to its end as service. On a cluster
//! that shares time this is more than it computed; what it would have needed alone is not known.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::SimError;
use crate::job::{Job, LONGEST_S, SECOND, Source, Workload};

/// What was found in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The file.
    pub file: String,
    /// Jobs that are simulated.
    pub jobs: u64,
    /// Jobs left out because they are not over.
    pub not_over: u64,
    /// Jobs left out because they never ran.
    pub never_ran: u64,
}

/// A job as `kumi ps --json` shows it; it shows more than is needed here.
#[derive(Deserialize)]
struct Record {
    job: u64,
    uid: u32,
    ranks: u32,
    nodes: Vec<u32>,
    submitted_ms: u64,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
}

const MILLISECOND: u64 = SECOND / 1000;

/// Reads a history. Its time begins with the first submission.
///
/// # Errors
/// The file cannot be read, or is no history.
pub fn read(path: &Path) -> Result<Workload, SimError> {
    let unreadable = |source| SimError::Unreadable { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    parse(path, &text)
}

/// A history that is in memory, as [`read`].
///
/// # Errors
/// It is no history.
pub fn parse(path: &Path, text: &str) -> Result<Workload, SimError> {
    let wrong = |reason: String| SimError::History { path: path.to_owned(), reason };
    let records: Vec<Record> =
        serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let mut summary = Summary { file: path.display().to_string(), ..Summary::default() };
    let first = records.iter().map(|record| record.submitted_ms).min().unwrap_or(0);
    let mut jobs = Vec::new();
    for record in &records {
        match (record.started_ms, record.ended_ms) {
            (_, None) => summary.not_over += 1,
            (None, Some(_)) => summary.never_ran += 1,
            (Some(start), Some(end)) => jobs.push(job(record, first, start, end).map_err(wrong)?),
        }
    }
    jobs.sort_by_key(|job| (job.submit, job.number));
    summary.jobs = jobs.len() as u64;
    Ok(Workload { jobs, horizon: None, source: Source::History(summary) })
}

fn job(record: &Record, first: u64, start: u64, end: u64) -> Result<Job, String> {
    let Record { job: number, submitted_ms, .. } = *record;
    if start < submitted_ms || end < start {
        return Err(format!("job {number} starts before it is submitted or ends before it starts"));
    }
    if end - first > LONGEST_S * 1000 {
        return Err(format!("job {number} ends over 31 years after the first submission"));
    }
    let mut nodes = record.nodes.clone();
    nodes.sort_unstable();
    nodes.dedup();
    let size = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let service = (end - start) * MILLISECOND;
    Ok(Job {
        number,
        submit: (submitted_ms - first) * MILLISECOND,
        service,
        estimate: service,
        // A job of which only the number of ranks is known had a node for each.
        size: if size == 0 { record.ranks } else { size },
        user: record.uid,
        priority: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_and_is_over_becomes_a_job() {
        let text = r#"[
            {"job": 2, "uid": 7, "ranks": 8, "nodes": [3, 1, 3], "submitted_ms": 5000,
             "started_ms": 6000, "ended_ms": 9500, "name": "cg", "state": "ended"},
            {"job": 1, "uid": 0, "ranks": 2, "nodes": [0], "submitted_ms": 4000,
             "started_ms": 4000, "ended_ms": 4001},
            {"job": 3, "uid": 0, "ranks": 2, "nodes": [], "submitted_ms": 4000,
             "started_ms": null, "ended_ms": 4001},
            {"job": 4, "uid": 0, "ranks": 2, "nodes": [0], "submitted_ms": 4000,
             "started_ms": 4100, "ended_ms": null}]"#;
        let workload = parse(Path::new("h"), text).unwrap();
        let Source::History(summary) = &workload.source else { panic!("another source") };
        assert_eq!((summary.jobs, summary.not_over, summary.never_ran), (2, 1, 1));
        let jobs: Vec<_> =
            workload.jobs.iter().map(|j| (j.number, j.submit, j.service, j.size, j.user)).collect();
        assert_eq!(jobs, [(1, 0, MILLISECOND, 1, 0), (2, SECOND, 3500 * MILLISECOND, 2, 7)]);
    }

    #[test]
    fn what_is_no_history_is_refused() {
        let backwards = r#"[{"job": 1, "uid": 0, "ranks": 2, "nodes": [0], "submitted_ms": 4000,
             "started_ms": 4000, "ended_ms": 3000}]"#;
        for text in ["", "{}", "[1]", r#"[{"job": 1}]"#, backwards] {
            let error = parse(Path::new("h"), text).unwrap_err();
            assert!(matches!(error, SimError::History { .. }), "{error}");
        }
    }
}
