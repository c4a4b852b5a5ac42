//! Atomics and memory marks for queues in window memory. The crate `kumi-models` compiles the same
//! source with another module in its place, whose atomics a model checker watches.

use std::ptr::NonNull;

pub(crate) use kumi_net::sys::{sleep_while, wake_sleeper};
pub(crate) use kumi_net::{CopySource, SharedBytesMut};
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};

/// Says to a model that plain memory is read here.
#[inline(always)]
pub(crate) fn reads(_start: *const u8, _bytes: usize) {}

/// Says to a model that plain memory is written here.
#[inline(always)]
pub(crate) fn writes(_start: *const u8, _bytes: usize) {}

/// Fills memory, in which records' words may lie, with zeros.
///
/// # Safety
/// The bytes are the caller's to write.
pub(crate) unsafe fn zero(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { SharedBytesMut::new(start, bytes) }.clear();
}

/// The word at an address.
///
/// # Safety
/// Eight aligned bytes are there for as long as the reference is used.
pub(crate) unsafe fn word<'m>(address: NonNull<u8>) -> &'m AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(address.as_ptr().cast()) }
}
