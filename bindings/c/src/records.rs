//! Records sent to the FIFOs and signal ports of many ranks.

use std::ffi::{c_int, c_void};

use crate::args::{input, output, rank};
use crate::code::Failure;
use crate::state::with;
use crate::window::{KumiWindow, WindowRef, find};

/// Runs `body` with a window, ranks and bytes that C passes.
///
/// # Safety
/// `ranks` points to `count` numbers, `data` to `length` bytes.
unsafe fn with_ranks(
    window: *mut KumiWindow,
    (ranks, count): (*const c_int, usize),
    (data, length): (*const c_void, usize),
    body: impl FnOnce(WindowRef<'_>, &[u32], &[u8]) -> Result<(), Failure>,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        // SAFETY: promised by the caller.
        let ranks = unsafe { input(ranks, count, "ranks") }?;
        let ranks: Vec<u32> = ranks.iter().map(|number| rank(*number)).collect::<Result<_, _>>()?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data.cast::<u8>(), length, "data") }?;
        body(window, &ranks, data)
    })
}

/// Tells C which of the ranks took it: all but those in `full`, which are in rising order.
fn tell(taken: &mut [c_int], ranks: &[u32], full: &[u32]) {
    for (taken, rank) in taken.iter_mut().zip(ranks) {
        *taken = c_int::from(full.binary_search(rank).is_err());
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `ranks` points to `count` numbers, `data` to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_fifo_multicast(
    window: *mut KumiWindow,
    ranks: *const c_int,
    count: usize,
    offset: usize,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        with_ranks(window, (ranks, count), (data, length), |window, ranks, data| {
            Ok(window.multicast_append(ranks, offset, data)?)
        })
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `ranks` points to `count` numbers, `data` to `length` bytes, `appended` to memory for `count`
/// numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_fifo_try_multicast(
    window: *mut KumiWindow,
    ranks: *const c_int,
    count: usize,
    offset: usize,
    data: *const c_void,
    length: usize,
    appended: *mut c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        with_ranks(window, (ranks, count), (data, length), |window, ranks, data| {
            let appended = output(appended, count, "appended")?;
            tell(appended, ranks, &window.try_multicast_append(ranks, offset, data)?);
            Ok(())
        })
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `ranks` points to `count` numbers, `data` to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_signal_multicast(
    window: *mut KumiWindow,
    ranks: *const c_int,
    count: usize,
    offset: usize,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        with_ranks(window, (ranks, count), (data, length), |window, ranks, data| {
            Ok(window.multicast_signal(ranks, offset, data)?)
        })
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `ranks` points to `count` numbers, `data` to `length` bytes, `sent` to memory for `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_signal_try_multicast(
    window: *mut KumiWindow,
    ranks: *const c_int,
    count: usize,
    offset: usize,
    data: *const c_void,
    length: usize,
    sent: *mut c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        with_ranks(window, (ranks, count), (data, length), |window, ranks, data| {
            let sent = output(sent, count, "sent")?;
            tell(sent, ranks, &window.try_multicast_signal(ranks, offset, data)?);
            Ok(())
        })
    }
}
