//! Atomics, sleeps and memory marks for the shared-memory protocols. The crate `kumi-models` compiles
//! the same sources with another module in its place, whose atomics a model checker watches.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// Tries of a main thread for its lock before it sleeps.
pub(crate) const LOCK_TRIES: u32 = 200;

/// Says to a model that plain memory is read here.
#[inline(always)]
pub(crate) fn reads(_start: *const u8, _bytes: usize) {}

/// Says to a model that plain memory is written here.
#[inline(always)]
pub(crate) fn writes(_start: *const u8, _bytes: usize) {}

/// Sleeps while a word of this process has this value, until [`futex_wake`] or for no reason.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    let none: *const libc::timespec = std::ptr::null();
    // SAFETY: the word outlives the call. Any return (woken, value changed, signal) is answered by
    // trying again.
    unsafe {
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, none)
    };
}

/// Wakes a thread of this process that sleeps at a word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1)
    };
}
