//! End and pending callback of a call that runs in a thread of its own, shared with the threads that wait for
//! it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::functions::serve;
use super::super::link::{CallbackInvocation, Link};
use super::super::wake_event::WakeEvents;
use super::super::{CallError, Callback, Outcome, WakeEvent, locked};

/// A function that the routine called and that a waiting thread is to run.
#[derive(Debug)]
pub struct PendingCallback {
    pub link: Arc<Link>,
    pub stream: u32,
    pub called: Result<Box<CallbackInvocation>, String>,
    pub deadline: Option<Instant>,
    /// When the time of the call is over, for the function.
    pub time_over: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    result: Option<Result<Outcome, CallError>>,
    /// The end was reported.
    taken: bool,
    asked: Option<PendingCallback>,
    /// A function was called in this attempt.
    called: bool,
}

/// State that the running thread and the waiting threads share.
#[derive(Debug, Default)]
pub struct Completion {
    state: Mutex<State>,
    news: Condvar,
    /// Wake events of threads that wait for several calls.
    wake_events: WakeEvents,
    /// The thread that runs one of these functions holds the lock.
    functions: Mutex<Vec<(u16, Callback<'static>)>>,
}

/// What a waiting thread has to do next.
#[derive(Debug)]
pub enum Next {
    /// The end of the call; reported once.
    Over(Result<Outcome, CallError>),
    /// The end was reported before.
    AlreadyReported,
    /// Run this function: [`Completion::serve`].
    Callback(PendingCallback),
    /// Nothing yet.
    Nothing,
}

impl Completion {
    /// The state of a call with these functions.
    pub fn new(functions: Vec<(u16, Callback<'static>)>) -> Completion {
        Completion { functions: Mutex::new(functions), ..Completion::default() }
    }

    /// An attempt begins.
    pub fn begin(&self) {
        let mut state = locked(&self.state);
        (state.asked, state.called) = (None, false);
    }

    /// The routine calls a function.
    pub fn ask(&self, asked: PendingCallback) {
        let mut state = locked(&self.state);
        state.asked = Some(asked);
        drop(state);
        self.wake();
    }

    /// Asks to leave this attempt for another. Returns false if a function was called in it, unless the call
    /// may run `twice`. After true no function of this attempt runs.
    pub fn leave(&self, twice: bool) -> bool {
        let mut state = locked(&self.state);
        let may = twice || !state.called;
        if may {
            state.asked = None;
        }
        may
    }

    /// The call is over.
    pub fn end(&self, result: Result<Outcome, CallError>) {
        let mut state = locked(&self.state);
        state.asked = None;
        state.result = Some(result);
        drop(state);
        self.wake();
    }

    fn wake(&self) {
        self.wake_events.wake();
        self.news.notify_all();
    }

    /// Sets the wake event whenever a waiting thread has something to do.
    pub fn listen(&self, wake_event: &Arc<WakeEvent>) {
        self.wake_events.add(wake_event);
    }

    /// Removes the wake event.
    pub fn stop_listening(&self, wake_event: &Arc<WakeEvent>) {
        self.wake_events.remove(wake_event);
    }

    /// Whether a waiting thread has something to do.
    pub fn has_news(&self) -> bool {
        let state = locked(&self.state);
        state.result.is_some() || state.taken || state.asked.is_some()
    }

    /// Whether the call is over.
    pub fn is_over(&self) -> bool {
        let state = locked(&self.state);
        state.result.is_some() || state.taken
    }

    /// Waits at most this long for something to do.
    pub fn next(&self, time: Duration) -> Next {
        let mut state = locked(&self.state);
        if state.result.is_none() && state.asked.is_none() && !state.taken && !time.is_zero() {
            let waited = self.news.wait_timeout(state, time);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(result) = state.result.take() {
            state.taken = true;
            drop(state);
            self.forget_functions();
            return Next::Over(result);
        }
        if state.taken {
            return Next::AlreadyReported;
        }
        match state.asked.take() {
            Some(asked) => {
                state.called = true;
                Next::Callback(asked)
            }
            None => Next::Nothing,
        }
    }

    /// Runs a function in this thread, and sends its result to the server.
    pub fn serve(&self, asked: PendingCallback) {
        // If the result cannot be sent, the running thread finds the connection lost or the time over.
        let _lost = serve(locked(&self.functions), asked);
    }

    /// No function runs from now on; waits for one that is running.
    pub fn forget_functions(&self) {
        let functions = std::mem::take(&mut *locked(&self.functions));
        // Dropped without the lock: what the functions captured belongs to the program.
        drop(functions);
    }
}
