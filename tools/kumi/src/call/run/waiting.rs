//! A call that does not begin: what it waits for, on standard error.

use crate::output;
use kumi_call::log_records::LoggedCall;
use kumi_call::meta::State;
use kumi_call::{CallError, LogRequest, Options, Remote, TraceContext};
use std::sync::mpsc::{self, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

/// How long a call may wait before anything is said.
const QUIET: Duration = Duration::from_secs(1);
/// How long the server may take to be reached for this.
const CONNECT: Duration = Duration::from_secs(5);

/// Says once what a call waits for, unless this is dropped before.
#[derive(Debug)]
pub struct WaitNotice {
    /// Nothing is ever sent.
    _over: Sender<()>,
}

impl WaitNotice {
    /// For a call of a routine at a server or metaserver, in this trace.
    pub fn start(
        address: &str,
        options: &Options,
        routine: &str,
        trace: TraceContext,
    ) -> WaitNotice {
        let (over, is_over) = mpsc::channel::<()>();
        let (address, routine) = (address.to_owned(), routine.to_owned());
        let connect_time = options.connect_time.min(CONNECT);
        let options = Options { connect_time, ..options.clone() };
        std::thread::spawn(move || {
            if is_over.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout)
                && let Some(reason) = reason(&address, &options, &routine, &trace)
                && is_over.try_recv() == Err(TryRecvError::Empty)
            {
                output::note(&reason);
            }
        });
        WaitNotice { _over: over }
    }
}

/// What the call waits for. `None`: it runs, or nobody can say. The call itself says what fails.
fn reason(address: &str, options: &Options, routine: &str, trace: &TraceContext) -> Option<String> {
    match Remote::connect(address, options) {
        Err(error) => no_answer(address, routine, &error),
        Ok(Remote::Grid(grid)) => at_metaserver(&grid.status().ok()?, address, routine),
        Ok(Remote::Server(server)) => {
            let logged = server.logs(&LogRequest::Trace(trace.trace_id())).ok()?;
            at_server(&logged.calls, address, routine, trace)
        }
    }
}

fn no_answer(address: &str, routine: &str, error: &CallError) -> Option<String> {
    let is_away = matches!(
        error,
        CallError::Connect { .. } | CallError::Lost(_) | CallError::NotLeading { .. }
    );
    is_away.then(|| format!("`{routine}` waits for {address} to answer: {error}"))
}

fn at_metaserver(state: &State, address: &str, routine: &str) -> Option<String> {
    let is_offered = state.routines.iter().any(|one| one.name == routine && one.servers > 0);
    if !is_offered {
        return Some(format!(
            "`{routine}` waits: no server that offers it is there now; see `kumi call status --server {address}`"
        ));
    }
    let servers = state.servers.iter().filter(|server| server.state.is_there()).count();
    let servers = if servers == 1 { "one server".to_owned() } else { format!("{servers} servers") };
    (state.waiting > 0).then(|| {
        format!(
            "`{routine}` has not ended: {} calls wait for {servers}, where {} run; see `kumi call status --server {address}`",
            state.waiting, state.running
        )
    })
}

fn at_server(
    calls: &[LoggedCall],
    address: &str,
    routine: &str,
    place: &TraceContext,
) -> Option<String> {
    let span = place.span().to_string();
    let is_here = |call: &&LoggedCall| {
        let parent = call.trace.as_ref().map(|trace| &trace.parent);
        call.routine == routine && call.end.is_none() && parent == Some(&span)
    };
    let open: Vec<&LoggedCall> = calls.iter().filter(is_here).collect();
    // Several may have been given one place in a trace: while one of them runs, it may be this one.
    let waits = !open.is_empty() && open.iter().all(|call| call.began_ms.is_none());
    waits.then(|| format!("`{routine}` waits for a free slot; see `kumi call logs {address}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_call::log_records::TracedCall;

    fn state(servers: usize, waiting: usize) -> State {
        let json = serde_json::json!({
            "name": "m", "version": "1", "policy": "least-load", "uptime": 1.0, "connections": 1,
            "servers": [], "users": [], "waiting": waiting, "running": 2, "paths": [], "recent": [],
            "routines": [{"name": "f", "about": "", "servers": servers, "idempotent": false}],
            "counters": {"placed": 0, "retried": 0, "done": 0, "failed": 0, "rejected": 0, "cancelled": 0, "hostile": 0,
                "decisions": 0, "decision_mean": 0.0, "decision_longest": 0.0},
        });
        serde_json::from_value(json).expect("a state")
    }

    #[test]
    fn a_metaserver_says_whether_a_call_waits_for_servers_or_in_turn() {
        assert_eq!(at_metaserver(&state(1, 0), "m:1", "f"), None, "it runs");
        let of = |servers, waiting| at_metaserver(&state(servers, waiting), "m:1", "f");
        assert!(of(0, 1).is_some_and(|text| text.contains("no server that offers it")));
        assert!(of(1, 3).is_some_and(|text| text.contains("3 calls wait")));
    }

    #[test]
    fn a_server_says_whether_a_call_waits_for_a_slot() {
        let place = |text: &str| TraceContext::parse(text.as_bytes()).expect("a traceparent");
        let here = place("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
        let elsewhere = place("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00");
        let call = |place: &TraceContext, routine: &str, began_ms| LoggedCall {
            routine: routine.to_owned(),
            began_ms,
            trace: Some(TracedCall { parent: place.span().to_string(), ..TracedCall::default() }),
            ..LoggedCall::default()
        };
        let said = |calls: &[LoggedCall]| at_server(calls, "h:1", "f", &here);
        assert_eq!(said(&[call(&here, "f", Some(1)), call(&here, "g", None)]), None);
        let waits = said(&[call(&here, "f", None), call(&elsewhere, "f", Some(1))]);
        assert!(waits.is_some_and(|text| text.contains("`f` waits for a free slot")));
        assert_eq!(said(&[call(&elsewhere, "f", None)]), None, "it is another's");
        let both = [call(&here, "f", Some(1)), call(&here, "f", None)];
        assert_eq!(said(&both), None, "it may be the one that runs");
    }

    #[test]
    fn only_what_may_come_back_is_waited_for() {
        assert!(no_answer("h:1", "f", &CallError::Lost("x".to_owned())).is_some());
        assert_eq!(no_answer("h:1", "f", &CallError::NotPermitted("x".to_owned())), None);
    }
}
