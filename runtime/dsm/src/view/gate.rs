//! The lock of a view: many threads may map at the same time; who drops or collects is alone.
//!
//! It is taken in signal handlers, which decides how it is made:
//!
//! - Who maps waits only for somebody who is alone in there, never for one who waits. So a thread that was interrupted while it
//!   maps can map once more in a handler.
//! - Who is alone has signals blocked. So no handler of that thread waits for it.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Somebody is alone inside.
const ALONE: u32 = 1 << 31;
/// Somebody sleeps at the gate. The bits below count who maps.
const SLEEPERS: u32 = 1 << 30;
/// So often a thread looks before it sleeps: mapping takes microseconds.
const LOOKS: u32 = 100;

/// See above.
#[derive(Debug, Default)]
pub(super) struct Gate(AtomicU32);

/// Held by who maps.
pub(super) struct Shared<'g>(&'g Gate);

/// Held by who is alone; signals of this thread wait until it is dropped.
pub(super) struct Alone<'g> {
    gate: &'g Gate,
    // Given back after the gate.
    _signals: BlockedSignals,
}

impl Gate {
    pub(super) fn share(&self) -> Shared<'_> {
        self.enter(ALONE, |state| state + 1);
        Shared(self)
    }

    pub(super) fn alone(&self) -> Alone<'_> {
        let signals = BlockedSignals::block();
        self.enter(!SLEEPERS, |state| state | ALONE);
        Alone { gate: self, _signals: signals }
    }

    /// Waits until none of the bits `closed` is set, then makes the change.
    fn enter(&self, closed: u32, change: impl Fn(u32) -> u32) {
        let mut looks = 0;
        loop {
            let state = self.0.load(Relaxed);
            if state & closed == 0 {
                if self.0.compare_exchange_weak(state, change(state), Acquire, Relaxed).is_ok() {
                    return;
                }
            } else if looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
            } else {
                let sleeping = state | SLEEPERS;
                if self.0.compare_exchange(state, sleeping, Relaxed, Relaxed).is_ok() {
                    sleep_while(&self.0, sleeping);
                }
            }
        }
    }

    fn wake(&self) {
        // SAFETY: the word outlives the call, which does not change it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
            )
        };
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        let gate = self.0;
        let left = gate.0.fetch_sub(1, AcqRel) - 1;
        // The last one wakes those who want to be alone; if somebody came in between, that one is the last.
        if left == SLEEPERS && gate.0.compare_exchange(left, 0, Relaxed, Relaxed).is_ok() {
            gate.wake();
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if self.gate.0.swap(0, AcqRel) & SLEEPERS != 0 {
            self.gate.wake();
        }
    }
}

fn sleep_while(word: &AtomicU32, value: u32) {
    let none: *const libc::timespec = std::ptr::null();
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call. Every return is answered by looking again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, none) };
}

/// The signals that a thread had blocked before; all are blocked until this is dropped.
pub(crate) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    /// Blocks all signals but those of faults, which come at once or end the process.
    pub(crate) fn block() -> BlockedSignals {
        let (mut all, mut before) = (empty(), empty());
        // SAFETY: the sets are this function's; filling one, taking signals from it and blocking them touch nothing else.
        unsafe {
            libc::sigfillset(&raw mut all);
            for fault in [
                libc::SIGSEGV,
                libc::SIGBUS,
                libc::SIGILL,
                libc::SIGFPE,
                libc::SIGTRAP,
                libc::SIGABRT,
            ] {
                libc::sigdelset(&raw mut all, fault);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        }
        BlockedSignals(before)
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// A set of no signals.
pub(super) fn empty() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: the call fills the set in, whatever it was.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn who_is_alone_sees_nobody_and_all_get_through() {
        let (gate, inside, rounds) = (Gate::default(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (gate, inside, rounds) = (&gate, &inside, &rounds);
                scope.spawn(move || {
                    for round in 0..5000 {
                        if round % 4 == thread {
                            let _alone = gate.alone();
                            assert_eq!(inside.load(Relaxed), 0, "somebody maps meanwhile");
                        } else {
                            let _shared = gate.share();
                            inside.fetch_add(1, Relaxed);
                            std::hint::spin_loop();
                            inside.fetch_sub(1, Relaxed);
                        }
                        rounds.fetch_add(1, Relaxed);
                    }
                });
            }
        });
        assert_eq!((rounds.into_inner(), gate.0.into_inner()), (20_000, 0));
    }

    #[test]
    fn a_thread_maps_inside_of_its_mapping_while_another_wants_to_be_alone() {
        let gate = Gate::default();
        let first = gate.share();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(gate.alone()));
            while gate.0.load(Relaxed) & SLEEPERS == 0 {
                std::thread::yield_now();
            }
            drop(gate.share());
            assert!(!waiter.is_finished(), "it was alone although somebody maps");
            drop(first);
        });
        assert_eq!(gate.0.into_inner(), 0);
    }
}
