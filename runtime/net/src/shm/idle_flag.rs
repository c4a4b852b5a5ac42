//! Idle flag of a rank, beside its count of frames taken. The rank writes both; the daemon reads them
//! while the rank runs.

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::sync::{AtomicU32, AtomicU64};

/// Sets the flag; it is cleared before anything that arrived is taken.
#[inline]
pub(crate) fn set_idle(flag: &AtomicU32, idle: bool) {
    flag.store(u32::from(idle), Release);
}

/// Counts what was taken, after the flag was cleared.
#[inline]
pub(crate) fn tell_delivered(counter: &AtomicU64, delivered: u64) {
    counter.store(delivered, Release);
}

/// Reads the count, then the flag: never idle from before what was counted. What the rank said before it set the flag is
/// seen by whoever sees that.
pub(crate) fn sample(flag: &AtomicU32, counter: &AtomicU64) -> (bool, u64) {
    let delivered = counter.load(Acquire);
    (flag.load(Acquire) == 1, delivered)
}
