//! Call through a metaserver that moves from server to server until one has run it.

mod reports;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kumi_rpc::{AttemptOutcome, AttemptReport, Code, Placement, PlacementRequest};

use super::super::answer_handle::AnswerHandle;
use super::super::arguments::CheckedCall;
use super::super::completion::{Completion, PendingCallback};
use super::super::functions::answer;
use super::super::grid::Inner;
use super::super::link::{Answer, CallbackInvocation, Link};
use super::super::{
    Call, CallError, CallOutput, CallRoute, Callback, Client, KnownRoutine, Outcome,
};
pub(crate) use reports::nanoseconds;
pub(crate) use reports::over;

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
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((link, stream)) = &*current {
            link.give_up(*stream);
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    fn runs(&self, current: Option<(Arc<Link>, u32)>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
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
    pub called: bool,
    pub deadline: Option<Instant>,
    /// The stream at the metaserver, if there is one.
    pub place_request: Option<(Client, AnswerHandle<Arc<Link>>)>,
    /// The call already runs, and a new metaserver has not yet said whether it knows it.
    pub is_reattaching: bool,
    /// The last attempt.
    pub at: Option<(kumi_rpc::Ticket, String)>,
    /// The report of the last attempt, if no metaserver has answered since.
    pub unreported: Option<AttemptReport>,
    /// The present metaserver does not know the running call.
    pub unknown_to_metaserver: bool,
    /// The errors of all attempts.
    pub tried: Vec<String>,
    /// The last error of a server.
    pub last: Option<CallError>,
    pub has_run: bool,
    /// Where the output of the routine goes.
    pub output: Option<CallOutput>,
}

/// The end of an attempt.
enum Attempt {
    /// The call is over.
    Over(Result<Outcome, CallError>),
    /// The attempt failed.
    Failed(CallError, AttemptOutcome),
    /// The metaserver has meanwhile moved or ended the call.
    Superseded,
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
        RoutedCall {
            inner,
            known,
            placing,
            checked: None,
            functions: Vec::new(),
            called: false,
            deadline: None,
            place_request: None,
            is_reattaching: false,
            at: None,
            unreported: None,
            unknown_to_metaserver: false,
            tried: Vec::new(),
            last: None,
            has_run: false,
            output: None,
        }
    }
}

