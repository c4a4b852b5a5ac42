//! Where the thread that runs a call meets those that wait for it: they hear of its end, and call the functions of the
//! program that its routine calls.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::functions::answer;
use super::link::{CallbackInvocation, Link};
use super::wake_event::WakeEvents;
use super::{CallError, Callback, Outcome, WakeEvent};

/// A function that a routine waits for.
#[derive(Debug)]
pub struct PendingCallback {
    pub link: Arc<Link>,
    pub stream: u32,
    pub called: Result<Box<CallbackInvocation>, String>,
    pub deadline: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    result: Option<Result<Outcome, CallError>>,
    /// The end was told.
    taken: bool,
    asked: Option<PendingCallback>,
    /// A function was called in this attempt.
    called: bool,
}

/// What both sides share.
#[derive(Debug, Default)]
pub struct Completion {
    state: Mutex<State>,
    news: Condvar,
    /// Of threads that wait for several calls.
    wake_events: WakeEvents,
    /// Who calls one of them holds the lock.
    functions: Mutex<Vec<(u16, Callback<'static>)>>,
}

/// What who waits has to do next.
#[derive(Debug)]
pub enum Next {
    /// This is the end, which is told once.
    Over(Result<Outcome, CallError>),
    /// The end was told before.
    Told,
    /// This function is to be called: [`Completion::serve`].
    Called(PendingCallback),
    /// Nothing yet.
    Nothing,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Completion {
    /// For a call with these functions.
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
        self.ring();
    }

    /// The attempt is to be left for another. That may be if no function was called in it, or if the call may run `twice`:
    /// then none is from now on.
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
        self.ring();
    }

    fn ring(&self) {
        self.wake_events.ring();
        self.news.notify_all();
    }

    /// Has a bell ring whenever there is something to be done.
    pub fn listen(&self, wake_event: &Arc<WakeEvent>) {
        self.wake_events.add(wake_event);
    }

    /// It rings no more.
    pub fn stop_listening(&self, wake_event: &Arc<WakeEvent>) {
        self.wake_events.remove(wake_event);
    }

    /// Whether there is something to be done.
    pub fn has_news(&self) -> bool {
        let state = locked(&self.state);
        state.result.is_some() || state.taken || state.asked.is_some()
    }

    /// Whether the end has come.
    pub fn is_over(&self) -> bool {
        let state = locked(&self.state);
        state.result.is_some() || state.taken
    }

    /// Waits for at most so long for what is to be done next.
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
            return Next::Told;
        }
        match state.asked.take() {
            Some(asked) => {
                state.called = true;
                Next::Called(asked)
            }
            None => Next::Nothing,
        }
    }

    /// Calls a function, in this thread, and tells its server how it ended.
    pub fn serve(&self, asked: PendingCallback) {
        let PendingCallback { link, stream, called, deadline } = asked;
        let (called, ended) = answer(&mut locked(&self.functions), called);
        // Where that cannot be told the thread that runs the call finds the connection lost, or its time over.
        let _lost = link.return_from(stream, called, ended, deadline);
    }

    /// No function is called any more; one that runs is waited for.
    pub fn forget_functions(&self) {
        let functions = std::mem::take(&mut *locked(&self.functions));
        // Without the lock: what goes with them is the program's.
        drop(functions);
    }
}
