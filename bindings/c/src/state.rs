//! The one context of the process, and the rules for using it.
//!
//! [`Context`] is not `Sync`, so the pointer to the state is
//! kept in a slot of the thread that made it. Other threads find their slot
//! empty and are refused; no lock is needed. In a child that the process makes with `fork`, which
//! is no rank, every thread finds its slot empty.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use kumi_mem::{Context, Group};

use crate::claim::KumiClaim;
use crate::code::{Code, Failure, report};
use crate::fifo::KumiFifo;
use crate::group::{KumiGroup, Operations};
use crate::handle::HandleTable;
use crate::queue::KumiQueue;
use crate::transfer::KumiCompletion;
use crate::window::KumiWindow;

/// State between `kumi_init` and `kumi_finalize`.
pub struct State {
    /// The job as this rank sees it. Leaked so that windows can borrow it for
    /// as long as the state lives; [`finalise`] takes it back.
    pub context: &'static Context,
    /// FIFOs. They borrow their windows, so they stand, and are dropped, before those.
    pub fifos: HandleTable<KumiFifo>,
    /// Windows.
    pub windows: HandleTable<KumiWindow>,
    /// Completions.
    pub completions: HandleTable<KumiCompletion>,
    /// Queues of ends of requests.
    pub queues: HandleTable<KumiQueue>,
    /// Claimed messages.
    pub claims: HandleTable<KumiClaim>,
    /// The group of all ranks.
    pub job: Group<'static>,
    /// Groups that were made of it.
    pub groups: HandleTable<KumiGroup>,
    /// The program's operations.
    pub operations: Operations,
}

/// Some thread holds a state.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// This process is a fork of one that held a state.
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread's state, made by `Box::into_raw`, or null.
    static STATE: Cell<*mut State> = const { Cell::new(ptr::null_mut()) };
}

fn current() -> Result<*mut State, Failure> {
    let state = STATE.with(Cell::get);
    if !state.is_null() {
        Ok(state)
    } else if FORKED.load(Ordering::Relaxed) {
        Err(Code::Forked.into())
    } else if ACTIVE.load(Ordering::Acquire) {
        Err(Code::WrongThread.into())
    } else {
        Err(Code::NotInitialised.into())
    }
}

/// Called by the system in the only thread of a fork's child. The state of the rank is left as it is:
/// freeing the copy would take resources that the rank still uses.
extern "C" fn forked() {
    if ACTIVE.load(Ordering::Relaxed) {
        FORKED.store(true, Ordering::Relaxed);
        // While the thread ends there is no slot either.
        let _ = STATE.try_with(|slot| slot.set(ptr::null_mut()));
    }
}

/// Has [`forked`] called in all children from now on.
fn watch_forks() -> Result<(), Failure> {
    static WATCHED: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the function lives as long as the library, and does only what may be done between a
    // fork and what follows it: it stores two words.
    let code = *WATCHED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(forked)) });
    if code == 0 { Ok(()) } else { Err(Code::Memory.into()) }
}

/// Runs `body`, turns its failure or panic into a number.
pub fn guard(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::Ok as c_int,
        Ok(Err(failure)) => report(&failure),
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a panic without a message".to_owned());
            report(&Failure::new(
                Code::Internal,
                format!("{}: {what}", Code::Internal.text().to_string_lossy()),
            ))
        }
    }
}

/// Runs `body` with the state, if this thread has it.
pub fn with(body: impl FnOnce(&State) -> Result<(), Failure>) -> c_int {
    guard(|| {
        let state = current()?;
        // SAFETY: `current` gave this thread's own pointer, which `initialise`
        // made and only `finalise`, in the same thread, invalidates. `body`
        // cannot call it: what the library calls of the program's in this thread it calls by `away` (signal handlers
        // have threads of their own).
        body(unsafe { &*state })
    })
}

/// Runs a function of the program's inside of a call. It finds no state, so it cannot end the one that the call uses.
pub fn away<R>(body: impl FnOnce() -> R) -> R {
    struct Back(*mut State);
    impl Drop for Back {
        fn drop(&mut self) {
            STATE.with(|slot| slot.set(self.0));
        }
    }
    let _back = Back(STATE.with(|slot| slot.replace(ptr::null_mut())));
    body()
}

/// Like [`with`], for functions that return a number themselves; a failure's
/// number is returned in its place.
pub fn value(body: impl FnOnce(&State) -> Result<c_int, Failure>) -> c_int {
    let mut result = 0;
    let code = with(|state| {
        result = body(state)?;
        Ok(())
    });
    if code == Code::Ok as c_int { result } else { code }
}

/// `kumi_init`: makes the context.
pub fn initialise() -> Result<(), Failure> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Code::Forked.into());
    }
    watch_forks()?;
    if ACTIVE.swap(true, Ordering::AcqRel) {
        return Err(Code::AlreadyInitialised.into());
    }
    let made = catch_unwind(Context::init);
    let context = match made {
        Ok(Ok(context)) => context,
        Ok(Err(error)) => {
            ACTIVE.store(false, Ordering::Release);
            return Err(error.into());
        }
        Err(panic) => {
            ACTIVE.store(false, Ordering::Release);
            std::panic::resume_unwind(panic);
        }
    };
    let context: &'static Context = Box::leak(Box::new(context));
    let state = Box::new(State {
        context,
        fifos: HandleTable::new(Code::Fifo),
        windows: HandleTable::new(Code::Window),
        completions: HandleTable::new(Code::Completion),
        queues: HandleTable::new(Code::Queue),
        claims: HandleTable::new(Code::Claim),
        job: context.group(),
        groups: HandleTable::new(Code::Group),
        operations: Operations::default(),
    });
    STATE.with(|slot| slot.set(Box::into_raw(state)));
    Ok(())
}

/// `kumi_finalize`: frees what C still holds, then the context.
pub fn finalise() -> Result<(), Failure> {
    let pointer = current()?;
    STATE.with(|slot| slot.set(ptr::null_mut()));
    // SAFETY: the pointer came from `Box::into_raw` in `initialise` and was
    // just removed from the only place that held it.
    let state = unsafe { Box::from_raw(pointer) };
    let context = ptr::from_ref(state.context).cast_mut();
    drop(state);
    // SAFETY: `initialise` leaked this box; the windows and the state, which
    // borrowed it, are gone.
    let context = unsafe { Box::from_raw(context) };
    let outcome = context.finalize();
    ACTIVE.store(false, Ordering::Release);
    Ok(outcome?)
}
