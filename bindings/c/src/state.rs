//! The one context of the process, and the rules for using it.
//!
//! The pointer to the state is kept in a slot of the thread that made it. Other threads find their slot
//! empty and are refused; no lock is needed. A program that asks for several threads has the pointer in a place for all of
//! them, too, and their calls are counted, so that none finds the state gone. In a child that the process makes with `fork`,
//! which is no rank, every thread finds nothing.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use kumi_mem::{Context, Group};

use crate::claim::KumiClaim;
use crate::code::{Code, Failure, report};
use crate::dsm::Shared;
use crate::fifo::KumiFifo;
use crate::group::{KumiGroup, Operations};
use crate::handle::HandleTable;
use crate::queue::KumiQueue;
use crate::transfer::KumiCompletion;
use crate::window::KumiWindow;

/// State between `kumi_init` and `kumi_finalize`.
pub struct State {
    /// The shared memory. It uses the context and no handles; other ranks wait for its end, so it ends first.
    pub shared: Shared,
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

/// The state, if all threads may use it.
static SHARED: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// Calls of other threads than that of `kumi_init_threads` that use it.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The state that this thread has made, by `Box::into_raw`, or null.
    static STATE: Cell<*mut State> = const { Cell::new(ptr::null_mut()) };
    /// This thread runs a function of the program's that the library has called.
    static AWAY: Cell<bool> = const { Cell::new(false) };
}

/// Several threads may use a state that was made for them.
const _: () = {
    const fn for_all_threads<T: Sync>() {}
    for_all_threads::<State>();
};

/// A call that uses the state.
struct Entered {
    state: *mut State,
    counted: bool,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.counted {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Begins a call.
fn enter() -> Result<Entered, Failure> {
    if AWAY.get() {
        return Err(Code::WrongThread.into());
    }
    let own = STATE.with(Cell::get);
    if !own.is_null() {
        return Ok(Entered { state: own, counted: false });
    }
    if !SHARED.load(Ordering::Relaxed).is_null() {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        // Counted first: `finalise` takes the state away, then looks whether anybody is counted.
        let entered = Entered { state: SHARED.load(Ordering::SeqCst), counted: true };
        if !entered.state.is_null() {
            return Ok(entered);
        }
    }
    Err(if FORKED.load(Ordering::Relaxed) {
        Code::Forked.into()
    } else if ACTIVE.load(Ordering::Acquire) {
        Code::WrongThread.into()
    } else {
        Code::NotInitialised.into()
    })
}

/// Called by the system in the only thread of a fork's child. The state of the rank is left as it is:
/// freeing the copy would take resources that the rank still uses.
extern "C" fn forked() {
    if ACTIVE.load(Ordering::Relaxed) {
        FORKED.store(true, Ordering::Relaxed);
        SHARED.store(ptr::null_mut(), Ordering::Relaxed);
        // While the thread ends there is no slot either.
        let _ = STATE.try_with(|slot| slot.set(ptr::null_mut()));
    }
}

/// Has [`forked`] called in all children from now on.
fn watch_forks() -> Result<(), Failure> {
    static WATCHED: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the function lives as long as the library, and does only what may be done between a
    // fork and what follows it: it stores three words.
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

/// Runs `body` with the state, if this thread may use it.
pub fn with(body: impl FnOnce(&State) -> Result<(), Failure>) -> c_int {
    guard(|| {
        let entered = enter()?;
        // SAFETY: `initialise` made it. Only `finalise` invalidates it: in the thread that made it, which is not in a call of
        // `body` then, since what the library calls of the program's it calls by `away`; and not while other threads are
        // counted.
        body(unsafe { &*entered.state })
    })
}

/// Runs a function of the program's inside of a call, or on a thread of the library. It finds no state, so it cannot end the
/// one that the call uses, nor wait for its own end.
pub fn away<R>(body: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            AWAY.set(self.0);
        }
    }
    let _back = Back(AWAY.replace(true));
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

/// `kumi_init`: makes the context, for this thread alone or for all.
pub fn initialise(several: bool) -> Result<(), Failure> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Code::Forked.into());
    }
    watch_forks()?;
    kumi_mem::set_locator(crate::locate::locate);
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
        shared: Shared::default(),
        context,
        fifos: HandleTable::new(Code::Fifo, several),
        windows: HandleTable::new(Code::Window, several),
        completions: HandleTable::new(Code::Completion, several),
        queues: HandleTable::new(Code::Queue, several),
        claims: HandleTable::new(Code::Claim, several),
        job: context.group(),
        groups: HandleTable::new(Code::Group, several),
        operations: Operations::default(),
    });
    let state = Box::into_raw(state);
    STATE.with(|slot| slot.set(state));
    if several {
        SHARED.store(state, Ordering::SeqCst);
    }
    Ok(())
}

/// `kumi_finalize`: frees what C still holds, then the context.
pub fn finalise() -> Result<(), Failure> {
    let Entered { state: pointer, counted: false } = enter()? else {
        return Err(Failure::new(
            Code::WrongThread,
            "kumi_finalize is for the thread that has called kumi_init_threads",
        ));
    };
    // From here on no other thread begins a call; those that have begun are counted.
    let shared = SHARED.swap(ptr::null_mut(), Ordering::SeqCst);
    if INSIDE.load(Ordering::SeqCst) > 0 {
        SHARED.store(shared, Ordering::SeqCst);
        return Err(Code::Busy.into());
    }
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
