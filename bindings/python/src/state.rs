//! The one context of the process, and the rules for using it.
//!
//! One place for all threads leads to the state. Unless the program has asked for several threads, all but the one that made it
//! are refused. A call keeps the state until it returns, so that its end finds out whether anybody is in a call.
//!
//! The interpreter's lock is held wherever tables are locked. Nobody releases it or runs code of the program meanwhile, so none
//! waits long for them. While a call waits, it releases the interpreter's lock. Signal handlers of Python that run then, and
//! handlers of signal ports, are refused.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kumi_mem::{ClaimedMessage, Completion, Context, Group};
use pyo3::prelude::*;

use crate::call_name;
use crate::error::{Failure, forget_cause, keep_signal};
use crate::fifo::{FifoEntry, close_all};
use crate::request::{Requests, must_look_again};
use crate::shared::JobMemory;
use crate::window::{WindowEntry, WindowOnMemory};

/// Interval at which a wait checks for signals that Python handles.
pub const SLICE: Duration = Duration::from_millis(25);

/// A table of the state.
#[derive(Debug, Default)]
pub struct StateTable<T>(Mutex<T>);

impl<T> StateTable<T> {
    /// A table.
    pub const fn new(contents: T) -> StateTable<T> {
        StateTable(Mutex::new(contents))
    }

    /// Locks it. Meanwhile nobody releases the interpreter's lock, waits, or drops what may run code of the program.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was in it.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state between `initialise` and `finalize`.
pub struct State {
    /// This rank's job. Leaked so that windows can borrow it for as long as the state lives; [`finalise`]
    /// takes it back.
    pub context: &'static Context,
    /// Windows that still have memory, by number.
    pub windows: StateTable<HashMap<u64, WindowEntry>>,
    /// FIFOs that were not freed, by number.
    pub fifos: StateTable<HashMap<u64, FifoEntry>>,
    /// The signal ports: window and offset.
    pub ports: StateTable<Vec<(u64, usize)>>,
    /// Completions of the Python program, by number.
    pub completions: StateTable<HashMap<u64, Arc<Completion<'static>>>>,
    /// Groups that were not freed, by number.
    pub groups: StateTable<HashMap<u64, Arc<Group<'static>>>>,
    /// Messages that were claimed and not received yet, by number.
    pub claims: StateTable<HashMap<u64, ClaimedMessage<'static>>>,
    /// Requests whose results nobody has taken.
    pub requests: Requests,
    /// The shared memory of all ranks.
    pub shared: JobMemory,
    /// All threads may call.
    threads: bool,
}

/// Something of the state, and the state, which stays as long as it is used.
pub struct StateRef<T> {
    // In the order of their ends.
    thing: Arc<T>,
    state: Arc<State>,
}

impl<T> StateRef<T> {
    /// Something of a state.
    pub fn new(thing: Arc<T>, state: Arc<State>) -> StateRef<T> {
        StateRef { thing, state }
    }

    /// The state.
    pub fn state(&self) -> &State {
        &self.state
    }
}

impl<T> Deref for StateRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.thing
    }
}

impl State {
    /// The window with a number.
    pub fn window(&self, number: u64) -> Result<Arc<WindowOnMemory>, Failure> {
        let windows = self.windows.lock();
        let gone = || Failure::new("FreedWindowError", "this window is not one of this job");
        windows.get(&number).map(WindowEntry::window).ok_or_else(gone)
    }
}

/// A number for a window, FIFO or completion that this process has not used before.
pub fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Some thread holds a state.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// This process is a fork of one with a state. Only the parent is the rank.
static FORKED: AtomicBool = AtomicBool::new(false);
/// The state. If its thread ends without `finalize` it stays, because numpy arrays may still show memory of its windows.
static STATE: StateTable<Option<Arc<State>>> = StateTable::new(None);

thread_local! {
    /// This thread has made the state.
    static OWNER: Cell<bool> = const { Cell::new(false) };
    /// A Python signal handler runs while a call of this thread waits.
    static ASKING: Cell<bool> = const { Cell::new(false) };
    /// This thread is a signal port's.
    static HANDLING: Cell<bool> = const { Cell::new(false) };
}

/// Several threads may use a state.
const _: () = {
    const fn for_all_threads<T: Send + Sync>() {}
    for_all_threads::<State>();
};

/// The state, if this thread may use it.
pub fn current() -> Result<Arc<State>, Failure> {
    if FORKED.load(Ordering::Relaxed) {
        let text = "this process is a fork of a rank; only the rank itself can communicate";
        return Err(Failure::new("ForkedError", text));
    }
    if ASKING.get() {
        let text = "called by a signal handler of Python while another call waits";
        return Err(Failure::new("KumiError", text));
    }
    let Some(state) = STATE.lock().clone() else {
        return Err(Failure::new("NotInitialisedError", "kumi.init() has not been called"));
    };
    if HANDLING.get() {
        let text = "called by the handler of a signal port";
        return Err(Failure::new("WrongThreadError", text));
    }
    if !state.threads && !OWNER.get() {
        let text = "called by another thread than the one that called kumi.init(), which did not \
                    say threads=True";
        return Err(Failure::new("WrongThreadError", text));
    }
    Ok(state)
}

/// This thread is a signal port's: its calls are refused.
pub fn handles_signals() {
    HANDLING.set(true);
}

/// Whether this thread has made the state.
pub fn is_owner() -> bool {
    OWNER.get() && current().is_ok()
}

