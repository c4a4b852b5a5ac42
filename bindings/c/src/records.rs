//! Records sent to the FIFOs and signal ports of many ranks.

use std::ffi::{c_int, c_void};

use kumi_mem::{SharedBytes, SharedBytesMut};

use crate::args::{check, input, list, output, rank};
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
    body: impl FnOnce(WindowRef<'_>, &[u32], SharedBytes<'_>) -> Result<(), Failure>,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        // SAFETY: promised by the caller.
        let ranks = unsafe { list(ranks, count, "ranks") }?;
        let ranks: Vec<u32> = ranks.iter().map(|number| rank(*number)).collect::<Result<_, _>>()?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data, length, "data") }?;
        body(window, &ranks, data)
    })
}

/// Tells C which of the ranks took it: all but those in `full`, which are in rising order.
fn tell(taken: SharedBytesMut<'_>, ranks: &[u32], full: &[u32]) {
    let took = |rank: &u32| c_int::from(full.binary_search(rank).is_err());
    let told: Vec<u8> = ranks.iter().flat_map(|rank| took(rank).to_ne_bytes()).collect();
    taken.copy_from(&told[..]);
}

/// Room for a number for each rank.
///
/// # Safety
/// `numbers` is null or points to memory for `count` numbers.
unsafe fn room<'a>(
    numbers: *mut c_int,
    count: usize,
    what: &str,
) -> Result<SharedBytesMut<'a>, Failure> {
    check(numbers, count, what)?;
    // SAFETY: promised by the caller.
    unsafe { output(numbers.cast(), count * size_of::<c_int>(), what) }
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
            window.multicast_append_shared(ranks, offset, data, true)?;
            Ok(())
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
            let appended = room(appended, count, "appended")?;
            let full = window.multicast_append_shared(ranks, offset, data, false)?;
            tell(appended, ranks, &full);
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
            window.multicast_signal_shared(ranks, offset, data, true)?;
            Ok(())
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
            let sent = room(sent, count, "sent")?;
            let full = window.multicast_signal_shared(ranks, offset, data, false)?;
            tell(sent, ranks, &full);
            Ok(())
        })
    }
}
