//! The one context of the process, and the rules for using it.
//!
//! [`Context`] is not `Sync`, so a slot of the thread that made it keeps the state. Other threads find their
//! slots empty and are refused; no lock is needed. While a call waits, it releases the interpreter's lock.
//! This thread is inside the call meanwhile, so no Python code in it can call the library again. The
//! exception are signal handlers, whose calls are refused ([`ask`]).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kumi_mem::{Completion, Context, Group};
use pyo3::prelude::*;

use crate::error::{Failure, forget_cause, keep_signal};
use crate::fifo::{FifoEntry, close_all};
use crate::request::Requests;
use crate::window::{WindowEntry, WindowOnMemory};

/// Interval at which a wait checks for signals that Python handles.
const SLICE: Duration = Duration::from_millis(25);

/// The state between `initialise` and `finalize`.
pub struct State {
    /// This rank's job. Leaked so that windows can borrow it for as long as the state lives; [`finalise`]
    /// takes it back.
    pub context: &'static Context,
    /// Windows that still have memory, by number.
    pub windows: RefCell<HashMap<u64, WindowEntry>>,
    /// FIFOs that were not freed, by number.
    pub fifos: RefCell<HashMap<u64, FifoEntry>>,
    /// The signal ports: window and offset.
    pub ports: RefCell<Vec<(u64, usize)>>,
    /// Completions of the Python program, by number.
    pub completions: RefCell<HashMap<u64, Rc<Completion<'static>>>>,
    /// Groups that were not freed, by number.
    pub groups: RefCell<HashMap<u64, Rc<Group<'static>>>>,
    /// Requests whose results nobody has taken.
    pub requests: Requests,
}

impl State {
    /// The window with a number.
    pub fn window(&self, number: u64) -> Result<Rc<WindowOnMemory>, Failure> {
        let windows = self.windows.borrow();
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

thread_local! {
    /// This thread's state. If the thread ends without `finalize` the state stays, because numpy arrays in
    /// other threads may still show memory of its windows.
    static STATE: RefCell<Option<ManuallyDrop<Rc<State>>>> = const { RefCell::new(None) };
    /// A Python signal handler runs while a call of this thread waits.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// This thread's state.
pub fn current() -> Result<Rc<State>, Failure> {
    if FORKED.load(Ordering::Relaxed) {
        let text = "this process is a fork of a rank; only the rank itself can communicate";
        return Err(Failure::new("ForkedError", text));
    }
    if ASKING.get() {
        let text = "called by a signal handler of Python while another call waits";
        return Err(Failure::new("KumiError", text));
    }
    if let Some(state) = STATE.with_borrow(|slot| slot.clone().map(ManuallyDrop::into_inner)) {
        return Ok(state);
    }
    if ACTIVE.load(Ordering::Acquire) {
        let text = "called by another thread than the one that called kumi.init()";
        return Err(Failure::new("WrongThreadError", text));
    }
    Err(Failure::new("NotInitialisedError", "kumi.init() has not been called"))
}

/// Whether this thread has a state.
pub fn is_owner() -> bool {
    current().is_ok()
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

/// Lets Python run handlers of pending signals. Returns true if one raised an exception; the waiting call
/// then ends with that.
fn ask() -> bool {
    Python::attach(|py| {
        ASKING.set(true);
        let raised = py.check_signals().map_err(keep_signal).is_err();
        ASKING.set(false);
        raised
    })
}

/// Makes the context.
pub fn initialise(py: Python<'_>) -> Result<(), Failure> {
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
        windows: RefCell::default(),
        fifos: RefCell::default(),
        ports: RefCell::default(),
        completions: RefCell::default(),
        groups: RefCell::default(),
        requests: Requests::default(),
    };
    STATE.with_borrow_mut(|slot| *slot = Some(ManuallyDrop::new(Rc::new(state))));
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

/// Frees the windows, then the context.
pub fn finalise(py: Python<'_>) -> Result<(), Failure> {
    close_all(py, current()?.as_ref(), None)?;
    let taken = STATE.with_borrow_mut(Option::take).map(ManuallyDrop::into_inner);
    let Some(state) = taken else { return Ok(()) };
    let state = match Rc::try_unwrap(state) {
        Ok(state) => state,
        Err(state) => {
            // A buffer of a class written in Python can run code during a call.
            STATE.with_borrow_mut(|slot| *slot = Some(ManuallyDrop::new(state)));
            return Err(Failure::new("KumiError", "kumi.finalize() inside of another call"));
        }
    };
    state.requests.end(state.context);
    drop(state.requests);
    drop((state.completions, state.groups));
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
    Ok(outcome?)
}
