//! Model of the lock between main thread and handler thread.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::explore;
use crate::lock::DriveLock;
use crate::sync::begin;

struct Guarded(DriveLock, UnsafeCell<u32>);

// SAFETY: the count is only touched with the lock held, which the model checks.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn count(&self) {
        // SAFETY: the lock is held.
        self.1.with_mut(|count| unsafe { *count += 1 });
    }
}

/// One thread at a time reaches the guarded data, and the main thread always gets the lock.
pub fn main_and_handler_exclude_each_other() {
    explore(4, || {
        let _run = begin(std::ptr::null(), 0);
        let guarded = Arc::new(Guarded(DriveLock::default(), UnsafeCell::new(0)));
        let other = Arc::clone(&guarded);
        let handler = thread::spawn(move || {
            let mut done = 0;
            for _ in 0..2 {
                if other.0.try_lock_handler() {
                    other.count();
                    other.0.unlock_handler();
                    done += 1;
                }
            }
            done
        });
        for _ in 0..2 {
            while !guarded.0.try_lock_main() {
                guarded.0.await_handler();
                thread::yield_now();
            }
            guarded.count();
            guarded.0.unlock_main();
        }
        let done: u32 = handler.join().expect("the handler ends");
        // SAFETY: the other thread has ended.
        assert_eq!(guarded.1.with(|count| unsafe { *count }), 2 + done);
    });
}
