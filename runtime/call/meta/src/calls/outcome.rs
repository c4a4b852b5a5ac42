//! Outcome of a call in words, and as the failure that its client gets.

use kumi_broker::{Failure as Why, Outcome, RejectReason};
use kumi_call_wire::state::CounterState;
use kumi_rpc::{Code, Failure};

use super::super::dispatcher::OpenCall;

/// Most attempts of a call whose reasons are kept.
const MOST_REASONS: usize = 8;

/// Why the attempts of a call failed, in the words of its client. The words are shown, and decide nothing.
#[derive(Debug, Default)]
pub struct Reasons {
    /// The last attempt that has one.
    attempt: u32,
    words: Vec<String>,
}

impl Reasons {
    /// Adds the reason of an attempt at a server. Each attempt has one.
    pub fn add(&mut self, attempt: u32, server: &str, address: &str, text: &str) {
        if attempt > self.attempt && self.words.len() < MOST_REASONS {
            self.attempt = attempt;
            self.words.push(format!("{server} ({address}): {text}"));
        }
    }
}

/// The outcome of a call.
pub struct CallEnd {
    /// One word for lists.
    pub word: &'static str,
    /// The failure for the client. `None`: it knows already.
    pub failure: Option<Failure>,
}

impl CallEnd {
    /// Why the call failed, with the server of each attempt; empty: it did not.
    pub fn reason(&self, reasons: &Reasons) -> String {
        if self.word == "done" {
            return String::new();
        }
        if !reasons.words.is_empty() {
            return reasons.words.join("; ");
        }
        match &self.failure {
            Some(failure) => failure.text.clone(),
            None => "its client has not said why".to_owned(),
        }
    }
}

/// Counts an outcome.
pub fn count(counters: &mut CounterState, end: &Outcome) {
    match end {
        Outcome::Completed => counters.done += 1,
        Outcome::Failed(..)
        | Outcome::Lost(_)
        | Outcome::Rejected(RejectReason::NoServer | RejectReason::BoundServerGone) => {
            counters.failed += 1;
        }
        Outcome::Cancelled | Outcome::Expired => counters.cancelled += 1,
        Outcome::Rejected(_) => counters.rejected += 1,
    }
}

/// Describes an outcome.
pub fn told(open: &OpenCall, end: &Outcome) -> CallEnd {
    let name = &open.routine;
    let running = open.running.as_ref();
    let server = running.map_or("", |running| running.name.as_str());
    let attempts = i64::from(open.tried());
    let fail = |word, code, text: String| CallEnd {
        word,
        failure: Some(Failure::new(code, attempts, text)),
    };
    match end {
        Outcome::Completed => CallEnd { word: "done", failure: None },
        // The client has seen the reason.
        Outcome::Failed(_, Why::Routine) => CallEnd { word: "failed", failure: None },
        Outcome::Failed(_, Why::NotBegun | Why::Unclaimed) => fail(
            "failed",
            Code::NoServer,
            format!("no server took the call of `{name}` in {attempts} attempts"),
        ),
        Outcome::Failed(_, Why::Broken) => {
            fail("broken", Code::ServerLost, broken_off(open, server, attempts))
        }
        Outcome::Lost(_) => {
            fail("server lost", Code::ServerLost, may_have_run(open, "is gone", server))
        }
        Outcome::Cancelled => {
            fail("cancelled", Code::Cancelled, format!("the call of `{name}` was cancelled"))
        }
        Outcome::Expired => fail(
            "too late",
            Code::TimedOut,
            format!("`{name}` took longer than it may and was stopped"),
        ),
        Outcome::Rejected(why) => {
            let is_gone = matches!(why, RejectReason::NoServer | RejectReason::BoundServerGone);
            let word = if is_gone { "no server" } else { "rejected" };
            CallEnd { word, failure: Some(rejected(name, why)) }
        }
    }
}

/// Why a call whose attempt broke off gets no further one. Its client knows how that ended: the routine may have crashed, or
/// the connection was lost.
fn broken_off(open: &OpenCall, server: &str, attempts: i64) -> String {
    let name = &open.routine;
    if open.request.bound.is_some() {
        return format!(
            "`{name}` may have run in part; the call has arrays at {server}, so it runs nowhere else"
        );
    }
    if open.request.idempotent {
        return format!(
            "none of {attempts} attempts to run `{name}` came to its end; call again later"
        );
    }
    format!("`{name}` may have run in part; it is not marked idempotent, so it was not run again")
}

fn may_have_run(open: &OpenCall, what: &str, server: &str) -> String {
    let name = &open.routine;
    if open.request.bound.is_some() {
        return format!(
            "{server} {what} while `{name}` ran, which may have run in part; the call has arrays there, so it runs nowhere \
             else"
        );
    }
    if open.request.idempotent {
        return format!("{server} {what} while `{name}` ran, as others before; call again later");
    }
    format!(
        "{server} {what} while `{name}` ran, which may have run in part; it is not marked \
         idempotent, so it was not run again"
    )
}

/// The failure of a call that the broker does not start.
pub fn rejected(name: &str, why: &RejectReason) -> Failure {
    let code = match why {
        RejectReason::UnknownRoutine(_) => Code::NoSuchRoutine,
        RejectReason::NoServer | RejectReason::BoundServerGone => Code::NoServer,
        RejectReason::QueueFull | RejectReason::UserQueueFull => Code::Busy,
        RejectReason::Deadline => Code::TimedOut,
    };
    Failure::new(code, 0, format!("`{name}`: {why}"))
}