/// Whether any thread of this process has a state.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Acquire) && !FORKED.load(Ordering::Relaxed)
}

/// Refuses every call from now on: for the child of a fork.
pub fn fork() {
    if ACTIVE.load(Ordering::Acquire) {
        FORKED.store(true, Ordering::Relaxed);
    }
}

/// Runs `body` without the interpreter's lock, so that other threads of the program can run.
///
/// `body` must not touch Python objects, but may read and write memory of buffers that the caller
/// holds for the length of the call.
pub fn released<R: Send>(py: Python<'_>, body: impl FnOnce() -> R) -> R {
    struct SameThread<F>(F);
    impl<R, F: FnOnce() -> R> SameThread<F> {
        fn run(self) -> R {
            (self.0)()
        }
    }
    // SAFETY: `detach` asks for `Send` to keep Python objects out, and runs the closure at once in
    // the calling thread: nothing is sent anywhere.
    unsafe impl<F> Send for SameThread<F> {}
    let here = SameThread(body);
    py.detach(move || here.run())
}

/// Lets Python run handlers of pending signals. Returns true if one raised an exception, with which the waiting call then
/// ends, or if the call has to look again.
fn ask() -> bool {
    // While the interpreter is shutting down nobody handles signals any more.
    let asked = Python::try_attach(|py| {
        call_name::tell(py);
        ASKING.set(true);
        let raised = py.check_signals().map_err(keep_signal).is_err();
        ASKING.set(false);
        raised
    });
    asked.unwrap_or(false) || must_look_again()
}

/// As [`ask`], for a wait that is not the library's.
///
/// # Errors
/// The exception that a handler raised.
pub fn check_signals() -> Result<(), Failure> {
    // Its exception takes the place of this failure.
    if ask() { Err(Failure::new("KumiError", "a signal handler ended the call")) } else { Ok(()) }
}

/// Makes the context, for this thread alone or for all.
pub fn initialise(py: Python<'_>, threads: bool) -> Result<(), Failure> {
    if FORKED.load(Ordering::Relaxed) {
        return current().map(drop);
    }
    if ACTIVE.swap(true, Ordering::AcqRel) {
        let text = "kumi.init() has been called already; once is enough";
        return Err(Failure::new("AlreadyInitialisedError", text));
    }
    let make = || -> Result<SentContext, kumi_mem::Error> {
        let context = Context::init()?;
        context.interruptible(SLICE, ask)?;
        Ok(SentContext::new(Box::new(context)))
    };
    let context = match released(py, make) {
        Ok(context) => context.leak(),
        Err(error) => {
            ACTIVE.store(false, Ordering::Release);
            return Err(error.into());
        }
    };
    let state = State {
        context,
        windows: StateTable::default(),
        fifos: StateTable::default(),
        ports: StateTable::default(),
        completions: StateTable::default(),
        groups: StateTable::default(),
        claims: StateTable::default(),
        requests: Requests::default(),
        shared: JobMemory::default(),
        threads,
    };
    OWNER.set(true);
    *STATE.lock() = Some(Arc::new(state));
    forget_cause();
    Ok(())
}

/// A context on its way out of [`released`], whose result must be `Send`.
struct SentContext(Box<Context>);

// SAFETY: `released` runs in the calling thread, so the context never changes threads.
unsafe impl Send for SentContext {}

impl SentContext {
    fn new(context: Box<Context>) -> SentContext {
        SentContext(context)
    }

    fn leak(self) -> &'static Context {
        Box::leak(self.0)
    }
}

/// Frees the windows, then the context. Only for the thread that made it, and while no other thread is in a call.
///
/// If there is shared memory all ranks end it together, unless this one does not `wait`.
pub fn finalise(py: Python<'_>, wait: bool) -> Result<(), Failure> {
    drop(current()?);
    if !OWNER.get() {
        let text = "kumi.finalize() is for the thread that called kumi.init()";
        return Err(Failure::new("WrongThreadError", text));
    }
    // From here on no other thread begins a call; those that have begun keep the state.
    let Some(mut taken) = STATE.lock().take() else { return Ok(()) };
    if Arc::get_mut(&mut taken).is_none() {
        *STATE.lock() = Some(taken);
        // A buffer of a class written in Python can run code during a call of this thread, too.
        let text = "kumi.finalize() inside of another call, or while other threads are in calls";
        return Err(Failure::new("BusyError", text));
    }
    let closed = close_all(py, &taken, None);
    let state = match (closed, Arc::try_unwrap(taken)) {
        (Ok(()), Ok(state)) => state,
        (closed, kept) => {
            *STATE.lock() = Some(kept.map_or_else(|kept| kept, Arc::new));
            return closed;
        }
    };
    OWNER.set(false);
    state.requests.end(state.context);
    drop(state.requests);
    let ended = state.shared.end(py, wait);
    drop((state.completions, state.groups, state.claims, state.fifos));
    let windows = state.windows.into_inner().into_values();
    let shown = windows.map(WindowEntry::end).filter(|shown| *shown).count();
    let context = std::ptr::from_ref(state.context).cast_mut();
    // SAFETY: `initialise` leaked this box, and the state is gone. The windows borrow the box too; only
    // windows that were forgotten, because arrays show them, are left.
    let context = unsafe { Box::from_raw(context) };
    let outcome = released(py, || {
        if shown == 0 { context.finalize() } else { context.finalize_keeping_memory() }
    });
    ACTIVE.store(false, Ordering::Release);
    ended?;
    Ok(outcome?)
}