impl RoutedCall<'_> {
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

    /// Asks the metaserver for a place, unless that was done.
    fn request_place(&mut self) -> Result<(), CallError> {
        while self.place_request.is_none() {
            let meta = self.inner.metaserver(self.left()?)?;
            if self.request_place_on(&meta, false)?
                && let (Some((_, ticket)), Some(over)) = (&self.place_request, &self.unreported)
            {
                // A report on the old connection may be lost with it. Below shows whether this connection is
                // lost too.
                let _lost = meta.link.over(ticket.stream, over);
                self.is_reattaching = true;
            }
        }
        Ok(())
    }

    /// Asks for a place on this connection; false: the connection is lost. With `soon`, [`Link::send_soon`]
    /// sends the request and nothing waits; then the caller reports a lost connection.
    pub fn request_place_on(&mut self, meta: &Client, soon: bool) -> Result<bool, CallError> {
        let left = self.left()?;
        (self.is_reattaching, self.unknown_to_metaserver) = (false, false);
        self.placing.time_ms =
            left.map_or(0, |left| u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1));
        let asked = if soon {
            meta.link.request_place_soon(&self.placing)
        } else {
            meta.link.request_place(&self.placing, self.deadline)
        };
        match asked {
            Ok(stream) => {
                let ticket = AnswerHandle::of(Arc::clone(&meta.link), stream);
                self.place_request = Some((meta.clone(), ticket));
                Ok(true)
            }
            Err(CallError::Lost(_)) => {
                if !soon {
                    self.inner.lost(meta);
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for a place.
    pub(crate) fn place(
        &mut self,
        control: &Control,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Placement, CallError> {
        loop {
            if self.place_request.is_none() && self.has_run && !self.placing.idempotent {
                // A metaserver that has forgotten the attempt would run the call twice.
                return Err(CallError::NoServer { text: String::new(), has_not_run: false });
            }
            self.request_place()?;
            if control.is_cancelled() {
                return Err(self.cancelled());
            }
            let Some((meta, ticket)) = &mut self.place_request else { continue };
            match ticket.wait(Some(Instant::now() + SLICE), interrupted) {
                Ok(Ok(Answer::Placed(placed))) => {
                    // The metaserver may have sent this before the attempt was over.
                    if std::mem::take(&mut self.is_reattaching)
                        && self.at.as_ref() == Some(&attempt(&placed))
                    {
                        continue;
                    }
                    self.unreported = None;
                    return Ok(placed);
                }
                Ok(Ok(_)) => {
                    let text = "the metaserver ended the call".to_owned();
                    return Err(CallError::NoServer { text, has_not_run: !self.has_run });
                }
                Ok(Err(failure)) if failure.code == Code::NotLeading => {
                    self.inner.lost(meta);
                    self.place_request = None;
                }
                Ok(Err(failure)) => {
                    if failure.code == Code::InterfaceChanged {
                        meta.forget(&self.known.interface.name);
                    }
                    return Err(CallError::of(failure, &self.known.interface.name));
                }
                Err(CallError::TimedOut(_)) => {
                    // The metaserver enforces this limit too, but it may be gone.
                    meta.link.check_alive();
                    self.left()?;
                }
                Err(CallError::Lost(_)) => {
                    self.inner.lost(meta);
                    self.place_request = None;
                }
                Err(error) => return Err(error),
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
            let placed = match self.place(control, interrupted) {
                Ok(placed) => placed,
                Err(error) => return Err(self.give_up(error)),
            };
            self.placing.attempts = placed.ticket.attempt;
            self.at = Some(attempt(&placed));
            match self.attempt(&placed, control, interrupted) {
                Attempt::Superseded => {
                    self.tried.push(format!("{}: the metaserver lost it", server(&placed)));
                    self.has_run = true;
                }
                Attempt::Over(result) => {
                    self.tell(&placed, &result);
                    return result;
                }
                Attempt::Failed(error, ended) => self.failed(&placed, error, ended)?,
            }
        }
    }

    /// An attempt has failed.
    ///
    /// # Errors
    /// No further attempt is allowed.
    pub(crate) fn failed(
        &mut self,
        placed: &Placement,
        error: CallError,
        ended: AttemptOutcome,
    ) -> Result<(), CallError> {
        self.tried.push(format!("{}: {error}", server(placed)));
        self.give_reason(placed, &error);
        self.has_run |= ended == AttemptOutcome::Broken;
        self.last = Some(error);
        let over = over(placed, ended);
        self.unreported = Some(over);
        self.report(&over);
        // A metaserver that does not know a lost attempt must not place the call again.
        let unknown = self.place_request.is_none() || self.is_reattaching;
        if unknown && ended == AttemptOutcome::Broken && !self.placing.idempotent {
            self.leave_stream();
            let error = CallError::NoServer { text: String::new(), has_not_run: false };
            return Err(self.give_up(error));
        }
        Ok(())
    }

    /// The error of a call that no server has run.
    pub(crate) fn give_up(&mut self, error: CallError) -> CallError {
        let name = self.known.interface.name.clone();
        match (self.last.take(), self.tried.len()) {
            (None, 0) => error,
            (last, _) => CallError::Attempts {
                routine: name,
                tried: std::mem::take(&mut self.tried),
                last: Box::new(last.unwrap_or(error)),
                has_not_run: !self.has_run,
            },
        }
    }

    /// The server's client, whose calls send what they print to where the caller wants it.
    fn listening(&self, client: Client) -> Client {
        match &self.output {
            Some(output) => client.with_output(output),
            None => client,
        }
    }

    fn attempt(
        &mut self,
        placed: &Placement,
        control: &Control,
        interrupted: &dyn Fn() -> bool,
    ) -> Attempt {
        let client = match self.inner.server(placed) {
            Ok(client) => self.listening(client),
            Err(error) => {
                // If the connection is lost, it did not exist yet and nothing was sent.
                let unsent = error.has_not_run() || matches!(error, CallError::Lost(_));
                let ended = if unsent { AttemptOutcome::NotBegun } else { AttemptOutcome::Broken };
                return Attempt::Failed(error, ended);
            }
        };
        let left = match self.left() {
            Ok(left) => left,
            Err(error) => return Attempt::Over(Err(error)),
        };
        let Some(checked) = self.checked.take() else { return Attempt::Superseded };
        self.called = false;
        if let Some(completion) = &control.completion {
            completion.begin();
        }
        let begun = {
            let _lent = control.lent.lock().unwrap_or_else(PoisonError::into_inner);
            if control.is_cancelled() {
                return Attempt::Over(Err(self.cancelled()));
            }
            let route = CallRoute { time: left, placed: Some(placed), ..CallRoute::default() };
            let begun = client.send(&self.known, checked, Vec::new(), route, interrupted);
            // Before the memory is given back. A thread that cancels now finds no stream and waits for the
            // lock; after that nothing is written to the memory.
            if let Ok(call) = &begun {
                control.runs(Some((Arc::clone(&call.ticket.link), call.ticket.stream)));
                if control.is_cancelled() {
                    call.ticket.link.give_up(call.ticket.stream);
                }
            }
            begun
        };
        let call = match begun {
            Ok(call) => call,
            Err((error, checked)) => {
                self.checked = Some(checked);
                self.inner.forget_server(&placed.address, &client, &error);
                return match ended(&error) {
                    AttemptOutcome::Failed => Attempt::Over(Err(error)),
                    how => Attempt::Failed(error, how),
                };
            }
        };
        let attempt = self.await_end(call, placed, control, interrupted);
        control.runs(None);
        if let Attempt::Failed(error, _) = &attempt {
            self.inner.forget_server(&placed.address, &client, error);
        }
        attempt
    }

    /// Waits for the end of an attempt, and listens to the metaserver meanwhile.
    fn await_end(
        &mut self,
        mut call: Call<'_>,
        placed: &Placement,
        control: &Control,
        interrupted: &dyn Fn() -> bool,
    ) -> Attempt {
        let error = loop {
            match call.ticket.wait(Some(Instant::now() + SLICE), interrupted) {
                Ok(Ok(Answer::Callback(called))) => match self.serve(&call, called, control) {
                    Ok(()) => {}
                    Err(error) => break error,
                },
                Ok(answer) => {
                    let _lent = control.lent.lock().unwrap_or_else(PoisonError::into_inner);
                    if control.is_cancelled() {
                        return Attempt::Over(Err(self.cancelled()));
                    }
                    match call.end(answer) {
                        Ok(outcome) => return Attempt::Over(Ok(outcome)),
                        Err(error) => break self.uncancelled_error(error),
                    }
                }
                Err(CallError::TimedOut(_)) => {}
                Err(error) => break error,
            }
            if control.is_cancelled() {
                return Attempt::Over(Err(self.cancelled()));
            }
            if call.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Attempt::Over(Err(self.too_late()));
            }
            if self.is_superseded(placed)
                && !self.arguments_overwritten(&call)
                && self.may_leave(control)
            {
                self.checked = Some(call.checked);
                return Attempt::Superseded;
            }
        };
        let how = ended(&error);
        if how == AttemptOutcome::Failed || self.arguments_overwritten(&call) {
            return Attempt::Over(Err(error));
        }
        if !self.may_leave(control) {
            // A server that calls a function has begun to run the call.
            return Attempt::Over(Err(match error.has_not_run() {
                true => CallError::Server(format!("{error}, after it had called a function")),
                false => error,
            }));
        }
        self.checked = Some(call.checked);
        Attempt::Failed(error, how)
    }

    /// Runs a callback in this thread, or hands it to the waiting thread.
    fn serve(
        &mut self,
        call: &Call<'_>,
        called: Result<Box<CallbackInvocation>, String>,
        control: &Control,
    ) -> Result<(), CallError> {
        let (link, stream, deadline) = (&call.ticket.link, call.ticket.stream, call.deadline);
        let Some(completion) = &control.completion else {
            self.called = true;
            let (called, ended) = answer(&mut self.functions, called);
            return link.return_from(stream, called, ended, deadline);
        };
        completion.ask(PendingCallback { link: Arc::clone(link), stream, called, deadline });
        Ok(())
    }

    /// Whether the call may leave this attempt for another. It may not after a callback has run, unless the
    /// routine may run twice.
    fn may_leave(&self, control: &Control) -> bool {
        let twice = self.placing.idempotent;
        let with_completion =
            control.completion.as_ref().is_none_or(|completion| completion.leave(twice));
        with_completion && (twice || !self.called)
    }

    /// Whether the metaserver has moved or ended the running call. If the metaserver is gone, the client
    /// tells the next one of the call, which would otherwise count as abandoned.
    fn is_superseded(&mut self, placed: &Placement) -> bool {
        let answered = self.place_request.as_ref().map(|(_, ticket)| ticket.is_answered());
        match &mut self.place_request {
            Some((meta, ticket)) if !meta.link.is_broken() => {
                if answered == Some(false) {
                    meta.link.check_alive();
                    return false;
                }
                if !self.is_reattaching {
                    return true;
                }
                match ticket.wait(Some(Instant::now()), &|| false) {
                    Ok(Ok(Answer::Placed(it))) if attempt(&it) == attempt(placed) => {
                        self.is_reattaching = false;
                    }
                    Ok(Err(failure)) if failure.code == Code::NotLeading => {
                        self.inner.lost(meta);
                        self.leave_stream();
                    }
                    // The new metaserver does not know the call. The call goes on and needs no other place.
                    Ok(_) => {
                        self.leave_stream();
                        self.unknown_to_metaserver = true;
                    }
                    // The connection is lost; the client asks the next metaserver.
                    Err(_) => self.leave_stream(),
                }
                false
            }
            _ => {
                self.reattach();
                false
            }
        }
    }

    /// Tells the next metaserver of the running call.
    fn reattach(&mut self) {
        if let Some((meta, _)) = self.place_request.take() {
            self.inner.lost(&meta);
        }
        if self.unknown_to_metaserver {
            return;
        }
        if let Some(meta) = Inner::at_hand(&self.inner) {
            // Any other error shows when the call ends.
            self.is_reattaching = self.request_place_on(&meta, false).unwrap_or(false);
        }
    }

    /// Gives up the stream at the metaserver.
    fn leave_stream(&mut self) {
        self.place_request = None;
        self.is_reattaching = false;
    }

    /// Whether results may have overwritten arguments. Then the call cannot be sent again.
    fn arguments_overwritten(&self, call: &Call<'_>) -> bool {
        call.checked.overwrites() && call.ticket.link.has_results(call.ticket.stream)
    }
}

/// Ticket and server of an attempt. Both are needed: two unrelated metaservers may use the same ticket.
pub(crate) fn attempt(placed: &Placement) -> (kumi_rpc::Ticket, String) {
    (placed.ticket, placed.address.clone())
}

fn server(placed: &Placement) -> String {
    format!("{} ({})", placed.server, placed.address)
}
