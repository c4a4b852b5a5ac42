//! The log of a call, for its user: what the server says of it, and what its routine prints.

mod table;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use kumi_call_wire::context::Span;
use kumi_call_wire::logs::{
    CallEnd, CallOutcome, LineSource, LogAnswer, LogLine, LoggedCall, PlacedCall, TracedCall,
};
use kumi_rpc::{Code, Failure, LogRequest, Ticket};

use super::owner::Owner;
use table::CallLogTable;
pub use table::LogLimits;

/// Most calls in an answer, whatever a client asks for.
const MOST_CALLS: u32 = 1000;

/// The logs of a server.
#[derive(Debug, Clone)]
pub struct LogStore {
    table: Rc<RefCell<CallLogTable>>,
    /// When the server began.
    begun: Instant,
}

/// What is known of a call when it comes.
#[derive(Debug)]
pub struct ComingCall<'a> {
    /// Its number.
    pub call: u64,
    /// The routine or the class.
    pub name: &'a str,
    /// Whether it is an object.
    pub is_object: bool,
    /// Its owner.
    pub owner: &'a Rc<Owner>,
    /// The metaserver's ticket.
    pub ticket: Option<Ticket>,
    /// Its span, if it is in a trace.
    pub span: Option<&'a Span>,
}

/// The log of one call. Dropped without an end, it says that the call was given up.
#[derive(Debug)]
pub struct CallLogHandle {
    logs: LogStore,
    owner: Rc<Owner>,
    call: u64,
    ended: Cell<bool>,
}

/// Milliseconds since the epoch.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The kind of end that a failure is.
fn outcome_of(code: Code) -> CallOutcome {
    match code {
        Code::Crashed => CallOutcome::Crashed,
        Code::Raised => CallOutcome::Raised,
        Code::TimedOut => CallOutcome::TimedOut,
        Code::Cancelled | Code::NoTicket => CallOutcome::Cancelled,
        _ => CallOutcome::Failed,
    }
}

impl LogStore {
    /// A store without calls.
    pub fn new(limits: LogLimits) -> LogStore {
        LogStore { table: Rc::new(RefCell::new(CallLogTable::new(limits))), begun: Instant::now() }
    }

    /// Begins the log of a call.
    pub fn open(&self, coming: &ComingCall<'_>) -> CallLogHandle {
        let trace = coming.span.map(|span| TracedCall {
            trace: span.trace().to_string(),
            span: span.span().to_string(),
            parent: span.parent().to_string(),
        });
        let placed = coming.ticket.map(|it| PlacedCall { call: it.call, attempt: it.attempt });
        let head = LoggedCall {
            call: coming.call,
            placed,
            routine: coming.name.to_owned(),
            is_object: coming.is_object,
            trace,
            came_ms: now_ms(),
            ..LoggedCall::default()
        };
        self.table.borrow_mut().open(&coming.owner.user, head);
        let (logs, owner) = (self.clone(), Rc::clone(coming.owner));
        CallLogHandle { logs, owner, call: coming.call, ended: Cell::new(false) }
    }

    /// What this user may see of the calls that are asked for.
    pub fn answer(&self, user: &str, request: &LogRequest) -> LogAnswer {
        let request = match *request {
            LogRequest::Latest(most) => LogRequest::Latest(most.min(MOST_CALLS)),
            other => other,
        };
        let mut logs = self.table.borrow().answer(user, &request);
        logs.uptime_ms = Some(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX));
        logs.calls.iter_mut().for_each(|call| user.clone_into(&mut call.user));
        logs
    }
}

impl CallLogHandle {
    /// The user of the call; empty: users are not distinguished.
    pub fn user(&self) -> &str {
        &self.owner.user
    }

    /// Notes that the call runs, or that the object exists.
    pub fn begin(&self) {
        self.logs.table.borrow_mut().begin(&self.owner.user, self.call, now_ms());
    }

    /// A line that the routine has printed, safe for terminals.
    pub fn printed(&self, text: &str) {
        self.line(LineSource::Routine, text);
    }

    /// What the server has to say of the call.
    pub fn say(&self, text: &str) {
        self.line(LineSource::Server, text);
    }

    fn line(&self, source: LineSource, text: &str) {
        let line = LogLine { at_ms: now_ms(), source, text: text.to_owned() };
        self.logs.table.borrow_mut().line(&self.owner.user, self.call, line);
    }

    /// Ends the log of a call that has run for so many nanoseconds, or has failed.
    pub fn end(&self, outcome: Result<u64, &Failure>) {
        if self.ended.replace(true) {
            return;
        }
        let (outcome, code, reason, ran_ns) = match outcome {
            Ok(ran_ns) => (CallOutcome::Completed, 0, String::new(), Some(ran_ns)),
            Err(Failure { code, text, .. }) => {
                // A routine may have written it.
                let reason = super::slots::output::printable(text.as_bytes());
                (outcome_of(*code), code.number(), reason, None)
            }
        };
        let end = CallEnd { at_ms: now_ms(), outcome, code, reason, ran_ns };
        self.logs.table.borrow_mut().end(&self.owner.user, self.call, end);
    }
}

impl Drop for CallLogHandle {
    fn drop(&mut self) {
        if !self.ended.get() {
            let text = "it was given up: its client has left, or the server ends";
            self.end(Err(&Failure::new(Code::Cancelled, 0, text)));
        }
    }
}
