//! What a routine may know of its call: names of environment variables, and the clock of deadlines.

use std::ffi::CStr;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The deadline of the call that this process runs a routine for, in nanoseconds of [`monotonic_ns`]. Empty: there is none.
pub const DEADLINE: &CStr = c"KUMI_CALL_DEADLINE";

/// Nanoseconds of the clock that all processes of a machine share and nobody sets.
///
/// # Errors
/// The system has no such clock.
pub fn monotonic_ns() -> nix::Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}
