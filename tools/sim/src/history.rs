//! Reader of a cluster's history: the output of `kumi ps --all --json` as a list of jobs.
//!
//! A job that ran and has ended becomes a job of the list. It is submitted at the same time, uses as many
//! processors as it had nodes, and its service is the time from its start to its end. On a cluster that
//! shares time this is more than it computed; its time alone is unknown.
//!
//! An invalid or contradictory record is left out, counted and reported.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::SimError;
use crate::job::{Job, LONGEST_S, SECOND, Source, Workload};

/// Summary of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The file.
    pub file: String,
    /// Jobs that are simulated.
    pub jobs: u64,
    /// Jobs left out because they have not ended.
    pub not_over: u64,
    /// Jobs left out because they never ran.
    pub never_ran: u64,
    /// Invalid records.
    pub malformed: u64,
    /// The first of them: place in the list, counted from 1, and the reason.
    pub malformed_records: Vec<(u64, String)>,
}

/// This many invalid records are reported one by one.
const MOST_TOLD: usize = 20;

/// The needed fields of a job in the output of `kumi ps --json`.
#[derive(Deserialize)]
struct Record {
    job: u64,
    uid: u32,
    ranks: u32,
    nodes: Vec<u32>,
    submitted_ms: u64,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
    #[serde(default)]
    layout: Vec<Part>,
    #[serde(default)]
    cpus_per_rank: u32,
    /// Bytes.
    mem_per_rank: Option<u64>,
}

/// What a job had of one node.
#[derive(Deserialize)]
struct Part {
    processors: Vec<u32>,
}

const MILLISECOND: u64 = SECOND / 1000;

