//! What is new in the log of a call since it was last looked at.

use kumi_call::log_records::{CallEnd, LineSource, LogLine, LoggedCall, WrongLines};

/// Most answers that make up the log of a call which is not followed: 1 GiB of lines. A server that counts wrongly may not have
/// anybody ask for ever.
const MOST_ANSWERS: u32 = 4096;

/// How far a call has been shown.
#[derive(Debug, Default)]
pub struct Progress {
    /// The call is to be shown to its end, and not only as far as its log was at the first answer.
    follows: bool,
    has_come: bool,
    has_begun: bool,
    has_ended: bool,
    /// The first line that was not shown.
    pub next: u64,
    answers: u32,
    /// How many lines there were at the first answer.
    first_count: Option<u64>,
}

/// A server has sent what is no log.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongLog {
    /// The lines are not those that were asked for.
    #[error(transparent)]
    Lines(#[from] WrongLines),
    /// There are always more lines.
    #[error("it has no end")]
    Endless,
}

/// Something to show.
#[derive(Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The call has come.
    Came { at_ms: u64 },
    /// It runs; or the object is there.
    Began { at_ms: u64, is_object: bool },
    /// So many lines are not kept any more.
    Missing(u64),
    /// A line.
    Line(LogLine),
    /// It has ended.
    Ended { end: CallEnd, is_object: bool },
}

impl Progress {
    /// Nothing was shown yet of a call that is to be shown to its end, or as far as it is now.
    pub fn new(follows: bool) -> Progress {
        Progress { follows, ..Progress::default() }
    }

    /// Whether all lines were shown that are asked for.
    pub fn is_whole(&self, call: &LoggedCall) -> bool {
        let first = self.first_count.filter(|_| !self.follows);
        self.next >= first.unwrap_or(call.count)
    }

    /// What is new, in order, in the answer to a question for the lines from `next` on. The end comes when all lines before it
    /// were shown.
    ///
    /// # Errors
    /// The answer does not fit the question, or there were too many answers.
    pub fn take(&mut self, call: &LoggedCall) -> Result<Vec<LogEvent>, WrongLog> {
        let next = call.next_line(self.next)?;
        self.answers = self.answers.saturating_add(1);
        if self.answers > MOST_ANSWERS && !self.follows {
            return Err(WrongLog::Endless);
        }
        self.first_count.get_or_insert(call.count);
        let (mut events, is_object) = (Vec::new(), call.is_object);
        if !std::mem::replace(&mut self.has_come, true) {
            events.push(LogEvent::Came { at_ms: call.came_ms });
        }
        if let Some(at_ms) = call.began_ms
            && !std::mem::replace(&mut self.has_begun, true)
        {
            events.push(LogEvent::Began { at_ms, is_object });
        }
        if let Some(missing) = call.first.checked_sub(self.next).filter(|missing| *missing > 0) {
            events.push(LogEvent::Missing(missing));
        }
        events.extend(call.lines.iter().cloned().map(LogEvent::Line));
        self.next = next;
        if let Some(end) = &call.end
            && self.next >= call.count
            && !std::mem::replace(&mut self.has_ended, true)
        {
            events.push(LogEvent::Ended { end: end.clone(), is_object });
        }
        Ok(events)
    }
}

impl LogEvent {
    /// When it was: milliseconds since the epoch.
    pub fn at_ms(&self) -> Option<u64> {
        match self {
            LogEvent::Came { at_ms } | LogEvent::Began { at_ms, .. } => Some(*at_ms),
            LogEvent::Missing(_) => None,
            LogEvent::Line(line) => Some(line.at_ms),
            LogEvent::Ended { end, .. } => Some(end.at_ms),
        }
    }

