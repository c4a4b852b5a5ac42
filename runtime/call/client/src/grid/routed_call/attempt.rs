//! Attempts at servers.

use std::sync::Arc;
use std::time::Instant;

use kumi_routing::Event;
use kumi_rpc::AttemptOutcome;

use super::reports::measured;
use super::{Control, Place, RoutedCall, SLICE};
use crate::functions::serve;
use crate::link::{Answer, CallbackInvocation};
use crate::{Call, CallError, CallRoute, Client, locked};

impl RoutedCall<'_> {
    /// Connects to the server of a place.
    pub(crate) fn connect(&mut self, place: &Place) -> Option<Client> {
        let connected = match &self.bound {
            Some(bound) => bound.client(),
            None => self.inner.server(place),
        };
        match connected {
            Ok(client) => Some(self.equipped(client)),
            Err(error) => {
                if self.bound.is_some() {
                    self.tell(Event::Failed(error));
                    return None;
                }
                // If the connection is lost, it did not exist yet and nothing was sent.
                let unsent = error.has_not_run() || matches!(error, CallError::Lost(_));
                self.tell(if unsent { Event::NotBegun(error) } else { Event::Broken(error) });
                None
            }
        }
    }

    /// The server's client, whose calls send what they print to where the caller wants it, and ask for what the caller asks for.
    fn equipped(&self, client: Client) -> Client {
        Client { output: self.output.clone(), resources: self.resources, ..client }
    }

    /// Sends the call to the server of a place.
    pub(super) fn start(
        &mut self,
        place: &Place,
        control: &Control,
        interrupted: &dyn Fn() -> bool,
    ) {
        let Some(client) = self.connect(place) else { return };
        let time = match self.left() {
            Ok(time) => time,
            Err(error) => return self.tell(Event::Stopped(error)),
        };
        if let Err(error) = self.name_results(&client) {
            return self.tell(Event::Stopped(error));
        }
        let Some(checked) = self.checked.take() else {
            let text = "the arguments of the call are with another attempt".to_owned();
            return self.tell(Event::Stopped(CallError::Server(text)));
        };
        self.called = false;
        if let Some(completion) = &control.completion {
            completion.begin();
        }
        let begun = {
            let _lent = locked(&control.lent);
            if control.is_cancelled() {
                return self.tell(Event::Stopped(self.cancelled()));
            }
            self.tell(Event::Sent);
            let route = CallRoute {
                time,
                placed: Some(&**place),
                trace: self.trace,
                ..CallRoute::default()
            };
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
        match begun {
            Ok(call) => self.call = Some(call),
            Err((error, checked)) => {
                self.checked = Some(checked);
                self.inner.forget_server(&place.address, &client, &error);
                self.tell_failed(error);
            }
        }
    }

    /// The attempt has failed, and may be left for another unless the call would fail there too.
    pub(crate) fn tell_failed(&mut self, error: CallError) {
        self.tell(match self.ended(&error) {
            AttemptOutcome::NotBegun => Event::NotBegun(error),
            AttemptOutcome::Broken => Event::Broken(error),
            AttemptOutcome::Failed | AttemptOutcome::Done => Event::Failed(error),
        });
    }

    /// Waits a little for the end of the attempt, and looks at the metaserver.
    pub(super) fn await_end(&mut self, control: &Control, interrupted: &dyn Fn() -> bool) {
        let Some(mut call) = self.call.take() else { return };
        let broken = match call.ticket.wait(Some(Instant::now() + SLICE), interrupted) {
            Ok(Ok(Answer::Callback(called))) => self.serve(&call, called, control).err(),
            Ok(answer) => {
                let _lent = locked(&control.lent);
                if control.is_cancelled() {
                    return self.stop(call, self.cancelled(), control);
                }
                match call.end(answer) {
                    Ok(outcome) => {
                        drop(call);
                        control.runs(None);
                        let bytes = Some(self.moved);
                        self.done = self.routing.last().map(|at| measured(at, &outcome, bytes));
                        self.outcome = Some(outcome);
                        return self.tell(Event::Done);
                    }
                    Err(error) => Some(self.uncancelled_error(error)),
                }
            }
            Err(CallError::TimedOut(_)) => None,
            Err(error) => Some(error),
        };
        if let Some(error) = broken {
            return self.broken(call, error, control);
        }
        if control.is_cancelled() {
            return self.stop(call, self.cancelled(), control);
        }
        if call.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            let error = self.unanswered(&call.ticket.link);
            return self.stop(call, error, control);
        }
        self.call = Some(call);
        self.look_at_metaserver();
    }

    /// Stops the attempt and the call.
    fn stop(&mut self, call: Call<'static>, error: CallError, control: &Control) {
        drop(call);
        control.runs(None);
        self.tell(Event::Stopped(error));
    }

    /// The attempt has failed.
    fn broken(&mut self, call: Call<'static>, error: CallError, control: &Control) {
        control.runs(None);
        if self.ended(&error) == AttemptOutcome::Failed || arguments_overwritten(&call) {
            return self.tell(Event::Failed(error));
        }
        if !self.may_leave(control) {
            // A server that calls a function has begun to run the call.
            return self.tell(Event::Failed(match error.has_not_run() {
                true => CallError::Server(format!("{error}, after it had called a function")),
                false => error,
            }));
        }
        let Call { ticket, checked, client, .. } = call;
        drop(ticket);
        self.checked = Some(checked);
        if let Some(at) = self.routing.last() {
            self.inner.forget_server(&at.address, &client, &error);
        }
        self.tell_failed(error);
    }

    /// Leaves the attempt, which the metaserver has given up, if that is possible.
    pub(super) fn leave(&mut self, control: &Control) {
        match self.call.take() {
            Some(call) if !arguments_overwritten(&call) && self.may_leave(control) => {
                let Call { ticket, checked, .. } = call;
                drop(ticket);
                control.runs(None);
                self.checked = Some(checked);
                self.tell(Event::Left);
            }
            stays => {
                self.call = stays;
                self.tell(Event::Stays);
            }
        }
    }

    /// Runs a callback in this thread, or hands it to the waiting thread.
    fn serve(
        &mut self,
        call: &Call<'_>,
        called: Result<Box<CallbackInvocation>, String>,
        control: &Control,
    ) -> Result<(), CallError> {
        let asked = call.pending(called);
        match &control.completion {
            Some(completion) => completion.ask(asked),
            None => {
                self.called = true;
                return serve(&mut self.functions, asked);
            }
        }
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
}

/// Whether results may have overwritten arguments. Then the call cannot be sent again.
fn arguments_overwritten(call: &Call<'_>) -> bool {
    call.checked.overwrites() && call.ticket.link.has_results(call.ticket.stream)
}
