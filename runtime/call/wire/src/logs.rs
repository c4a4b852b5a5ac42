//! Logs of calls as JSON: what a server answers to a client that asks for them, and which servers a metaserver names.

use std::fmt;

use kumi_rpc::printable;
use serde::{Deserialize, Serialize};

/// Calls of one user that a server knows of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogAnswer {
    /// The calls, latest first.
    pub calls: Vec<LoggedCall>,
    /// How many calls of this user the server has had and keeps no more.
    #[serde(default)]
    pub dropped: u64,
    /// Whether more calls would have fitted the question than the answer.
    #[serde(default)]
    pub is_cut: bool,
    /// How long the server has run: milliseconds of a clock that is never set. `None`: an earlier version. A server that says
    /// less than before was started again meanwhile.
    #[serde(default)]
    pub uptime_ms: Option<u64>,
}

/// A call, or the life of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedCall {
    /// Its number at the server.
    pub call: u64,
    /// Its number at the metaserver that has placed it, and which attempt this is.
    #[serde(default)]
    pub placed: Option<PlacedCall>,
    /// The routine, or the class of an object.
    pub routine: String,
    /// Whether it is an object.
    #[serde(default)]
    pub is_object: bool,
    /// The user; empty: users are not distinguished.
    #[serde(default)]
    pub user: String,
    /// Its place in a trace, if it is in one.
    #[serde(default)]
    pub trace: Option<TracedCall>,
    /// When it came, began, and ended: milliseconds since the epoch by the server's clock.
    pub came_ms: u64,
    /// See `came_ms`. `None`: it waits for its arguments or a slot, or never ran.
    #[serde(default)]
    pub began_ms: Option<u64>,
    /// See `came_ms`. `None`: it goes on.
    #[serde(default)]
    pub end: Option<CallEnd>,
    /// Some of its lines, in order.
    #[serde(default)]
    pub lines: Vec<LogLine>,
    /// The number of the first of `lines`. The first line of a call is 0.
    #[serde(default)]
    pub first: u64,
    /// How many lines it has had so far.
    #[serde(default)]
    pub count: u64,
    /// How many of them, from the first on, the server keeps no more.
    #[serde(default)]
    pub dropped: u64,
}

/// An answer of a server that does not fit the question for the lines of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it was asked for the lines from {asked} on, and has sent {lines} from {first} on of {count}"
)]
pub struct WrongLines {
    /// The line that was asked for.
    pub asked: u64,
    /// The first line of the answer.
    pub first: u64,
    /// How many lines the answer has.
    pub lines: usize,
    /// How many lines the call has, as the answer says.
    pub count: u64,
}

impl LoggedCall {
    /// The line to ask for next, after this answer to a question for the lines from `asked` on.
    ///
    /// # Errors
    /// The answer does not fit the question: it has earlier lines, more than there are, or none of those that there are.
    pub fn next_line(&self, asked: u64) -> Result<u64, WrongLines> {
        let LoggedCall { first, count, .. } = *self;
        let next = first.checked_add(self.lines.len() as u64).filter(|next| *next <= count);
        let fits = first >= asked && (!self.lines.is_empty() || first == count);
        let wrong = WrongLines { asked, first, lines: self.lines.len(), count };
        next.filter(|_| fits).ok_or(wrong)
    }
}

/// A text of a server that stays in its line and does nothing to a terminal.
fn clean(text: &mut String) {
    if text.chars().any(|letter| !matches!(letter, ' '..='~')) {
        *text = printable(text).replace('\n', "\\n");
    }
}

impl LogAnswer {
    /// Escapes what could upset a terminal in all texts. A server may send anything.
    pub fn make_printable(&mut self) {
        for call in &mut self.calls {
            clean(&mut call.routine);
            clean(&mut call.user);
            if let Some(TracedCall { trace, span, parent }) = &mut call.trace {
                [trace, span, parent].into_iter().for_each(clean);
            }
            call.end.iter_mut().for_each(|end| clean(&mut end.reason));
            call.lines.iter_mut().for_each(|line| clean(&mut line.text));
        }
    }
}

