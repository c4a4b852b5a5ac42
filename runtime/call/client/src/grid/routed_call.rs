//! Driver of a call through a metaserver: it does what [`kumi_routing::Call`] decides.

mod attempt;
mod held;
mod place;
mod reports;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kumi_routing::{Action, CallEnd, Event, GiveUpReason, RetryReason};
use kumi_rpc::{AttemptOutcome, AttemptReport, PlacementRequest};

use super::super::answer_handle::AnswerHandle;
use super::super::arguments::CheckedCall;
use super::super::completion::Completion;
use super::super::grid::Inner;
use super::super::link::Link;
use super::super::{
    Call, CallError, CallOutput, Callback, Client, KnownRoutine, Outcome, Resources, TraceContext,
    locked, trace_context,
};
use super::held::{BoundArguments, StayingResults};
use held::AttemptKeeps;
pub(crate) use place::Place;
#[cfg(feature = "transactions")]
pub(crate) use reports::measured;
pub(crate) use reports::{nanoseconds, over};

/// Why a call got no further attempt: its time for that is over.
const NO_MORE_TIME: &str = "the time for further attempts is over (KUMI_CALL_RETRY_TIME)";
/// How often a running call checks whether it was cancelled or moved.
const SLICE: Duration = Duration::from_millis(100);

/// State that the waiting thread and the running thread of a call share.
#[derive(Debug, Default)]
pub struct Control {
    /// The call was cancelled.
    cancelled: AtomicBool,
    /// Held while something other than the connection reads or writes the caller's memory.
    pub lent: Mutex<()>,
    /// The stream at the server, while there is one.
    current: Mutex<Option<(Arc<Link>, u32)>>,
    /// Set if the running and the waiting thread differ.
    completion: Option<Arc<Completion>>,
}

impl Control {
    /// For a call that runs in its own thread; the waiting thread runs its callbacks.
    pub fn with_completion(completion: Arc<Completion>) -> Control {
        Control { completion: Some(completion), ..Control::default() }
    }

    /// Asks for the end of the call.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        if let Some((link, stream)) = &*locked(&self.current) {
            link.give_up(*stream);
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    fn runs(&self, current: Option<(Arc<Link>, u32)>) {
        *locked(&self.current) = current;
    }
}

/// A call that is to run on some server.
#[derive(Debug)]
pub struct RoutedCall<'a> {
    pub inner: Arc<Inner>,
    pub known: Arc<KnownRoutine>,
    pub placing: PlacementRequest,
    /// The arguments and the buffers for results. `None` while an attempt has them.
    pub checked: Option<CheckedCall>,
    /// The callbacks that this thread runs.
    pub functions: Vec<(u16, Callback<'a>)>,
    /// A callback has run in this attempt.
    called: bool,
    pub deadline: Option<Instant>,
    routing: kumi_routing::Call<Place, CallError, String>,
    /// The beginning of the times that the routing sees.
    begun: Instant,
    /// The stream at the metaserver, if there is one.
    pub place_request: Option<(Client, AnswerHandle<Arc<Link>>)>,
    /// The attempt that runs.
    call: Option<Call<'static>>,
    outcome: Option<Outcome>,
    /// The report on the attempt that has run.
    pub done: Option<AttemptReport>,
    /// Where the output of the routine goes.
    pub output: Option<CallOutput>,
    /// Its place in a trace.
    pub trace: Option<TraceContext>,
    /// What it asks for.
    pub resources: Option<Resources>,
    /// The arrays at a server that it reads.
    bound: Option<BoundArguments>,
    /// Its results that stay.
    kept: StayingResults,
    /// Those of the attempt.
    keeps: Option<AttemptKeeps>,
    /// Bytes of arguments and results that travel between client and server.
    moved: (u64, u64),
    /// Whether a metaserver had too many calls that wait. `None`: that ends this call; otherwise it wants a metaserver again.
    pub turned_away: Option<bool>,
}

/// What the routing wants done with attempts.
pub(crate) enum RoutedStep {
    Start(Place),
    Leave,
    Over(CallEnd<CallError>),
}

/// What the error of an attempt means for the next attempt.
pub(crate) fn ended(error: &CallError) -> AttemptOutcome {
    match error {
        CallError::Lost(_)
        | CallError::Crashed { .. }
        | CallError::NoServer { has_not_run: false, .. } => AttemptOutcome::Broken,
        CallError::Argument { .. }
        | CallError::Status { .. }
        | CallError::TimedOut(_)
        | CallError::Cancelled(_)
        | CallError::Interrupted => AttemptOutcome::Failed,
        other if other.has_not_run() => AttemptOutcome::NotBegun,
        _ => AttemptOutcome::Failed,
    }
}

impl<'a> RoutedCall<'a> {
    /// A call that has asked no metaserver yet.
    pub fn new(
        inner: Arc<Inner>,
        known: Arc<KnownRoutine>,
        placing: PlacementRequest,
    ) -> RoutedCall<'a> {
        let rules = inner.rules(placing.idempotent);
        let moved = (placing.bytes_out, placing.bytes_back);
        RoutedCall {
            inner,
            known,
            placing,
            checked: None,
            functions: Vec::new(),
            called: false,
            deadline: None,
            routing: kumi_routing::Call::new(rules),
            begun: Instant::now(),
            place_request: None,
            call: None,
            outcome: None,
            done: None,
            output: None,
            trace: trace_context(),
            resources: None,
            bound: None,
            kept: StayingResults::new(),
            keeps: None,
            moved,
            turned_away: None,
        }
    }
}

