//! Jobs: pages of the table, one job, its output and ranks; stopping and killing.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use kumi_control::message::{
    ClientReply, ClientRequest, JobsQuery, MOST_PAGED, RankSample, Verdict,
};
use kumi_sched::JobId;
use serde::{Deserialize, Serialize};

use super::{ask, refused, request, unexpected};
use crate::routes::{App, Refused, json};
use crate::views::{self, JobView};
use crate::{Ask, Visitor};

/// Jobs of a page unless the browser says how many.
const PAGE: usize = 100;
/// Longest text to look for.
const MOST_TEXT: usize = 200;

#[derive(Deserialize)]
pub(crate) struct ListQuery {
    #[serde(default)]
    all: bool,
    #[serde(default)]
    text: String,
    before: Option<u64>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Page<'a> {
    jobs: Vec<JobView<'a>>,
    more: bool,
}

/// A page of jobs, newest first.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Query(wanted): Query<ListQuery>,
) -> Result<Response, Refused> {
    if wanted.text.len() > MOST_TEXT {
        return Err(Refused::new(StatusCode::BAD_REQUEST, "the text to look for is too long"));
    }
    let query = JobsQuery {
        live: !wanted.all,
        text: wanted.text,
        before: wanted.before.map(JobId),
        limit: wanted.limit.unwrap_or(PAGE).clamp(1, MOST_PAGED),
        ..JobsQuery::default()
    };
    let page = ask(&app, &visitor, |answer| Ask::Jobs(query, answer)).await?;
    Ok(json(&Page { jobs: views::jobs(&page.list), more: page.more }))
}

fn no_such_job(job: u64) -> Refused {
    Refused::new(StatusCode::NOT_FOUND, format!("there is no job {job}"))
}

/// One job.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(job): Path<u64>,
) -> Result<Response, Refused> {
    let found = ask(&app, &visitor, |answer| Ask::Job(JobId(job), answer)).await?;
    let list = found.ok_or_else(|| no_such_job(job))?;
    views::jobs(&list).first().map(json).ok_or_else(|| no_such_job(job))
}

#[derive(Deserialize)]
pub(crate) struct OutputQuery {
    from: Option<u64>,
}

#[derive(Serialize)]
struct PieceView {
    rank: u32,
    error: bool,
    text: String,
}

#[derive(Serialize)]
struct OutputView {
    pieces: Vec<PieceView>,
    begin: u64,
    next: u64,
}

/// What a job has written: its last part, or what came after an earlier part. Bytes that are no UTF-8 are replaced.
pub(crate) async fn output(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(job): Path<u64>,
    Query(wanted): Query<OutputQuery>,
) -> Result<Response, Refused> {
    let output = ask(&app, &visitor, |answer| Ask::Output(JobId(job), wanted.from, answer)).await?;
    let output = output.map_err(|refusal| refused(&refusal))?;
    let piece = |piece: crate::OutputPiece| PieceView {
        rank: piece.rank,
        error: piece.error,
        text: String::from_utf8_lossy(&piece.data).into_owned(),
    };
    let pieces = output.pieces.into_iter().map(piece).collect();
    Ok(json(&OutputView { pieces, begin: output.begin, next: output.next }))
}

#[derive(Serialize)]
struct RankView<'a> {
    rank: u32,
    node: u32,
    idle: bool,
    counters: std::collections::BTreeMap<&'a str, u64>,
}

/// Counters of a job's ranks.
pub(crate) async fn ranks(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(job): Path<u64>,
) -> Result<Response, Refused> {
    let samples = match request(&app, &visitor, ClientRequest::Sample).await? {
        ClientReply::Samples(samples) => samples,
        other => return Err(unexpected(&other)),
    };
    fn view(node: u32, rank: &RankSample) -> RankView<'_> {
        let counters = rank.counters.iter().map(|(name, value)| (&**name, *value)).collect();
        RankView { rank: rank.rank, node, idle: rank.idle, counters }
    }
    let all = samples.iter().flat_map(|node| node.ranks.iter().map(|rank| (node.node.0, rank)));
    let mut ranks: Vec<RankView<'_>> = all
        .filter(|(_, rank)| rank.job == JobId(job))
        .map(|(node, rank)| view(node, rank))
        .collect();
    ranks.sort_by_key(|rank| rank.rank);
    Ok(json(&ranks))
}

#[derive(Serialize)]
struct WaitsView {
    /// None if the job does not run.
    verdict: Option<&'static str>,
    /// Who waits for whom, in lines, if the job is stopped.
    report: Option<String>,
}

/// The verdict on a job, with reasons if its ranks wait for each other.
pub(crate) async fn waits(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(job): Path<u64>,
) -> Result<Response, Refused> {
    match request(&app, &visitor, ClientRequest::Explain { job: JobId(job) }).await? {
        ClientReply::Explanation { verdict, report } => Ok(json(&WaitsView {
            verdict: verdict.map(Verdict::name),
            report: report.map(|report| report.explanation.to_string()),
        })),
        other => Err(unexpected(&other)),
    }
}

/// Has the head do something to a job. It decides whether the user may.
async fn act(app: &App, visitor: &Visitor, wanted: ClientRequest) -> Result<StatusCode, Refused> {
    if !visitor.act {
        let message = "this session only looks; run `kumi web --act` for one that may stop and kill your jobs";
        return Err(Refused::new(StatusCode::FORBIDDEN, message));
    }
    match request(app, visitor, wanted).await? {
        ClientReply::Done => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(&other)),
    }
}

/// How long ranks have to end by themselves, in nanoseconds. The browser waits for the job's end, and not for ever.
const GRACE: u64 = 5_000_000_000;

/// Ends a job.
pub(crate) async fn kill(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(job): Path<u64>,
) -> Result<StatusCode, Refused> {
    act(&app, &visitor, ClientRequest::Kill { job: JobId(job), grace_ns: GRACE }).await
}

/// Sends a job's ranks a signal.
pub(crate) async fn signal(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path((job, signal)): Path<(u64, u8)>,
) -> Result<StatusCode, Refused> {
    act(&app, &visitor, ClientRequest::Signal { job: JobId(job), signal }).await
}
