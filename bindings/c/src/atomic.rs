//! Atomic operations on windows.

use std::ffi::c_int;

use crate::args::{rank, store};
use crate::code::Failure;
use crate::state::with;
use crate::window::{KumiWindow, WindowRef, find};

/// Does `operation` on a window and stores what was there.
///
/// # Safety
/// `old` is null or points to memory for a `T`.
unsafe fn atomic<T>(
    window: *mut KumiWindow,
    to: c_int,
    old: *mut T,
    operation: impl FnOnce(WindowRef<'_>, u32) -> Result<T, kumi_mem::Error>,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        let before = operation(window, rank(to)?).map_err(Failure::from)?;
        // SAFETY: promised by the caller.
        unsafe { store(old, before) }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_fetch_add(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    operand: u64,
    old: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { atomic(window, to, old, |window, to| window.fetch_add(to, offset, operand)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_fetch_and(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    operand: u64,
    old: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { atomic(window, to, old, |window, to| window.fetch_and(to, offset, operand)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_fetch_or(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    operand: u64,
    old: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { atomic(window, to, old, |window, to| window.fetch_or(to, offset, operand)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_fetch_xor(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    operand: u64,
    old: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { atomic(window, to, old, |window, to| window.fetch_xor(to, offset, operand)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_swap(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    value: u64,
    old: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { atomic(window, to, old, |window, to| window.swap(to, offset, value)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_compare_swap(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    expected: u64,
    value: u64,
    old: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        atomic(window, to, old, |window, to| window.compare_swap(to, offset, expected, value))
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_fetch_add_u32(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    operand: u32,
    old: *mut u32,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { atomic(window, to, old, |window, to| window.fetch_add_u32(to, offset, operand)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_fetch_and_u32(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    operand: u32,
    old: *mut u32,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { atomic(window, to, old, |window, to| window.fetch_and_u32(to, offset, operand)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_fetch_or_u32(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    operand: u32,
    old: *mut u32,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { atomic(window, to, old, |window, to| window.fetch_or_u32(to, offset, operand)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_fetch_xor_u32(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    operand: u32,
    old: *mut u32,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { atomic(window, to, old, |window, to| window.fetch_xor_u32(to, offset, operand)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_swap_u32(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    value: u32,
    old: *mut u32,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { atomic(window, to, old, |window, to| window.swap_u32(to, offset, value)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `old` is null or points to memory for a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_compare_swap_u32(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    expected: u32,
    value: u32,
    old: *mut u32,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        atomic(window, to, old, |window, to| window.compare_swap_u32(to, offset, expected, value))
    }
}
