//! Locks, barriers and conditions.

use std::ffi::c_int;

use kumi_dsm::{Error, SharedMemory};

use crate::load::waiting;
use crate::state::{fail, good, running};

/// A lock or condition, as Kumi counts them.
fn number(function: &str, number: c_int) -> u32 {
    let small = format_args!("{number} is negative; numbers are 0 or greater");
    u32::try_from(number).unwrap_or_else(|_| fail(function, small))
}

fn with(function: &str, call: impl FnOnce(&SharedMemory) -> Result<(), Error>) {
    let jia = running(function);
    good(function, waiting(|| call(&jia.memory)));
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_lock(lock: c_int) {
    with("jia_lock", |memory| memory.acquire_lock(number("jia_lock", lock)));
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_unlock(lock: c_int) {
    with("jia_unlock", |memory| memory.unlock(number("jia_unlock", lock)));
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_barrier() {
    with("jia_barrier", SharedMemory::barrier);
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_wait() {
    with("jia_wait", SharedMemory::wait);
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_setcv(condition: c_int) {
    with("jia_setcv", |memory| memory.set_condition(number("jia_setcv", condition)));
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_resetcv(condition: c_int) {
    with("jia_resetcv", |memory| memory.reset_condition(number("jia_resetcv", condition)));
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_waitcv(condition: c_int) {
    with("jia_waitcv", |memory| memory.wait_condition(number("jia_waitcv", condition)));
}
