//! History: the cluster over a stretch of time, or the ranks of a job.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kumi_control::message::JobList;
use kumi_monitor::ring::LEVELS;
use kumi_monitor::{Row, UNKNOWN};
use kumi_sched::JobId;
use serde::{Deserialize, Serialize};

use super::ask;
use crate::picture::hex;
use crate::routes::{App, Refused, json};
use crate::{Ask, Visitor};

#[derive(Deserialize)]
pub(crate) struct HistoryQuery {
    /// Seconds back from now.
    #[serde(default)]
    span: u64,
    /// Of this job only.
    job: Option<u64>,
}

/// A row of the cluster.
#[derive(Serialize)]
struct ClusterRow {
    at_s: u64,
    /// Mean use of the nodes' processors, per cent.
    busy: Option<u64>,
    memory: Option<u64>,
    /// Mean load of all ranks, per cent.
    load: Option<u64>,
    jobs: usize,
    ranks: u32,
    /// Mean time that switches took, hundredths of a per cent.
    switching: u64,
    network_kib: u64,
}

/// A row of a job.
#[derive(Serialize)]
struct JobRowView {
    at_s: u64,
    ranks: u32,
    ranks_per_load: u32,
    loads: String,
}

#[derive(Serialize)]
struct History<T> {
    /// Seconds of a row.
    seconds: u64,
    rows: Vec<T>,
}

fn mean(values: impl Iterator<Item = u64>) -> Option<u64> {
    let (sum, count) = values.fold((0, 0), |(sum, count), value| (sum + value, count + 1));
    (sum + count / 2).checked_div(count)
}

fn cluster_row(row: &Row) -> ClusterRow {
    let loads = row.jobs.iter().flat_map(|job| &job.loads).filter(|&&load| load != UNKNOWN);
    let known = |value: u8| (value != UNKNOWN).then_some(u64::from(value));
    ClusterRow {
        at_s: row.at_s,
        busy: mean(row.nodes.iter().filter_map(|node| known(node.busy))),
        memory: mean(row.nodes.iter().filter_map(|node| known(node.memory))),
        load: mean(loads.map(|&load| u64::from(load))),
        jobs: row.jobs.len(),
        ranks: row.jobs.iter().fold(0, |sum, job| sum.saturating_add(job.ranks)),
        switching: mean(row.nodes.iter().map(|node| u64::from(node.switching))).unwrap_or(0),
        network_kib: row.nodes.iter().map(|node| u64::from(node.network_kib)).sum(),
    }
}

fn job_row(row: &Row, id: u64) -> Option<JobRowView> {
    let job = row.jobs.iter().find(|job| job.job == id)?;
    let (ranks, ranks_per_load) = (job.ranks, job.ranks_per_load());
    Some(JobRowView { at_s: row.at_s, ranks, ranks_per_load, loads: hex(&job.loads) })
}

/// The rows of a span, at the finest resolution that reaches so far.
pub(crate) async fn rows(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Query(query): Query<HistoryQuery>,
) -> Result<Response, Refused> {
    let reader = app.shared.history.clone().ok_or_else(|| {
        let message = "the head keeps no history; its log says why";
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, message)
    })?;
    if let Some(job) = query.job {
        // Who does not see the job does not see its history.
        let seen: Option<JobList> =
            ask(&app, &visitor, |answer| Ask::Job(JobId(job), answer)).await?;
        if seen.is_none() {
            let message = format!("there is no job {job}");
            return Err(Refused::new(StatusCode::NOT_FOUND, message));
        }
    }
    let level = LEVELS.iter().position(|level| level.reach() >= query.span);
    let level = level.unwrap_or(LEVELS.len() - 1);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now_s = now.map_or(0, |since| since.as_secs());
    let since = now_s.saturating_sub(query.span);
    let seconds = LEVELS[level].seconds;
    let answer = tokio::task::spawn_blocking(move || {
        let recent = |row: &Row| row.at_s >= since;
        match query.job {
            None => {
                let keep = |row: Row| recent(&row).then(|| cluster_row(&row));
                let rows = reader.read(level, now_s, keep)?;
                Ok(json(&History { seconds, rows }))
            }
            Some(id) => {
                let keep = |row: Row| recent(&row).then(|| job_row(&row, id)).flatten();
                let rows = reader.read(level, now_s, keep)?;
                Ok(json(&History { seconds, rows }))
            }
        }
    });
    match answer.await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err::<_, std::io::Error>(error)) => {
            let message = format!("the history cannot be read: {error}");
            Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, message))
        }
        Err(error) => {
            tracing::error!(%error, "history was not read");
            Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response())
        }
    }
}