impl RoutedCall<'_> {
    /// Its number among the calls of the grid.
    pub fn number(&self) -> u64 {
        self.placing.key.1
    }

    /// The time that is left. `None`: no limit.
    pub fn left(&self) -> Result<Option<Duration>, CallError> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.too_late()) } else { Ok(Some(left)) }
    }

    fn too_late(&self) -> CallError {
        let name = &self.known.interface.name;
        CallError::TimedOut(format!("`{name}` took longer than it may"))
    }

    /// The time is over, and the server of the attempt has not said how it ended.
    fn unanswered(&self, link: &Link) -> CallError {
        let name = &self.known.interface.name;
        CallError::TimedOut(format!(
            "`{name}` took longer than it may: {} did not answer in time",
            link.peer()
        ))
    }

    fn cancelled(&self) -> CallError {
        let name = &self.known.interface.name;
        CallError::Cancelled(format!("the call of `{name}` was cancelled"))
    }

    /// The error of a call that its client did not cancel. A call that was stopped all the same is a server's
    /// fault.
    fn uncancelled_error(&self, error: CallError) -> CallError {
        match error {
            CallError::Cancelled(_) if self.left().is_err() => self.too_late(),
            CallError::Cancelled(_) => {
                let name = &self.known.interface.name;
                let text = format!(
                    "`{name}` was stopped, and not by its client: a metaserver that is begun anew without its state (--state) \
                     has servers stop what it does not know. It may have run in part"
                );
                CallError::NoServer { text, has_not_run: false }
            }
            other => other,
        }
    }

    /// Tells the routing what has happened.
    pub(crate) fn tell(&mut self, event: Event<Place, CallError>) {
        if let Event::NotBegun(error) | Event::Broken(error) | Event::Failed(error) = &event {
            self.give_reason(error);
        }
        self.settle_results(&event);
        self.routing.handle(nanoseconds(self.begun.elapsed()), event);
    }

    /// Does what the routing wants, up to the next turn of an attempt.
    pub(crate) fn turn(&mut self) -> Option<RoutedStep> {
        loop {
            match self.routing.poll()? {
                // It is done as long as the routing wants a metaserver.
                Action::Ask => {}
                Action::Report(place, outcome) => self.report(&place, outcome),
                Action::CancelRequest => self.place_request = None,
                Action::CloseRequest => {
                    if let Some((_, ticket)) = self.place_request.take() {
                        ticket.leave();
                    }
                }
                Action::Start(place) => {
                    self.placing.attempts = place.ticket.attempt;
                    return Some(RoutedStep::Start(place));
                }
                Action::Leave => return Some(RoutedStep::Leave),
                Action::End(end) => return Some(RoutedStep::Over(end)),
            }
        }
    }

    /// Runs the call on any server that can.
    pub fn run(
        &mut self,
        control: &Control,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Outcome, CallError> {
        loop {
            match self.turn() {
                Some(RoutedStep::Start(place)) => self.start(&place, control, interrupted),
                Some(RoutedStep::Leave) => self.leave(control),
                Some(RoutedStep::Over(CallEnd::Done)) => {
                    let none = || CallError::Server("the call has no result".to_owned());
                    return self.outcome.take().ok_or_else(none);
                }
                Some(RoutedStep::Over(end)) => {
                    let is_lost = self.has_lost_arrays(&end);
                    let error = self.error(end);
                    return Err(if is_lost { self.lost_arrays(error) } else { error });
                }
                None if self.call.is_some() => self.await_end(control, interrupted),
                None => self.await_place(control, interrupted),
            }
        }
    }

    /// The error of a call that has ended like this.
    pub(crate) fn error(&mut self, end: CallEnd<CallError>) -> CallError {
        let has_not_run = !self.routing.may_have_run();
        let error = match end {
            CallEnd::Failed(error) => return error,
            // The program wanted it, or no attempt could do otherwise.
            CallEnd::GivenUp(GiveUpReason::Because(
                error @ (CallError::Cancelled(_)
                | CallError::Interrupted
                | CallError::HeldLost { .. }),
            )) => return error,
            CallEnd::GivenUp(GiveUpReason::Because(error)) => error,
            CallEnd::GivenUp(GiveUpReason::RetryTime) => {
                CallError::NoServer { text: NO_MORE_TIME.to_owned(), has_not_run }
            }
            CallEnd::GivenUp(GiveUpReason::Elsewhere) => {
                let text = "the metaserver has named another server".to_owned();
                CallError::NoServer { text, has_not_run }
            }
            CallEnd::Done | CallEnd::GivenUp(GiveUpReason::Unknown) => {
                CallError::NoServer { text: String::new(), has_not_run: false }
            }
        };
        let (mut tried, mut last) = (Vec::new(), None);
        for (place, why) in self.routing.take_tried() {
            let place = format!("{} ({})", place.server, place.address);
            match why {
                RetryReason::Failed(error) => {
                    tried.push(format!("{place}: {error}"));
                    last = Some(*error);
                }
                RetryReason::Superseded => tried.push(format!("{place}: the metaserver lost it")),
            }
        }
        // Why no other server follows the last one.
        let after = error.to_string();
        if let Some(at_last) = tried.last_mut().filter(|_| !after.is_empty()) {
            at_last.push_str(&format!("; {after}"));
        }
        if matches!(error, CallError::TimedOut(_)) {
            last = None;
        }
        match (last, tried.len()) {
            (None, 0) => error,
            (last, _) => CallError::Attempts {
                routine: self.known.interface.name.clone(),
                tried,
                last: Box::new(last.unwrap_or(error)),
                has_not_run,
            },
        }
    }
}
