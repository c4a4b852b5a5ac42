//! Atomics, sleeps and memory as the model checker sees them.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

pub(crate) use crate::shared_bytes::{CopySource, SharedBytesMut};
use loom::cell::UnsafeCell;
pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::atomic::fence;
use loom::sync::{Condvar, Mutex};

/// Tries of a main thread for its lock before it sleeps.
pub(crate) const LOCK_TRIES: u32 = 1;

/// Where a sequentially consistent access has its fence. Compilers do it in these two ways; a program must be right with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fences {
    /// Before each access.
    Before,
    /// After each access that writes; loads have none.
    AfterWrites,
}

/// The system's fence for all threads orders as if each of the others made one wherever it is then. Both sides are
/// therefore full fences here, but for the order among light ones, on which no protocol relies.
pub(crate) fn light_fence() {
    fence(SeqCst);
}

pub(crate) fn fence_after_exchange() {
    fence(SeqCst);
}

pub(crate) fn heavy_fence() -> bool {
    fence(SeqCst);
    true
}

fn place(fences: Fences) {
    if FENCES.get() == fences {
        fence(SeqCst);
    }
}

fn load<R>(order: Ordering, access: impl FnOnce(Ordering) -> R) -> R {
    if order != SeqCst {
        return access(order);
    }
    place(Fences::Before);
    access(Acquire)
}

fn write<R>(order: Ordering, weaker: Ordering, access: impl FnOnce(Ordering) -> R) -> R {
    if order != SeqCst {
        return access(order);
    }
    place(Fences::Before);
    let result = access(weaker);
    place(Fences::AfterWrites);
    result
}

macro_rules! atomic {
    ($name:ident, $word:ty) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        impl $name {
            pub(crate) fn load(&self, order: Ordering) -> $word {
                load(order, |order| self.0.load(order))
            }

            pub(crate) fn store(&self, value: $word, order: Ordering) {
                write(order, Release, |order| self.0.store(value, order));
            }

            pub(crate) fn swap(&self, value: $word, order: Ordering) -> $word {
                write(order, AcqRel, |order| self.0.swap(value, order))
            }

            pub(crate) fn fetch_or(&self, value: $word, order: Ordering) -> $word {
                write(order, AcqRel, |order| self.0.fetch_or(value, order))
            }

            pub(crate) fn fetch_sub(&self, value: $word, order: Ordering) -> $word {
                write(order, AcqRel, |order| self.0.fetch_sub(value, order))
            }

            pub(crate) fn fetch_add(&self, value: $word, order: Ordering) -> $word {
                write(order, AcqRel, |order| self.0.fetch_add(value, order))
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $word,
                new: $word,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$word, $word> {
                write(success, AcqRel, |order| {
                    self.0.compare_exchange(current, new, order, failure)
                })
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

/// The checker's record of eight bytes of plain memory.
#[derive(Debug, Default)]
struct ShadowWord {
    plain: UnsafeCell<()>,
    /// The word, where it is used as an atomic.
    word: AtomicU64,
}

/// State that the threads of one run share beside the values of a model: memory reached by pointers,
/// and the kernel's list of sleepers.
#[derive(Debug)]
struct RunState {
    start: usize,
    shadows: Vec<ShadowWord>,
    sleepers: (Mutex<()>, Condvar),
}

// The checker runs all threads of a model in turn on one of the system's.
thread_local! {
    static RUN_STATE: RefCell<Option<Rc<RunState>>> = const { RefCell::new(None) };
    static FENCES: Cell<Fences> = const { Cell::new(Fences::Before) };
}

fn run_state() -> Rc<RunState> {
    RUN_STATE.with_borrow(Clone::clone).expect("a model begins with `begin`")
}

/// Says where the fences of the next models are.
pub(crate) fn fences(fences: Fences) {
    FENCES.set(fences);
}

/// Begins a run whose threads share this memory; it ends when the value is dropped.
pub(crate) fn begin(start: *const u8, bytes: usize) -> Run {
    let shadows = (0..bytes.div_ceil(8)).map(|_| ShadowWord::default()).collect();
    let sleepers = (Mutex::new(()), Condvar::new());
    RUN_STATE.set(Some(Rc::new(RunState { start: start as usize, shadows, sleepers })));
    Run
}

/// See [`begin`].
#[derive(Debug)]
pub(crate) struct Run;

impl Drop for Run {
    fn drop(&mut self) {
        RUN_STATE.take();
    }
}

impl RunState {
    fn shadows(&self, start: *const u8, bytes: usize) -> &[ShadowWord] {
        let offset = (start as usize).checked_sub(self.start).expect("inside of the memory");
        &self.shadows[offset / 8..(offset + bytes).div_ceil(8)]
    }
}

#[track_caller]
pub(crate) fn reads(start: *const u8, bytes: usize) {
    if bytes > 0 {
        run_state().shadows(start, bytes).iter().for_each(|shadow| shadow.plain.with(|_| ()));
    }
}

#[track_caller]
pub(crate) fn writes(start: *const u8, bytes: usize) {
    if bytes > 0 {
        run_state().shadows(start, bytes).iter().for_each(|shadow| shadow.plain.with_mut(|_| ()));
    }
}

/// # Safety
/// The bytes are the caller's to write.
pub(crate) unsafe fn zero(start: NonNull<u8>, bytes: usize) {
    writes(start.as_ptr(), bytes);
    if bytes > 0 {
        let run_state = run_state();
        run_state
            .shadows(start.as_ptr(), bytes)
            .iter()
            .for_each(|shadow| shadow.word.store(0, Relaxed));
    }
    // SAFETY: the caller's promise.
    unsafe { SharedBytesMut::new(start, bytes) }.clear();
}

/// # Safety
/// As for the one of `kumi-mem`, and the reference does not outlive the run.
pub(crate) unsafe fn word<'m>(address: NonNull<u8>) -> &'m AtomicU64 {
    let run_state = run_state();
    let word = &raw const run_state.shadows(address.as_ptr(), 8)[0].word;
    // SAFETY: the world is there until the run ends.
    unsafe { &*word }
}

/// The kernel looks at the word and puts the caller to sleep as one step towards those who wake.
pub(crate) fn sleep_while(word: &AtomicU32, value: u32) {
    let run_state = run_state();
    let (list, sleepers) = &run_state.sleepers;
    let list = list.lock().expect("no model panics here");
    if word.load(Relaxed) == value {
        drop(sleepers.wait(list).expect("no model panics here"));
    }
}

pub(crate) fn wake_sleeper(_: &AtomicU32) {
    let run_state = run_state();
    let (list, sleepers) = &run_state.sleepers;
    drop(list.lock().expect("no model panics here"));
    sleepers.notify_all();
}

pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    sleep_while(word, expected);
}

pub(crate) fn futex_wait_for(word: &AtomicU32, expected: u32, _: u64) {
    sleep_while(word, expected);
}

pub(crate) fn futex_wake(word: &AtomicU32) {
    wake_sleeper(word);
}

pub(crate) fn futex_wake_all(word: &AtomicU32) {
    wake_sleeper(word);
}
