//! Messages that are claimed before they are received.

use std::ffi::{c_int, c_void};

use kumi_mem::ClaimedMessage;

use crate::args::{check, output, required, source, store, tag_pattern};
use crate::message::{KumiStatus, finish};
use crate::state::with;

/// `kumi_claim` of `kumi_requests.h`: opaque to C.
pub struct KumiClaim {
    message: ClaimedMessage<'static>,
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `status` points to a status or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_message_await(
    from: c_int,
    tag: c_int,
    status: *mut KumiStatus,
) -> c_int {
    with(|state| {
        let (source, pattern) = (source(from)?, tag_pattern(tag)?);
        let seen = state.context.await_message(source, pattern)?;
        // SAFETY: promised by the caller.
        unsafe { store(status, seen.into()) }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `found` points to an int, `claim` to memory for a handle, `status` to a status or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_message_claim(
    from: c_int,
    tag: c_int,
    found: *mut c_int,
    claim: *mut *mut KumiClaim,
    status: *mut KumiStatus,
) -> c_int {
    with(|state| {
        let (source, pattern) = (source(from)?, tag_pattern(tag)?);
        required(found, "found")?;
        required(claim, "claim")?;
        check(status, usize::from(!status.is_null()), "status")?;
        state.claims.room()?;
        let message = state.context.claim(source, pattern)?;
        // SAFETY: promised by the caller.
        unsafe { store(found, c_int::from(message.is_some())) }?;
        let Some(message) = message else { return Ok(()) };
        let told = message.status().into();
        let handle = state.claims.give(KumiClaim { message })?;
        // SAFETY: promised by the caller.
        unsafe {
            store(status, told)?;
            store(claim, handle)
        }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `buffer` points to `capacity` bytes, `status` to a status or nothing; no other call uses the claim, now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_claim_recv(
    claim: *mut KumiClaim,
    buffer: *mut c_void,
    capacity: usize,
    status: *mut KumiStatus,
) -> c_int {
    with(|state| {
        // SAFETY: promised by the caller.
        let buffer = unsafe { output(buffer, capacity, "buffer") }?;
        check(status, usize::from(!status.is_null()), "status")?;
        // SAFETY: the program promises that no other call uses the claim.
        let KumiClaim { message } = unsafe { state.claims.take(claim) }?;
        let KumiStatus { source, tag, .. } = message.status().into();
        let outcome = message.receive_shared(buffer);
        // SAFETY: promised by the caller.
        unsafe { finish(outcome, source, tag, status) }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// No other call uses the claim, now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_claim_free(claim: *mut KumiClaim) -> c_int {
    // SAFETY: the program promises that no other call uses the claim.
    with(|state| unsafe { state.claims.free(claim) })
}
