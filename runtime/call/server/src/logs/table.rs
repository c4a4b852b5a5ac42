//! What a server keeps of its calls, within bounds: which calls and lines stay, and who sees them.
//!
//! Nothing here has a clock, a socket or a file.
//!
//! Invariants:
//! - There are never more calls, nor more bytes, than [`LogLimits`] has, and no call has more bytes of lines than its own limit.
//! - The user with the most calls makes room for calls, and the user with the most bytes for bytes. So nobody drives out
//!   the calls of others who keep less.
//! - Of that user's calls, those that have ended go first, the earliest end first.
//! - What has gone is counted: calls by user, lines by call.

use std::collections::{BTreeMap, VecDeque};

use kumi_call_wire::logs::{CallEnd, LogAnswer, LogLine, LoggedCall};
use kumi_rpc::LogRequest;

/// Bytes that a call counts for besides its texts.
const CALL_COST: usize = 512;
/// Bytes that a line counts for besides its text.
const LINE_COST: usize = 64;
/// Most bytes, counted so, of an answer. It is far less than a frame may have, as no other client is served meanwhile.
const ANSWER_BYTES: usize = 256 << 10;

/// What is kept at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Calls; 0: nothing is kept.
    pub calls: usize,
    /// Bytes of the lines of one call.
    pub call_bytes: usize,
    /// Bytes of everything.
    pub bytes: usize,
}

impl Default for LogLimits {
    /// 1,000 calls, 256 KiB of each, and 16 MiB of all.
    fn default() -> LogLimits {
        LogLimits { calls: 1000, call_bytes: 256 << 10, bytes: 16 << 20 }
    }
}

/// A call.
#[derive(Debug)]
struct Entry {
    /// What is said of it, without lines.
    head: LoggedCall,
    lines: VecDeque<LogLine>,
    line_bytes: usize,
    head_bytes: usize,
}

/// The calls of a user.
#[derive(Debug, Default)]
struct UserCalls {
    calls: BTreeMap<u64, Entry>,
    /// Those that have ended, in the order of their ends.
    ended: VecDeque<u64>,
    bytes: usize,
    dropped: u64,
}

/// The kept calls of all users.
#[derive(Debug)]
pub struct CallLogTable {
    limits: LogLimits,
    users: BTreeMap<String, UserCalls>,
    calls: usize,
    bytes: usize,
}

fn head_bytes(head: &LoggedCall) -> usize {
    let trace =
        head.trace.as_ref().map_or(0, |it| it.trace.len() + it.span.len() + it.parent.len());
    let reason = head.end.as_ref().map_or(0, |end| end.reason.len());
    CALL_COST + head.routine.len() + trace + reason
}

fn line_bytes(line: &LogLine) -> usize {
    LINE_COST + line.text.len()
}

impl Entry {
    fn new(head: LoggedCall) -> Entry {
        let head_bytes = head_bytes(&head);
        Entry { head, lines: VecDeque::new(), line_bytes: 0, head_bytes }
    }

    fn bytes(&self) -> usize {
        self.head_bytes + self.line_bytes
    }

    /// Drops the earliest line. False: there is none.
    fn drop_line(&mut self) -> bool {
        let Some(line) = self.lines.pop_front() else { return false };
        self.line_bytes -= line_bytes(&line);
        self.head.dropped += 1;
        true
    }

    /// Adds a line, and drops the earliest ones if there are more than a call may have.
    fn add(&mut self, mut line: LogLine, most: usize) {
        let mut room = most.saturating_sub(LINE_COST).min(line.text.len());
        while !line.text.is_char_boundary(room) {
            room -= 1;
        }
        line.text.truncate(room);
        self.line_bytes += line_bytes(&line);
        self.lines.push_back(line);
        self.head.count += 1;
        while self.line_bytes > most && self.drop_line() {}
    }

    /// The call with its lines from this one on, as many as an answer holds.
    fn with_lines(&self, from: u64) -> LoggedCall {
        let first = from.max(self.head.dropped).min(self.head.count);
        let skipped = usize::try_from(first - self.head.dropped).unwrap_or(usize::MAX);
        let mut room = ANSWER_BYTES;
        let fits = |line: &&LogLine| {
            let left = room.checked_sub(line_bytes(line));
            room = left.unwrap_or(0);
            left.is_some()
        };
        let lines = self.lines.iter().skip(skipped).take_while(fits).cloned().collect();
        LoggedCall { lines, first, ..self.head.clone() }
    }
}

impl UserCalls {
    /// Changes a call, and counts its bytes anew.
    fn change(&mut self, call: u64, change: impl FnOnce(&mut Entry)) -> Option<(usize, usize)> {
        let entry = self.calls.get_mut(&call)?;
        let before = entry.bytes();
        change(entry);
        let after = entry.bytes();
        self.bytes = self.bytes - before + after;
        Some((before, after))
    }

    /// Drops a call. Returns its bytes.
    fn drop_call(&mut self, call: u64) -> usize {
        let Some(entry) = self.calls.remove(&call) else { return 0 };
        self.bytes -= entry.bytes();
        self.dropped += 1;
        entry.bytes()
    }