impl LogDirectory {
    /// Escapes what could upset a terminal in what is shown of the servers. Addresses to connect to and passes are no texts to
    /// read.
    pub fn make_printable(&mut self) {
        self.servers.iter_mut().for_each(|server| clean(&mut server.name));
        for server in &mut self.gone {
            [&mut server.name, &mut server.address, &mut server.state].into_iter().for_each(clean);
        }
        if let Some(LastPlace { name, address, .. }) = &mut self.placed {
            [name, address].into_iter().for_each(clean);
        }
    }
}

/// A call's number at a metaserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedCall {
    /// The call.
    pub call: u64,
    /// The attempt; the first is 1.
    pub attempt: u32,
}

/// A call's place in a trace: hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedCall {
    /// The trace.
    pub trace: String,
    /// The span of the call at the server.
    pub span: String,
    /// The span in which the call was made.
    pub parent: String,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnd {
    /// When: milliseconds since the epoch.
    pub at_ms: u64,
    /// How.
    pub outcome: CallOutcome,
    /// The number of its error; 0: none.
    #[serde(default)]
    pub code: u16,
    /// Why it failed; empty: it did not.
    #[serde(default)]
    pub reason: String,
    /// Nanoseconds that its routine ran, if it has run to its end.
    #[serde(default)]
    pub ran_ns: Option<u64>,
}

/// A kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallOutcome {
    /// The routine has run.
    Completed,
    /// Its process crashed, or ended by itself.
    Crashed,
    /// It ended with an exception.
    Raised,
    /// It took longer than it may.
    TimedOut,
    /// Its client or its metaserver ended it, or its client has left.
    Cancelled,
    /// It failed otherwise.
    Failed,
    /// A kind of a newer server.
    #[serde(other)]
    Other,
}

impl fmt::Display for CallOutcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
}

/// A line of a call's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When the server read or wrote it: milliseconds since the epoch.
    pub at_ms: u64,
    /// Whose it is.
    pub source: LineSource,
    /// Its text, without control characters other than tabs.
    pub text: String,
}

/// Who has written a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineSource {
    /// The routine has printed it.
    Routine,
    /// The server says it of the call.
    Server,
    /// A source of a newer server.
    #[serde(other)]
    Other,
}

/// The servers at which a metaserver's client finds logs of its calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogDirectory {
    /// The servers that are there.
    pub servers: Vec<LogServer>,
    /// Those that were there lately. Earlier metaservers do not name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<GoneServer>,
    /// Where the call was placed last that was asked for, if the metaserver knows one of that number of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<LastPlace>,
}

/// Where a call was placed last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastPlace {
    /// The server's name.
    pub name: String,
    /// The server's address for clients.
    pub address: String,
    /// How many milliseconds ago. A server that has run for less is not the process that had the call.
    pub ago_ms: u64,
}

/// A server of a metaserver that was there lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneServer {
    /// Its name.
    pub name: String,
    /// Its address for clients.
    pub address: String,
    /// What became of it, in a word of [`crate::state::ServerCondition`].
    pub state: String,
}

/// A server of a metaserver.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogServer {
    /// Its name.
    pub name: String,
    /// Its address for clients.
    pub address: String,
    /// What the client shows there: who it is. No call can be made with it.
    pub pass: String,
}

