//! Requests to a metaserver.

use std::time::{Duration, Instant};

use kumi_rpc::{AttemptReport, Client, Code, Failure, PlacementRequest, Ticket, TraceContext};

use super::requests::no_name;
use super::{Answer, Link, PendingStream, State};
use crate::CallError;
use crate::native::Source;

/// How long a metaserver may take to read a request.
const READS: Duration = Duration::from_secs(10);

impl Link {
    /// Queues a request for a place, which [`Link::send_soon`] sends. Before it goes in which trace the call is. Does not wait.
    /// If it `is_queued`, [`Link::next_ready`] reports the answer.
    pub fn request_place(
        &self,
        placing: &PlacementRequest,
        trace: Option<&TraceContext>,
        is_queued: bool,
    ) -> Result<u32, CallError> {
        self.check_ours()?;
        let mut state = self.lock();
        if let Some(broken) = &state.broken {
            return Err(CallError::Lost(broken.clone()));
        }
        let State { rpc, soon, .. } = &mut *state;
        let before = soon.len();
        let stream = rpc.request_placement(placing, soon).map_err(|_| no_name(&placing.routine))?;
        if let Some(trace) = trace {
            Client::trace(stream, trace, before, soon);
        }
        let pending = PendingStream { queued: is_queued, ..PendingStream::default() };
        state.pending.insert(stream, pending);
        Ok(stream)
    }

    /// Sends the queued requests, unless another thread is doing so. A metaserver that does not read them is
    /// lost.
    pub fn send_soon(&self) -> Result<(), CallError> {
        is_lost(self.flush_within(READS))
    }

    /// Reports how an attempt ended.
    pub fn over(&self, stream: u32, over: &AttemptReport) -> Result<(), CallError> {
        let mut out = Vec::new();
        self.lock().rpc.report_attempt(stream, over, &mut out);
        self.put_short(&out)
    }

    /// Says why an attempt failed; [`Link::over`] follows.
    pub fn reason(&self, stream: u32, ticket: Ticket, text: &str) -> Result<(), CallError> {
        let mut out = Vec::new();
        self.lock().rpc.attempt_reason(stream, ticket, text, &mut out);
        self.put_short(&out)
    }

    /// Sends a short request. A metaserver that does not read it in time is lost.
    fn put_short(&self, out: &[u8]) -> Result<(), CallError> {
        is_lost(self.put(&[Source::Bytes(out)], Some(Instant::now() + READS), &|| false))
    }

    /// Waits for an answer to one of the queued requests. `None`: none arrived in time.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn next_ready(&self, deadline: Instant) -> Result<Option<u32>, CallError> {
        let take = |state: &mut State| state.ready.pop_front();
        match self.wait_until(take, Some(deadline), &|| false) {
            Err(CallError::TimedOut(_)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Whether the connection is lost. Looks at what has arrived, without waiting.
    pub fn is_lost(&self) -> bool {
        let mut state = self.lock();
        if !state.driving {
            state.poll_input(&self.wire);
        }
        state.broken.is_some()
    }

    /// Whether the connection is known to be lost.
    pub fn is_broken(&self) -> bool {
        self.lock().broken.is_some()
    }

    /// Gives up a call: its results are written nowhere, and the server is asked to end it.
    pub fn give_up(&self, stream: u32) {
        let mut state = self.lock();
        let State { rpc, soon, .. } = &mut *state;
        rpc.cancel(stream, soon);
        state.rpc.abandon(stream);
        if let Some(pending) = state.pending.get_mut(&stream) {
            pending.give_back();
            if !pending.is_over() {
                let text = "the call was cancelled";
                pending.answer = Some(Err(Failure::new(Code::Cancelled, 0, text)));
            }
        }
        state.wake_events.wake();
        drop(state);
        self.turn.notify_all();
        // If this cannot be sent, the connection is gone, and the call with it.
        let _lost = self.flush();
    }

    /// Whether results of a call have begun to arrive.
    pub fn has_results(&self, stream: u32) -> bool {
        self.lock().pending.get(&stream).is_some_and(|pending| pending.head.is_some())
    }
}

/// A request that was not sent in time may be half sent, so the connection was closed.
fn is_lost(sent: Result<(), CallError>) -> Result<(), CallError> {
    match sent {
        Err(CallError::TimedOut(_)) => Err(CallError::Lost("it does not read".to_owned())),
        other => other,
    }
}

/// Whether more answers follow on the stream of this one.
pub fn goes_on<E>(answer: &Result<Answer, E>) -> bool {
    matches!(answer, Ok(Answer::Placed(_) | Answer::Callback(_) | Answer::Created))
}