    /// The name of its kind, and whose text it is.
    pub fn kind(&self) -> &'static str {
        match self {
            LogEvent::Came { .. } => "came",
            LogEvent::Began { .. } => "began",
            LogEvent::Missing(_) => "missing",
            LogEvent::Line(line) if line.source == LineSource::Routine => "routine",
            LogEvent::Line(_) => "server",
            LogEvent::Ended { .. } => "ended",
        }
    }

    /// What is to be read of it.
    pub fn text(&self) -> String {
        match self {
            LogEvent::Came { .. } => "comes".to_owned(),
            LogEvent::Began { is_object: false, .. } => "begins to run".to_owned(),
            LogEvent::Began { is_object: true, .. } => "is made".to_owned(),
            LogEvent::Missing(lines) => format!("{lines} lines are not kept any more"),
            LogEvent::Line(line) => line.text.clone(),
            LogEvent::Ended { end, is_object } => match (end.ran_ns, end.reason.as_str()) {
                (Some(ran), _) => format!("has run for {}", crate::table::nanos(ran)),
                (None, "") if *is_object => "has ended".to_owned(),
                (None, "") => end.outcome.to_string(),
                (None, reason) => reason.to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_call::log_records::CallOutcome;

    fn line(text: &str) -> LogLine {
        LogLine { at_ms: 3, source: LineSource::Routine, text: text.to_owned() }
    }

    fn end() -> Option<CallEnd> {
        let (outcome, reason) = (CallOutcome::Crashed, "it crashed".to_owned());
        Some(CallEnd { at_ms: 9, outcome, code: 6, reason, ran_ns: None })
    }

    fn kinds(events: &[LogEvent]) -> Vec<&'static str> {
        events.iter().map(LogEvent::kind).collect()
    }

    fn taken(progress: &mut Progress, call: &LoggedCall) -> Vec<LogEvent> {
        progress.take(call).expect("the answer to the question")
    }

    #[test]
    fn nothing_is_shown_twice() {
        let mut progress = Progress::default();
        let mut call = LoggedCall { came_ms: 1, ..LoggedCall::default() };
        assert_eq!(kinds(&taken(&mut progress, &call)), ["came"]);
        assert_eq!(taken(&mut progress, &call), []);
        (call.began_ms, call.lines, call.count) = (Some(2), vec![line("a"), line("b")], 2);
        assert_eq!(kinds(&taken(&mut progress, &call)), ["began", "routine", "routine"]);
        assert_eq!(progress.next, 2);
        (call.lines, call.first) = (Vec::new(), 2);
        assert_eq!(taken(&mut progress, &call), []);
        (call.end, call.lines, call.count) = (end(), vec![line("c")], 3);
        assert_eq!(kinds(&taken(&mut progress, &call)), ["routine", "ended"]);
        (call.lines, call.first) = (Vec::new(), 3);
        assert_eq!(taken(&mut progress, &call), []);
    }

    #[test]
    fn the_end_waits_for_the_lines_before_it() {
        let mut progress = Progress::default();
        let lines = vec![line("a")];
        let mut call = LoggedCall { end: end(), lines, count: 2, ..LoggedCall::default() };
        assert_eq!(kinds(&taken(&mut progress, &call)), ["came", "routine"]);
        (call.lines, call.first) = (vec![line("b")], 1);
        assert_eq!(kinds(&taken(&mut progress, &call)), ["routine", "ended"]);
    }

    #[test]
    fn lines_that_are_not_kept_are_counted() {
        let mut progress = Progress::default();
        let lines = vec![line("h")];
        let call = LoggedCall { lines, first: 7, count: 8, dropped: 7, ..LoggedCall::default() };
        let events = taken(&mut progress, &call);
        assert_eq!(events[1], LogEvent::Missing(7));
        assert_eq!((kinds(&events), progress.next), (vec!["came", "missing", "routine"], 8));
    }

    #[test]
    fn a_server_that_counts_wrongly_has_nobody_ask_for_ever() {
        let mut progress = Progress::default();
        let call = LoggedCall { lines: vec![line("x")], count: 2, ..LoggedCall::default() };
        taken(&mut progress, &call);
        // The same line again, no line though there should be some, and more lines than there are.
        progress.take(&call).expect_err("it was shown");
        let none = LoggedCall { first: 1, count: u64::MAX, ..LoggedCall::default() };
        progress.take(&none).expect_err("there are no lines");
        let lines = vec![line("x"), line("y")];
        let more = LoggedCall { lines, first: 1, count: 2, ..LoggedCall::default() };
        progress.take(&more).expect_err("there are too many lines");
        assert_eq!(progress.next, 1);
        // One line in each answer, and there are always more.
        let endless = |next| LoggedCall {
            lines: vec![line("x")],
            first: next,
            count: u64::MAX,
            ..LoggedCall::default()
        };
        let mut progress = Progress::default();
        for _ in 0..MOST_ANSWERS {
            let call = endless(progress.next);
            taken(&mut progress, &call);
            assert!(!progress.is_whole(&call));
        }
        assert_eq!(progress.take(&endless(progress.next)), Err(WrongLog::Endless));
    }

    #[test]
    fn a_log_that_grows_is_whole_when_it_is_read_as_far_as_it_was() {
        for (follows, is_whole) in [(false, true), (true, false)] {
            let mut progress = Progress::new(follows);
            let mut call = LoggedCall { lines: vec![line("a")], count: 2, ..LoggedCall::default() };
            taken(&mut progress, &call);
            assert!(!progress.is_whole(&call));
            (call.first, call.count) = (1, 3);
            taken(&mut progress, &call);
            assert_eq!(progress.is_whole(&call), is_whole);
        }
    }
}