impl fmt::Debug for LogServer {
    /// Leaves out the pass, which must not get into logs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LogServer")
            .field("name", &self.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_newer_servers_are_understood() {
        let text = r#"{"calls": [{"call": 3, "routine": "f", "came_ms": 5, "colour": "red",
            "end": {"at_ms": 9, "outcome": "evaporated"},
            "lines": [{"at_ms": 6, "source": "moon", "text": "x"}]}], "weather": 1}"#;
        let logs: LogAnswer = serde_json::from_str(text).expect("logs");
        let call = &logs.calls[0];
        assert_eq!(call.end.as_ref().map(|end| end.outcome), Some(CallOutcome::Other));
        assert_eq!((call.lines[0].source, logs.dropped), (LineSource::Other, 0));
        let again = serde_json::to_string(&logs).expect("JSON");
        assert_eq!(serde_json::from_str::<LogAnswer>(&again).expect("logs"), logs);
    }

    #[test]
    fn nothing_in_an_answer_moves_a_terminal_or_turns_text() {
        let (wild, tame) = ("a\tb\u{1b}[2J\u{9b}x\u{202e}y\nz", r"a	b\u{1b}[2J\u{9b}x\u{202e}y\nz");
        let text = |text: &str| text.to_owned();
        let answer = |it: &str| LogAnswer {
            calls: vec![LoggedCall {
                routine: text(it),
                user: text(it),
                trace: Some(TracedCall { trace: text(it), span: text(it), parent: text(it) }),
                end: Some(CallEnd {
                    at_ms: 1,
                    outcome: CallOutcome::Failed,
                    code: 1,
                    reason: text(it),
                    ran_ns: None,
                }),
                lines: vec![LogLine { at_ms: 1, source: LineSource::Routine, text: text(it) }],
                ..LoggedCall::default()
            }],
            ..LogAnswer::default()
        };
        let mut logs = answer(wild);
        logs.make_printable();
        assert_eq!(logs, answer(tame));
        let server = LogServer { name: text(wild), address: text("h:1"), pass: String::new() };
        let gone = GoneServer { name: text(wild), address: text(wild), state: text(wild) };
        let placed = Some(LastPlace { name: text(wild), address: text(wild), ago_ms: 1 });
        let mut servers = LogDirectory { servers: vec![server], gone: vec![gone], placed };
        servers.make_printable();
        let placed = servers.placed.as_ref().expect("a place");
        assert_eq!([&placed.name, &placed.address], [tame; 2]);
        assert_eq!(servers.servers[0].name, tame);
        let shown = &servers.gone[0];
        assert_eq!([&shown.name, &shown.address, &shown.state], [tame; 3]);
    }

    #[test]
    fn lines_are_those_that_were_asked_for() {
        let line = || LogLine { at_ms: 1, source: LineSource::Routine, text: "x".to_owned() };
        let call = |first, lines: usize, count| LoggedCall {
            first,
            count,
            lines: vec![line(); lines],
            ..LoggedCall::default()
        };
        assert_eq!(call(0, 2, 2).next_line(0), Ok(2));
        assert_eq!(call(5, 1, 9).next_line(2), Ok(6), "those between are not kept");
        assert_eq!(call(2, 0, 2).next_line(2), Ok(2));
        for (wrong, asked) in [
            (call(0, 1, 2), 1),
            (call(1, 0, 2), 1),
            (call(1, 2, 2), 1),
            (call(u64::MAX, 1, u64::MAX), 1),
        ] {
            wrong.next_line(asked).expect_err("it does not fit");
        }
    }

    #[test]
    fn a_metaserver_that_names_no_servers_that_are_gone_is_understood() {
        let servers: LogDirectory = serde_json::from_str(r#"{"servers": []}"#).expect("it");
        assert_eq!(servers, LogDirectory::default());
        assert_eq!(serde_json::to_string(&servers).expect("JSON"), r#"{"servers":[]}"#);
    }

    #[test]
    fn outcomes_are_called_as_in_the_json() {
        use CallOutcome::{Cancelled, Completed, Crashed, Failed, Raised, TimedOut};
        for outcome in [Completed, Crashed, Raised, TimedOut, Cancelled, Failed] {
            let json = serde_json::to_string(&outcome).expect("JSON");
            assert_eq!(json, format!("\"{outcome}\""));
        }
    }

    #[test]
    fn passes_are_not_printed() {
        let pass = "pass_0123".to_owned();
        let server = LogServer { name: "a".into(), address: "h:1".into(), pass };
        assert!(!format!("{server:?}").contains("pass"));
    }
}
