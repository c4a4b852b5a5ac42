//! The lock that decides which thread drives a channel: the program's main thread or the handler
//! thread.
//!
//! - The main thread is never kept out for long: the handler holds the lock only while it applies what
//!   has arrived.
//! - The main thread's unlock is a plain store: the handler never waits for the lock, it goes back to
//!   sleep instead.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::sync::{AtomicU32, LOCK_TRIES, futex_wait, futex_wake, spin_loop};

const FREE: u32 = 0;
const MAIN: u32 = 1;
const HANDLER: u32 = 2;
/// Held by the handler, and the main thread sleeps until it is free.
const HANDLER_AWAITED: u32 = 3;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DriveLock(AtomicU32);

impl DriveLock {
    /// Takes the lock for the main thread.
    pub(crate) fn lock_main(&self) {
        for _ in 0..LOCK_TRIES {
            if self.0.compare_exchange(FREE, MAIN, Acquire, Relaxed).is_ok() {
                return;
            }
            spin_loop();
        }
        loop {
            match self.0.compare_exchange(FREE, MAIN, Acquire, Relaxed) {
                Ok(_) => return,
                Err(_) => {
                    let _ = self.0.compare_exchange(HANDLER, HANDLER_AWAITED, Relaxed, Relaxed);
                    futex_wait(&self.0, HANDLER_AWAITED);
                }
            }
        }
    }

    /// Gives it back. Nobody ever sleeps for it.
    pub(crate) fn unlock_main(&self) {
        self.0.store(FREE, Release);
    }

    /// Whether nobody holds it, as of some moment.
    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Relaxed) == FREE
    }

    /// Takes it for the handler if it is free.
    pub(crate) fn try_lock_handler(&self) -> bool {
        self.0.compare_exchange(FREE, HANDLER, Acquire, Relaxed).is_ok()
    }

    /// Gives it back and wakes the main thread if that sleeps for it.
    pub(crate) fn unlock_handler(&self) {
        if self.0.swap(FREE, Release) == HANDLER_AWAITED {
            futex_wake(&self.0);
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
            for _ in 0..200_000 {
                guarded.0.lock_main();
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
