//! Logs of calls as text.

use super::progress::LogEvent;
use super::{Found, LogAnswers};
use crate::error::Error;
use crate::table::{Table, nanos, printable};
use kumi_call::log_records::{CallEnd, LoggedCall};
use serde::Serialize;
use std::fmt::Write as _;
use time::OffsetDateTime;

/// A time of UTC with milliseconds.
fn instant(at_ms: u64) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at_ms) * 1_000_000);
    // A server may say anything.
    let Ok(at) = at else { return format!("{at_ms} ms") };
    let (date, time) = (at.date(), at.time());
    format!(
        "{date}T{:02}:{:02}:{:02}.{:03}Z",
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    )
}

/// How a call is named to see its log.
fn number(found: &Found, is_metaserver: bool) -> String {
    match found.call.placed {
        Some(placed) if is_metaserver => placed.call.to_string(),
        _ if is_metaserver => format!("{}/{}", printable(&found.server), found.call.call),
        _ => found.call.call.to_string(),
    }
}

fn routine(call: &LoggedCall) -> String {
    let name = printable(&call.routine);
    if call.is_object { format!("{name} (object)") } else { name }
}

/// How a call has ended, or what it does.
fn state(call: &LoggedCall) -> String {
    match (&call.end, call.began_ms) {
        (Some(end), _) => end.outcome.to_string(),
        (None, Some(_)) => "running".to_owned(),
        (None, None) => "waiting".to_owned(),
    }
}

/// For how long a call has run, to now if it runs still.
fn ran(call: &LoggedCall, now_ms: u64) -> String {
    match (&call.end, call.began_ms) {
        (Some(CallEnd { ran_ns: Some(ran_ns), .. }), _) => nanos(*ran_ns),
        (end, Some(began_ms)) => {
            // The server's clock, in milliseconds.
            let end_ms = end.as_ref().map_or(now_ms, |end| end.at_ms);
            match end_ms.saturating_sub(began_ms) {
                0 => "<1ms".to_owned(),
                ms => nanos(ms.saturating_mul(1_000_000)),
            }
        }
        (_, None) => "-".to_owned(),
    }
}

/// A table of calls.
pub(super) fn table(answers: &LogAnswers, now_ms: u64, is_metaserver: bool) -> String {
    let mut headings = vec![">CALL", "ROUTINE", "CAME", ">RAN", "STATE", "TRACE"];
    if is_metaserver {
        headings.insert(2, "SERVER");
    }
    let mut table = Table::new(&headings);
    for found in &answers.calls {
        let call = &found.call;
        let trace = call.trace.as_ref().map_or_else(|| "-".to_owned(), |it| printable(&it.trace));
        let mut cells = vec![
            number(found, is_metaserver),
            routine(call),
            instant(call.came_ms),
            ran(call, now_ms),
            state(call),
            trace,
        ];
        if is_metaserver {
            cells.insert(2, printable(&found.server));
        }
        table.row(cells);
    }
    let mut text = table.render();
    if answers.is_cut {
        text.push_str("(there are earlier ones)\n");
    }
    text
}

/// What a call is.
pub(super) fn heading(server: &str, call: &LoggedCall, is_metaserver: bool) -> String {
    let mut text = format!("call {} of {} at {}", call.call, routine(call), printable(server));
    if let Some(placed) = call.placed.filter(|_| is_metaserver) {
        let _fits = write!(text, ", attempt {}", placed.attempt);
    }
    if !call.user.is_empty() {
        let _fits = write!(text, ", by {}", printable(&call.user));
    }
    if let Some(traced) = &call.trace {
        let (trace, span) = (printable(&traced.trace), printable(&traced.span));
        let _fits = write!(text, ", trace {trace}, span {span}");
    }
    text + "\n"
}

/// Events, each in a line. What a routine has printed stands behind `|`.
pub(super) fn events(events: &[LogEvent]) -> String {
    let mut text = String::new();
    for event in events {
        let at = event.at_ms().map_or_else(|| " ".repeat(24), instant);
        let bar = if event.kind() == "routine" { "| " } else { "" };
        // Tabs are harmless, and columns need them.
        let said: Vec<String> = event.text().split('\t').map(printable).collect();
        let _fits = writeln!(text, "{at} {bar}{}", said.join("\t"));
    }
    text
}

/// An event as JSON.
#[derive(Serialize)]
struct JsonEvent<'a> {
    server: &'a str,
    call: u64,
    at_ms: Option<u64>,
    event: &'static str,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
}

/// Events as JSON, each in a line.
pub(super) fn json_lines(server: &str, call: u64, events: &[LogEvent]) -> Result<String, Error> {
    let mut text = String::new();
    for event in events {
        let outcome = match event {
            LogEvent::Ended { end, .. } => Some(end.outcome.to_string()),
            _ => None,
        };
        let (at_ms, kind) = (event.at_ms(), event.kind());
        let line = JsonEvent { server, call, at_ms, event: kind, text: event.text(), outcome };
        text += &serde_json::to_string(&line).map_err(|error| Error::Output(error.into()))?;
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_call::log_records::{CallOutcome, LineSource, LogLine};

    fn line(text: &str, source: LineSource) -> LogEvent {
        LogEvent::Line(LogLine { at_ms: 1_700_000_000_042, source, text: text.to_owned() })
    }

    #[test]
    fn a_call_has_run_as_long_as_its_server_says() {
        let end = |ran_ns| {
            Some(CallEnd {
                at_ms: 9,
                outcome: CallOutcome::Completed,
                code: 0,
                reason: String::new(),
                ran_ns,
            })
        };
        let call =
            |began_ms, end| LoggedCall { came_ms: 1, began_ms, end, ..LoggedCall::default() };
        assert_eq!(ran(&call(Some(9), end(Some(14_472))), 50), nanos(14_472));
        assert_eq!(ran(&call(Some(9), end(None)), 50), "<1ms");
        assert_eq!(ran(&call(Some(9), None), 50), nanos(41_000_000));
        assert_eq!(ran(&call(None, None), 50), "-", "it waits");
        assert_eq!(ran(&call(None, end(None)), 50), "-", "it never began");
    }

    #[test]
    fn times_are_those_of_utc() {
        assert_eq!(instant(1_700_000_000_042), "2023-11-14T22:13:20.042Z");
        assert_eq!(instant(u64::MAX), format!("{} ms", u64::MAX));
    }

    #[test]
    fn nothing_that_a_server_says_moves_a_terminal() {
        let printed =
            [line("a\tb\x1b[2J", LineSource::Routine), line("limit\nnext", LineSource::Server)];
        let expected = "2023-11-14T22:13:20.042Z | a\tb\u{fffd}[2J\n\
                        2023-11-14T22:13:20.042Z limit\u{fffd}next\n";
        assert_eq!(events(&printed), expected);
        let call = LoggedCall {
            routine: "f\x1b".into(),
            user: "\u{202e}".into(),
            ..LoggedCall::default()
        };
        assert_eq!(
            heading("s\x07", &call, true),
            "call 0 of f\u{fffd} at s\u{fffd}, by \u{fffd}\n"
        );
        let json = json_lines("s", 1, &printed).expect("JSON");
        assert!(json.lines().count() == 2 && !json.contains('\x1b'), "{json}");
    }
}
