//! `kumi debug waits`: the verdict on a job, with reasons.

use super::WaitsArgs;
use crate::context::Context;
use crate::error::Error;
use crate::{output, table};
use kumi_control::message::{ClientReply, ClientRequest, DeadlockReport, Verdict};
use kumi_sched::JobId;
use kumi_verdict::{Cause, Explanation, RankStanding, Wait};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// A verdict in the form of `--json`.
#[derive(Serialize)]
struct VerdictView {
    job: u64,
    /// None if the job does not run.
    verdict: Option<&'static str>,
    ends_after_s: Option<f64>,
    ranks: Vec<RankView>,
    causes: Vec<CauseView>,
}

/// A rank of a stopped job.
#[derive(Serialize)]
struct RankView {
    rank: u32,
    over: bool,
    waits: Vec<WaitView>,
    holds_locks: Vec<u64>,
}

/// A wait of a thread.
#[derive(Serialize)]
struct WaitView {
    kind: String,
    call: String,
    peer: Option<u32>,
    what: Option<u64>,
    further: Option<u64>,
    text: String,
}

/// What has no way out.
#[derive(Serialize)]
struct CauseView {
    kind: &'static str,
    ranks: Vec<u32>,
    over: Vec<u32>,
    text: String,
}

/// Runs the command.
pub async fn run(context: &Context, args: &WaitsArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let reply = client.ask(&ClientRequest::Explain { job: JobId(args.job) }).await?;
    let ClientReply::Explanation { verdict, report } = reply else {
        return Err(Error::unexpected(&reply));
    };
    if args.json {
        return output::json(&view(args.job, verdict, report.as_deref()));
    }
    output::text(&text(args.job, verdict, report.as_deref()))
}

fn text(job: u64, verdict: Option<Verdict>, report: Option<&DeadlockReport>) -> String {
    match (verdict, report) {
        (_, Some(report)) => deadlock_text(&format!("job {job}"), report),
        (None, None) => format!("job {job} does not run\n"),
        (Some(verdict), None) => {
            let why = match verdict {
                Verdict::Running => "it has something to do, or that is not known",
                Verdict::Idle => "it waits for its user, a timer or a device",
                Verdict::Stopped => "its ranks wait for each other",
            };
            format!("job {job} is {}: {why}\n", verdict.name())
        }
    }
}

/// The report on a stopped job, in lines.
pub fn deadlock_text(job: &str, report: &DeadlockReport) -> String {
    let Explanation { ranks, waiting, .. } = report.explanation;
    let mut text = format!(
        "{job} is stopped: {waiting} of its {ranks} ranks wait for each other for ever, and the others are over\n"
    );
    if waiting == ranks {
        text = format!("{job} is stopped: all its ranks wait for each other for ever\n");
    }
    for line in report.explanation.to_string().lines() {
        let _infallible = writeln!(text, "{}", table::printable(line));
    }
    if let Some(left) = report.ends_after {
        let left = Duration::from_nanos(left);
        let _infallible =
            writeln!(text, "  it is ended in {:.1} s (--deadlock-grace)", left.as_secs_f64());
    }
    text
}

fn view(job: u64, verdict: Option<Verdict>, report: Option<&DeadlockReport>) -> VerdictView {
    let explanation = report.map(|report| &report.explanation);
    let ranks = explanation.map_or(&[][..], |found| &found.listed);
    let causes = explanation.map_or(&[][..], |found| &found.causes);
    VerdictView {
        job,
        verdict: verdict.map(Verdict::name),
        ends_after_s: report
            .and_then(|report| report.ends_after)
            .map(|left| Duration::from_nanos(left).as_secs_f64()),
        ranks: ranks.iter().map(rank_view).collect(),
        causes: causes.iter().map(cause_view).collect(),
    }
}

fn rank_view(standing: &RankStanding) -> RankView {
    let RankStanding { rank, over, waits, held } = standing;
    let waits = waits.iter().map(wait_view).collect();
    RankView { rank: *rank, over: *over, waits, holds_locks: held.clone() }
}

fn wait_view(wait: &Wait) -> WaitView {
    WaitView {
        kind: format!("{:?}", wait.kind),
        call: wait.call.as_str().to_owned(),
        peer: wait.peer,
        what: wait.what,
        further: wait.further,
        text: wait.to_string(),
    }
}

fn cause_view(cause: &Cause) -> CauseView {
    let text = cause.to_string();
    match cause {
        Cause::LeftTooEarly { left, waiting } => {
            CauseView { kind: "left_too_early", ranks: waiting.clone(), over: vec![*left], text }
        }
        Cause::Cycle(ranks) => {
            CauseView { kind: "cycle", ranks: ranks.clone(), over: Vec::new(), text }
        }
        Cause::Anybody { waiting, over } => {
            CauseView { kind: "anybody", ranks: waiting.clone(), over: over.clone(), text }
        }
    }
}