    /// The open call with the most bytes of lines, if any has lines.
    fn longest(&self) -> Option<u64> {
        let lines = self.calls.iter().map(|(call, entry)| (entry.line_bytes, *call));
        lines.max().filter(|(bytes, _)| *bytes > 0).map(|(_, call)| call)
    }
}

impl CallLogTable {
    /// An empty table.
    pub fn new(limits: LogLimits) -> CallLogTable {
        CallLogTable { limits, users: BTreeMap::new(), calls: 0, bytes: 0 }
    }

    /// Begins the log of a call. Its number is new; lines and end of `head` are not looked at.
    pub fn open(&mut self, user: &str, head: LoggedCall) {
        let call = head.call;
        let head =
            LoggedCall { end: None, lines: Vec::new(), first: 0, count: 0, dropped: 0, ..head };
        let entry = Entry::new(head);
        if !self.users.contains_key(user) {
            self.forget_users();
            self.users.insert(user.to_owned(), UserCalls::default());
        }
        let Some(own) = self.users.get_mut(user) else { return };
        if own.calls.contains_key(&call) {
            return;
        }
        self.calls += 1;
        self.bytes += entry.bytes();
        own.bytes += entry.bytes();
        own.calls.insert(call, entry);
        self.make_room();
    }

    /// Notes that a call runs.
    pub fn begin(&mut self, user: &str, call: u64, at_ms: u64) {
        self.change(user, call, |entry| entry.head.began_ms = Some(at_ms));
    }

    /// Adds a line to the log of a call.
    pub fn line(&mut self, user: &str, call: u64, line: LogLine) {
        let most = self.limits.call_bytes;
        self.change(user, call, |entry| entry.add(line, most));
        self.make_room();
    }

    /// Ends a call. Nothing changes if it has ended before.
    pub fn end(&mut self, user: &str, call: u64, end: CallEnd) {
        let Some(own) = self.users.get_mut(user) else { return };
        if own.calls.get(&call).is_none_or(|entry| entry.head.end.is_some()) {
            return;
        }
        own.ended.push_back(call);
        self.change(user, call, |entry| {
            entry.head.end = Some(end);
            entry.head_bytes = head_bytes(&entry.head);
        });
        self.make_room();
    }

    /// What a user may see of the calls that are asked for.
    pub fn answer(&self, user: &str, request: &LogRequest) -> LogAnswer {
        let Some(own) = self.users.get(user) else { return LogAnswer::default() };
        let dropped = own.dropped;
        if let LogRequest::Call { call, from } = request {
            let calls = own.calls.get(call).map(|entry| entry.with_lines(*from));
            return LogAnswer {
                calls: calls.into_iter().collect(),
                dropped,
                ..LogAnswer::default()
            };
        }
        let trace = match request {
            LogRequest::Trace(trace) => trace.to_string(),
            _ => String::new(),
        };
        let (mut room, mut most) = (ANSWER_BYTES, usize::MAX);
        if let LogRequest::Latest(count) = request {
            most = usize::try_from(*count).unwrap_or(usize::MAX);
        }
        let is_asked = |entry: &&Entry| match request {
            LogRequest::Placed(call) => entry.head.placed.is_some_and(|it| it.call == *call),
            LogRequest::Trace(_) => entry.head.trace.as_ref().is_some_and(|it| it.trace == trace),
            _ => true,
        };
        let mut logs = LogAnswer { dropped, ..LogAnswer::default() };
        for entry in own.calls.values().rev().filter(is_asked).take(most) {
            let Some(left) = room.checked_sub(entry.head_bytes) else {
                logs.is_cut = true;
                break;
            };
            room = left;
            logs.calls.push(entry.head.clone());
        }
        logs
    }

    fn change(&mut self, user: &str, call: u64, change: impl FnOnce(&mut Entry)) {
        let changed = self.users.get_mut(user).and_then(|own| own.change(call, change));
        if let Some((before, after)) = changed {
            self.bytes = self.bytes - before + after;
        }
    }

    /// Forgets users of whom only a count is left, if there are as many users as calls.
    fn forget_users(&mut self) {
        if self.users.len() >= self.limits.calls.max(1) {
            self.users.retain(|_, own| !own.calls.is_empty());
        }
    }

    /// Drops calls and lines until the rest is within the limits.
    fn make_room(&mut self) {
        loop {
            let too_many = self.calls > self.limits.calls;
            if !too_many && self.bytes <= self.limits.bytes {
                return;
            }
            let kept = |own: &&mut UserCalls| if too_many { own.calls.len() } else { own.bytes };
            let Some(own) = self.users.values_mut().max_by_key(kept) else { return };
            let dropped = if let Some(call) = own.ended.pop_front() {
                self.calls -= 1;
                own.drop_call(call)
            } else if !too_many && let Some(call) = own.longest() {
                // The later half of what a call has printed is worth more than all of it.
                let halve = |entry: &mut Entry| {
                    let half = entry.line_bytes / 2;
                    while entry.line_bytes > half && entry.drop_line() {}
                };
                own.change(call, halve).map_or(0, |(before, after)| before - after)
            } else if let Some(call) = own.calls.keys().next_back().copied() {
                // Nothing is known yet of the latest calls.
                self.calls -= 1;
                own.drop_call(call)
            } else {
                return;
            };
            self.bytes -= dropped;
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
