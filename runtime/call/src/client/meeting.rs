//! Where the thread that runs a call meets those that wait for it: they hear of its end, and call the functions of the
//! program that its routine calls.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::bell::Bells;
use super::functions::answer;
use super::link::{Called, Link};
use super::{Bell, CallError, Callback, Outcome};

/// A function that a routine waits for.
#[derive(Debug)]
pub struct Asked {
    pub link: Arc<Link>,
    pub stream: u32,
    pub called: Result<Box<Called>, String>,
    pub deadline: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    result: Option<Result<Outcome, CallError>>,
    /// The end was told.
    taken: bool,
    asked: Option<Asked>,
    /// A function was called in this attempt.
    called: bool,
}

/// What both sides share.
#[derive(Debug, Default)]
pub struct Meeting {
    state: Mutex<State>,
    news: Condvar,
    /// Of threads that wait for several calls.
    bells: Bells,
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
    /// This function is to be called: [`Meeting::serve`].
    Called(Asked),
    /// Nothing yet.
    Nothing,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Meeting {
    /// For a call with these functions.
    pub fn new(functions: Vec<(u16, Callback<'static>)>) -> Meeting {
        Meeting { functions: Mutex::new(functions), ..Meeting::default() }
    }

    /// An attempt begins.
    pub fn begin(&self) {
        let mut state = locked(&self.state);
        (state.asked, state.called) = (None, false);
    }

    /// The routine calls a function.
    pub fn ask(&self, asked: Asked) {
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
        self.bells.ring();
        self.news.notify_all();
    }

    /// Has a bell ring whenever there is something to be done.
    pub fn listen(&self, bell: &Arc<Bell>) {
        self.bells.add(bell);
    }

    /// It rings no more.
    pub fn leave_off(&self, bell: &Arc<Bell>) {
        self.bells.remove(bell);
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
    pub fn serve(&self, asked: Asked) {
        let Asked { link, stream, called, deadline } = asked;
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