/// Reads a history. Its time begins with the first submission. If `strict`, the first invalid record is an
/// error.
///
/// # Errors
/// The file cannot be read, is no history, or a record is malformed and `strict` is set.
pub fn read(path: &Path, strict: bool) -> Result<Workload, SimError> {
    let unreadable = |source| SimError::Unreadable { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    parse(path, &text, strict)
}

/// Reads a history from memory, like [`read`].
///
/// # Errors
/// It is no history, or a record is malformed and `strict` is set.
pub fn parse(path: &Path, text: &str, strict: bool) -> Result<Workload, SimError> {
    let records: Vec<Value> = serde_json::from_str(text)
        .map_err(|error| SimError::History { path: path.to_owned(), reason: error.to_string() })?;
    let mut summary = Summary { file: path.display().to_string(), ..Summary::default() };
    let mut wrong = |place: u64, reason: String| {
        if strict {
            return Err(SimError::Record { place, reason });
        }
        summary.malformed += 1;
        if summary.malformed_records.len() < MOST_TOLD {
            summary.malformed_records.push((place, reason));
        }
        Ok(())
    };
    let mut known = Vec::new();
    for (place, record) in (1..).zip(&records) {
        match checked(record) {
            Ok(record) => known.push((place, record)),
            Err(reason) => wrong(place, reason)?,
        }
    }
    let first = known.iter().map(|(_, record)| record.submitted_ms).min().unwrap_or(0);
    let (mut jobs, mut not_over, mut never_ran) = (Vec::new(), 0, 0);
    for (place, record) in known {
        match (record.started_ms, record.ended_ms) {
            (_, None) => not_over += 1,
            (None, Some(_)) => never_ran += 1,
            (Some(start), Some(end)) => match job(&record, first, start, end) {
                Ok(job) => jobs.push(job),
                Err(reason) => wrong(place, reason)?,
            },
        }
    }
    // Records found invalid only now come after the others.
    summary.malformed_records.sort_unstable_by_key(|&(place, _)| place);
    (summary.not_over, summary.never_ran) = (not_over, never_ran);
    jobs.sort_by_key(|job| (job.submit, job.number));
    summary.jobs = jobs.len() as u64;
    Ok(Workload { jobs, horizon: None, source: Source::History(summary) })
}

/// A record that does not contradict itself.
fn checked(record: &Value) -> Result<Record, String> {
    let record = Record::deserialize(record).map_err(|error| error.to_string())?;
    let number = record.job;
    let end = record.ended_ms.unwrap_or(u64::MAX);
    if record.started_ms.is_some_and(|start| start < record.submitted_ms || end < start) {
        return Err(format!("job {number} starts before it is submitted or ends before it starts"));
    }
    if record.started_ms.is_some() && record.nodes.is_empty() && record.ranks == 0 {
        return Err(format!("job {number} has neither nodes nor ranks"));
    }
    Ok(record)
}

/// A job that ran from `start` to `end`.
fn job(record: &Record, first: u64, start: u64, end: u64) -> Result<Job, String> {
    let Record { job: number, submitted_ms, .. } = *record;
    if end - first > LONGEST_S * 1000 {
        return Err(format!("job {number} ends over 31 years after the first submission"));
    }
    let mut nodes = record.nodes.clone();
    nodes.sort_unstable();
    nodes.dedup();
    let size = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    // Records of older versions do not say which processors of its nodes a job had.
    let processors = record.layout.iter().map(|part| part.processors.len()).sum::<usize>();
    let processors = u32::try_from(processors).unwrap_or(u32::MAX);
    let service = (end - start) * MILLISECOND;
    Ok(Job {
        number,
        submit: (submitted_ms - first) * MILLISECOND,
        service,
        estimate: service,
        // A job with a known number of ranks only had a node for each rank.
        size: if size == 0 { record.ranks } else { size.max(processors) },
        memory: record.mem_per_rank.unwrap_or(0) / u64::from(record.cpus_per_rank.max(1)),
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
        let workload = parse(Path::new("h"), text, true).unwrap();
        let Source::History(summary) = &workload.source else { panic!("another source") };
        assert_eq!((summary.jobs, summary.not_over, summary.never_ran), (2, 1, 1));
        let jobs: Vec<_> =
            workload.jobs.iter().map(|j| (j.number, j.submit, j.service, j.size, j.user)).collect();
        assert_eq!(jobs, [(1, 0, MILLISECOND, 1, 0), (2, SECOND, 3500 * MILLISECOND, 2, 7)]);
    }

    #[test]
    fn what_is_no_history_is_refused() {
        for text in ["", "{}", "[1"] {
            let error = parse(Path::new("h"), text, false).unwrap_err();
            assert!(matches!(error, SimError::History { .. }), "{error}");
        }
    }

    #[test]
    fn bad_records_are_counted_with_their_places_or_stop_a_strict_reader() {
        let record =
            |times: &str| format!(r#"{{"job": 1, "uid": 0, "ranks": 2, "nodes": [0], {times}}}"#);
        let right = record(r#""submitted_ms": 4000, "started_ms": 5000, "ended_ms": 6000"#);
        let wrong = [
            "1".to_owned(),
            r#"{"job": 1}"#.to_owned(),
            record(r#""submitted_ms": 4000, "started_ms": 4000, "ended_ms": 3000"#),
            record(r#""submitted_ms": 4000, "started_ms": 3000, "ended_ms": 5000"#),
            record(r#""submitted_ms": 4000, "started_ms": 4000, "ended_ms": 40000000000000"#),
            record(r#""submitted_ms": -4, "started_ms": 4000, "ended_ms": 5000"#),
            right.replace("[0]", "[]").replace(r#""ranks": 2"#, r#""ranks": 0"#),
        ];
        let text = format!("[{right}, {}]", wrong.join(", "));
        let workload = parse(Path::new("h"), &text, false).unwrap();
        let Source::History(summary) = &workload.source else { panic!("another source") };
        assert_eq!((summary.jobs, summary.malformed), (1, wrong.len() as u64));
        let places: Vec<u64> = summary.malformed_records.iter().map(|&(at, _)| at).collect();
        assert_eq!(places, (2..2 + wrong.len() as u64).collect::<Vec<_>>());
        for text in wrong {
            let text = format!("[{right}, {text}]");
            let error = parse(Path::new("h"), &text, true).unwrap_err();
            assert!(matches!(error, SimError::Record { place: 2, .. }), "{text}: {error}");
        }
    }
}
