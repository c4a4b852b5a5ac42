//! Requests to a metaserver.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kumi_rpc::{AttemptReport, Client, Code, Failure, PlacementRequest, Ticket, TraceContext};

use super::queries::no_name;
use super::{Answer, Link, PendingStream, State};
use crate::CallError;
use crate::native::Source;

/// How long a metaserver may take to read a request.
const READS: Duration = Duration::from_secs(10);

/// Streams whose answers are reported as soon as they arrive.
#[derive(Debug, Default)]
pub struct ReadyStreams {
    /// The answered ones.
    pub streams: VecDeque<u32>,
}

/// Appends a request for a place, and before it in which trace the call is.
fn ask(
    rpc: &mut Client,
    placing: &PlacementRequest,
    trace: Option<&TraceContext>,
    out: &mut Vec<u8>,
) -> Result<u32, CallError> {
    let before = out.len();
    let stream = rpc.request_placement(placing, out).map_err(|_| no_name(&placing.routine))?;
    if let Some(trace) = trace {
        Client::trace(stream, trace, before, out);
    }
    Ok(stream)
}

impl Link {
    /// Asks for the place of a call.
    pub fn request_place(
        &self,
        placing: &PlacementRequest,
        trace: Option<&TraceContext>,
        deadline: Option<Instant>,
    ) -> Result<u32, CallError> {
        let mut out = Vec::new();
        let mut state = self.lock();
        let stream = ask(&mut state.rpc, placing, trace, &mut out)?;
        state.pending.insert(stream, PendingStream::default());
        drop(state);
        self.put_short(&out, deadline)?;
        Ok(stream)
    }

    /// Queues a request for a place, which [`Link::send_soon`] sends; [`Link::next_ready`] reports the
    /// answer. Does not wait.
    pub fn request_place_soon(
        &self,
        placing: &PlacementRequest,
        trace: Option<&TraceContext>,
    ) -> Result<u32, CallError> {
        self.check_ours()?;
        let mut state = self.lock();
        if let Some(broken) = &state.broken {
            return Err(CallError::Lost(broken.clone()));
        }
        let State { rpc, soon, .. } = &mut *state;
        let stream = ask(rpc, placing, trace, soon)?;
        state.pending.insert(stream, PendingStream { queued: true, ..PendingStream::default() });
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
        self.put_short(&out, None)
    }

    /// Says why an attempt failed; [`Link::over`] follows.
    pub fn reason(&self, stream: u32, ticket: Ticket, text: &str) -> Result<(), CallError> {
        let mut out = Vec::new();
        self.lock().rpc.attempt_reason(stream, ticket, text, &mut out);
        self.put_short(&out, None)
    }

    /// Asks for the state.
    pub fn status(&self, deadline: Option<Instant>) -> Result<u32, CallError> {
        let mut out = Vec::new();
        let mut state = self.lock();
        let stream = state.rpc.status(&mut out);
        self.begin(state, stream, PendingStream::default());
        self.put_short(&out, deadline)?;
        Ok(stream)
    }

    /// Sends a short request. A metaserver that does not read it in time is lost.
    fn put_short(&self, out: &[u8], deadline: Option<Instant>) -> Result<(), CallError> {
        let most = Instant::now() + READS;
        let until = deadline.map_or(most, |deadline| deadline.min(most));
        is_lost(self.put(&[Source::Bytes(out)], Some(until), &|| false))
    }

    /// Waits for an answer to one of the queued requests. `None`: none arrived in time.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn next_ready(&self, deadline: Instant) -> Result<Option<u32>, CallError> {
        let take = |state: &mut State| state.ready.streams.pop_front();
        match self.wait_until(take, Some(deadline), &|| false) {
            Err(CallError::TimedOut(_)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Whether the connection is lost.
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
