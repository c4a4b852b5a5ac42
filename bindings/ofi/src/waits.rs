//! Waiting of the calls that block, and how programs ask to wait.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::abi::{self, fi_wait_obj};
use crate::engine::Engine;
use crate::errors::{Answer, FI_EINVAL, FI_ENODATA, FI_ENOSYS};

/// The channel's wait wakes for what comes from others. What another thread of the program does, as `fi_cq_signal`, is seen
/// after at most so long.
const SLICE: Duration = Duration::from_millis(10);

/// Waits until `ready`, at most `timeout` milliseconds; negative: for ever. Gives whether it was ready.
///
/// # Errors
/// The channel's.
pub fn until(engine: &Engine, timeout: c_int, mut ready: impl FnMut() -> bool) -> Answer<bool> {
    let end =
        u64::try_from(timeout).ok().map(|timeout| Instant::now() + Duration::from_millis(timeout));
    engine.poll()?;
    loop {
        if ready() {
            return Ok(true);
        }
        let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(false);
        }
        engine.wait(left.min(SLICE), &mut ready)?;
    }
}

/// Whether a wait object of this kind has a descriptor.
///
/// # Errors
/// `FI_ENOSYS` for kinds that are not offered.
pub fn has_descriptor(kind: fi_wait_obj) -> Answer<bool> {
    match kind {
        abi::FI_WAIT_NONE | abi::FI_WAIT_UNSPEC | abi::FI_WAIT_YIELD => Ok(false),
        abi::FI_WAIT_FD => Ok(true),
        _ => Err(FI_ENOSYS),
    }
}

/// `fi_control` of what can be waited for: `FI_GETWAIT` and `FI_GETWAITOBJ`.
///
/// # Safety
/// `argument` is NULL or points to what libfabric says for the command.
pub unsafe fn control(
    command: c_int,
    argument: *mut c_void,
    kind: fi_wait_obj,
    descriptor: Option<RawFd>,
) -> Answer<()> {
    if !matches!(u32::try_from(command), Ok(abi::FI_GETWAIT | abi::FI_GETWAITOBJ)) {
        return Err(FI_ENOSYS);
    }
    if argument.is_null() {
        return Err(FI_EINVAL);
    }
    if command == abi::FI_GETWAITOBJ as c_int {
        // SAFETY: for this command it points to an `enum fi_wait_obj`.
        unsafe { argument.cast::<fi_wait_obj>().write_unaligned(kind) };
        return Ok(());
    }
    let descriptor = descriptor.ok_or(FI_ENODATA)?;
    // SAFETY: for this command and an object with FI_WAIT_FD it points to an `int`.
    unsafe { argument.cast::<c_int>().write_unaligned(descriptor) };
    Ok(())
}
