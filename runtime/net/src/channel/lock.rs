//! The lock that decides which thread drives a channel: one of the program's threads or the handler
//! thread.
//!
//! - A thread of the program is never kept out for long by the handler, which holds the lock only while it applies what
//!   has arrived.
//! - Its unlock is a plain store: the handler never waits for the lock, it goes back to sleep instead. Other threads of
//!   the program that want the lock say so in `handover`.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::sync::{AtomicU32, futex_wait, futex_wake_all};

const FREE: u32 = 0;
const MAIN: u32 = 1;
const HANDLER: u32 = 2;
/// Held by the handler, and the main thread sleeps until it is free.
const HANDLER_AWAITED: u32 = 3;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DriveLock(AtomicU32);

impl DriveLock {
    /// Takes the lock for a thread of the program, if it is free.
    #[inline]
    pub(crate) fn try_lock_main(&self) -> bool {
        self.0.compare_exchange(FREE, MAIN, Acquire, Relaxed).is_ok()
    }

    /// Sleeps as long as the handler has the lock; false if it has not.
    pub(crate) fn await_handler(&self) -> bool {
        if self.0.compare_exchange(HANDLER, HANDLER_AWAITED, Relaxed, Relaxed).is_ok()
            || self.0.load(Relaxed) == HANDLER_AWAITED
        {
            futex_wait(&self.0, HANDLER_AWAITED);
            return true;
        }
        false
    }

    /// Gives it back. Threads that sleep for it are woken by whoever gives it back (see `handover`).
    pub(crate) fn unlock_main(&self) {
        self.0.store(FREE, Release);
    }

    /// Whether nobody holds it, as of some moment.
    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Relaxed) == FREE
    }

    /// Whether a thread of the program holds it, as of some moment.
    pub(crate) fn is_held_by_main(&self) -> bool {
        self.0.load(Relaxed) == MAIN
    }

    /// Takes it for the handler if it is free.
    pub(crate) fn try_lock_handler(&self) -> bool {
        self.0.compare_exchange(FREE, HANDLER, Acquire, Relaxed).is_ok()
    }

    /// Gives it back and wakes all threads of the program that sleep for it.
    pub(crate) fn unlock_handler(&self) {
        if self.0.swap(FREE, Release) == HANDLER_AWAITED {
            futex_wake_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;
    use std::sync::atomic::AtomicBool;

    struct Guarded(DriveLock, UnsafeCell<u64>);
    // SAFETY: the counter is only touched with the lock held.
    unsafe impl Sync for Guarded {}

    #[test]
    fn the_two_threads_exclude_each_other() {
        let guarded = Guarded(DriveLock::default(), UnsafeCell::new(0));
        let stop = AtomicBool::new(false);
        let (mut by_main, mut by_handler) = (0u64, 0u64);
        std::thread::scope(|scope| {
            let handler = scope.spawn(|| {
                let guarded = &guarded;
                let mut done = 0u64;
                while !stop.load(Relaxed) {
                    if guarded.0.try_lock_handler() {
                        // SAFETY: the lock is held.
                        unsafe { *guarded.1.get() += 1 };
                        guarded.0.unlock_handler();
                        done += 1;
                    }
                }
                done
            });
            for _ in 0..if cfg!(miri) { 50 } else { 200_000 } {
                while !guarded.0.try_lock_main() {
                    guarded.0.await_handler();
                }
                // SAFETY: the lock is held.
                unsafe { *guarded.1.get() += 1 };
                guarded.0.unlock_main();
                by_main += 1;
            }
            stop.store(true, Relaxed);
            by_handler = handler.join().expect("handler");
        });
        assert_eq!(guarded.1.into_inner(), by_main + by_handler);
    }
}
