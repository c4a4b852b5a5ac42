//! Tables of jobs and of the time line as comma-separated values.

use std::fmt::Write as _;

use crate::report::{EndedJob, seconds};
use crate::sweep::{Case, CaseResult};

/// First line of a table of jobs.
pub const JOBS_HEADER: &str = "policy,load,seed,job,size,user,submit_s,start_s,end_s,service_s,\
                               estimate_s,wait_s,response_s,bounded_slowdown,retr\n";

/// First line of a time line.
pub const TIMELINE_HEADER: &str =
    "policy,load,seed,time_s,utilisation,placed,queued,max_tqlb,min_tqlb\n";

/// Columns that distinguish the cases of a sweep. Policies' names have no commas.
fn key(case: &Case) -> String {
    let load = case.load.map(|load| load.to_string()).unwrap_or_default();
    let seed = case.seed.map(|seed| seed.to_string()).unwrap_or_default();
    format!("{},{load},{seed}", case.policy)
}

fn cell<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// A line for each submitted job; values that never came about are empty.
pub fn jobs(case: &Case, CaseResult { workload, outcome, .. }: &CaseResult) -> String {
    let key = key(case);
    let mut text = String::new();
    let arrived = usize::try_from(outcome.arrived).unwrap_or(usize::MAX);
    for (index, job) in workload.jobs.iter().enumerate().take(arrived) {
        let ended = EndedJob::of(job, outcome, index);
        let line = writeln!(
            text,
            "{key},{},{},{},{},{},{},{},{},{},{},{},{}",
            job.number,
            job.size,
            job.user,
            seconds(job.submit),
            cell(outcome.start(index).map(seconds)),
            cell(outcome.end(index).map(seconds)),
            seconds(job.service),
            seconds(job.estimate),
            cell(ended.map(|ended| ended.wait_s)),
            cell(ended.map(|ended| ended.response_s)),
            cell(ended.map(|ended| ended.bounded_slowdown)),
            cell(ended.and_then(|ended| ended.retr)),
        );
        debug_assert!(line.is_ok(), "writing to a string cannot fail");
    }
    text
}

/// A line for each sample.
pub fn timeline(case: &Case, CaseResult { outcome, .. }: &CaseResult) -> String {
    let key = key(case);
    let mut text = String::new();
    for sample in &outcome.samples {
        let line = writeln!(
            text,
            "{key},{},{},{},{},{},{}",
            seconds(sample.at),
            sample.utilisation,
            sample.placed,
            sample.queued,
            cell(sample.max_tqlb),
            cell(sample.min_tqlb),
        );
        debug_assert!(line.is_ok(), "writing to a string cannot fail");
    }
    text
}
