//! Atomics, sleeps and memory marks for the shared-memory protocols. The crate `kumi-models` compiles
//! the same sources with another module in its place, whose atomics a model checker watches.

pub(crate) use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// Tries of a main thread for its lock before it sleeps.
pub(crate) const LOCK_TRIES: u32 = 200;

/// The fence of the side that runs often. With [`heavy_fence`] of another thread it orders as two sequentially consistent
/// fences do; by itself, and with its like, it does nothing.
#[inline(always)]
pub(crate) fn light_fence() {
    compiler_fence(SeqCst);
}

/// A full fence right after an atomic exchange, which is one itself where this says nothing.
#[inline(always)]
pub(crate) fn fence_after_exchange() {
    if cfg!(all(target_arch = "x86_64", not(miri))) {
        compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
    }
}

/// The fence of the side that runs seldom: a fence in all threads of this process, made by the system. False if it makes none.
pub(crate) fn heavy_fence() -> bool {
    // Miri knows neither the call nor, between threads, the fences that compilers alone obey.
    if cfg!(miri) {
        return false;
    }
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    // SAFETY: the call takes no pointers and changes no memory.
    let membarrier =
        |command: libc::c_int| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 };
    *REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
        && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

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

/// As [`futex_wait`], at most so many microseconds.
pub(crate) fn futex_wait_for(word: &AtomicU32, expected: u32, microseconds: u64) {
    let time = crate::sys::timespec(microseconds);
    // SAFETY: as above; the time is read during the call.
    unsafe {
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, &raw const time)
    };
}

/// Wakes a thread of this process that sleeps at a word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    wake(word, 1);
}

/// Wakes all threads of this process that sleep at a word.
pub(crate) fn futex_wake_all(word: &AtomicU32) {
    wake(word, i32::MAX);
}

fn wake(word: &AtomicU32, most: i32) {
    // SAFETY: the word outlives the call.
    unsafe {
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, most)
    };
}
