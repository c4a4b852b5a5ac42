//! What the server's log says of calls and of their processes.

use kumi_call_wire::context::shown;
use kumi_rpc::{Code, Failure};
use nix::sys::signal::Signal;

use super::super::logs::CallLogHandle;
use super::group::ReachedLimits;
use super::output::printable;
use super::{ReadyCall, Worker};

/// The user, whom the log leaves out where users are not distinguished.
pub(super) fn known(user: &str) -> Option<&str> {
    Some(user).filter(|user| !user.is_empty())
}

/// A signal with its name, as `11 (SIGSEGV)`.
pub(super) fn signal(number: i64) -> String {
    let name = i32::try_from(number).ok().and_then(|number| Signal::try_from(number).ok());
    name.map_or_else(|| number.to_string(), |name| format!("{number} ({name})"))
}

/// Logs that a call was ended: by a crash, by a limit, or by somebody. The end of a call in a trace is always logged.
pub(super) fn log_end(job: &ReadyCall, outcome: &Result<(u64, u64), Failure>) {
    let (call, routine) = (job.id, job.offered.interface.name.as_str());
    let (user, [trace, span, parent]) = (known(&job.owner.user), shown(job.span.as_ref()));
    let failure = match outcome {
        Ok((waited_ns, ran_ns)) if job.span.is_some() => {
            return tracing::info!(
                call, routine, user, trace, span, parent, waited_ns, ran_ns, "has run"
            );
        }
        Ok(_) => return,
        Err(failure) => failure,
    };
    // A routine may have written it.
    let text = printable(failure.text.as_bytes());
    match failure.code {
        // Clients cancel, and metaservers move calls, as they like.
        Code::Cancelled | Code::NoTicket => {
            tracing::info!(call, routine, user, trace, span, parent, "{text}");
        }
        // A client that asks again and again must not fill the log.
        Code::Busy => tracing::debug!(call, routine, user, trace, span, parent, "{text}"),
        _ => tracing::warn!(call, routine, user, trace, span, parent, "{text}"),
    }
}

/// Logs that a process has ended between calls: somebody has killed it, or something of its routine goes on and crashed.
pub(super) fn log_idle_end(worker: &Worker, detail: i64) {
    let (routine, user) = (worker.offered.interface.name.as_str(), known(&worker.owner.user));
    match detail {
        ..0 => {
            let code = -1 - detail;
            tracing::warn!(routine, user, "an idle process ended with exit code {code}");
        }
        number => {
            let signal = signal(number);
            tracing::warn!(routine, user, "an idle process was killed by signal {signal}");
        }
    }
}

/// Logs which limits of its control groups a process has reached since this was last done, and returns them.
/// `call`: the log of the call that has reached them.
pub(super) fn note_reached_limits(
    worker: &Worker,
    call: Option<&CallLogHandle>,
) -> Option<ReachedLimits> {
    let (routine, user) = (worker.offered.interface.name.as_str(), known(&worker.owner.user));
    let reached = worker.process.borrow().reached_limits();
    if let Some(limits) = &reached {
        let text = format!("a process has reached a limit: {limits}");
        tracing::warn!(routine, user, "{text}");
        if let Some(log) = call {
            log.say(&text);
        }
    }
    reached
}

/// Logs that a process, or its guard, does not end.
pub(super) fn log_left(worker: &Worker) {
    let (routine, user) = (worker.offered.interface.name.as_str(), known(&worker.owner.user));
    let pid = worker.process.borrow().pid().as_raw();
    tracing::error!(
        routine,
        user,
        pid,
        "a process does not end although it was killed; processes that its routine started may go on"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names() {
        assert_eq!(signal(11), "11 (SIGSEGV)");
        assert_eq!((signal(63), signal(i64::MAX)), ("63".to_owned(), i64::MAX.to_string()));
    }

    #[test]
    fn a_user_that_nobody_knows_is_not_logged() {
        assert_eq!((known(""), known("ada")), (None, Some("ada")));
    }
}
