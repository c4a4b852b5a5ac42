//! Messages.

use std::ffi::{c_int, c_void};

use kumi_mem::{Error, MessageStatus};

use crate::args::{disjoint, input, output, rank, required, source, store, tag, tag_pattern};
use crate::code::Failure;
use crate::state::with;

/// `kumi_status` of `kumi.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KumiStatus {
    /// The rank that sent the message.
    pub source: c_int,
    /// The tag it was sent with.
    pub tag: c_int,
    /// Its length in bytes.
    pub length: usize,
}

impl From<MessageStatus> for KumiStatus {
    fn from(received: MessageStatus) -> Self {
        KumiStatus {
            source: c_int::try_from(received.from).unwrap_or(c_int::MAX),
            tag: received.tag,
            length: received.len,
        }
    }
}

/// Fills the status for a received message, and for one that was too long.
///
/// # Safety
/// `status` is null or points to memory for a status.
pub(crate) unsafe fn finish(
    outcome: Result<MessageStatus, Error>,
    from: c_int,
    tag: c_int,
    status: *mut KumiStatus,
) -> Result<(), Failure> {
    match outcome {
        // SAFETY: promised by the caller.
        Ok(received) => unsafe { store(status, received.into()) },
        Err(error) => {
            if let Error::Truncated { needed, .. } = &error {
                let told = KumiStatus { source: from, tag, length: *needed };
                // SAFETY: promised by the caller.
                unsafe { store(status, told) }?;
            }
            Err(error.into())
        }
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_message_send(
    to: c_int,
    tag_number: c_int,
    data: *const c_void,
    length: usize,
) -> c_int {
    with(|state| {
        let (to, tag) = (rank(to)?, tag(tag_number)?);
        // SAFETY: promised by the caller.
        let data = unsafe { input(data, length, "data") }?;
        Ok(state.context.send_shared(to, tag, data)?)
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `buffer` points to `capacity` bytes, `status` to a status or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_message_recv(
    from: c_int,
    tag: c_int,
    buffer: *mut c_void,
    capacity: usize,
    status: *mut KumiStatus,
) -> c_int {
    with(|state| {
        let (source, pattern) = (source(from)?, tag_pattern(tag)?);
        // SAFETY: promised by the caller.
        let buffer = unsafe { output(buffer, capacity, "buffer") }?;
        let outcome = state.context.recv_shared(source, pattern, buffer);
        // SAFETY: promised by the caller.
        unsafe { finish(outcome, from, tag, status) }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `length` bytes, `buffer` to `capacity` others, `status` to
/// a status or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_message_sendrecv(
    to: c_int,
    send_tag: c_int,
    data: *const c_void,
    length: usize,
    from: c_int,
    recv_tag: c_int,
    buffer: *mut c_void,
    capacity: usize,
    status: *mut KumiStatus,
) -> c_int {
    with(|state| {
        let (to, tag) = (rank(to)?, tag(send_tag)?);
        let (source, pattern) = (source(from)?, tag_pattern(recv_tag)?);
        disjoint(data, length, buffer, capacity)?;
        // SAFETY: promised by the caller; they do not overlap.
        let data = unsafe { input(data, length, "data") }?;
        // SAFETY: as above.
        let buffer = unsafe { output(buffer, capacity, "buffer") }?;
        let outcome = state.context.sendrecv_shared(to, tag, data, source, pattern, buffer);
        // SAFETY: promised by the caller.
        unsafe { finish(outcome, from, recv_tag, status) }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `found` points to an int, `status` to a status or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_message_probe(
    from: c_int,
    tag: c_int,
    found: *mut c_int,
    status: *mut KumiStatus,
) -> c_int {
    with(|state| {
        let (source, pattern) = (source(from)?, tag_pattern(tag)?);
        required(found, "found")?;
        let seen = state.context.probe(source, pattern)?;
        // SAFETY: promised by the caller.
        unsafe { store(found, c_int::from(seen.is_some())) }?;
        match seen {
            // SAFETY: promised by the caller.
            Some(received) => unsafe { store(status, received.into()) },
            None => Ok(()),
        }
    })
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_progress() -> c_int {
    with(|state| Ok(state.context.progress()?))
}

/// `KUMI_ALL` of `kumi.h`.
const ALL: c_int = -1;

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_flush(to: c_int) -> c_int {
    with(|state| {
        if to == ALL {
            return Ok(state.context.flush_all()?);
        }
        Ok(state.context.flush(rank(to)?)?)
    })
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_fence(to: c_int) -> c_int {
    with(|state| {
        if to == ALL {
            return Ok(state.context.fence_all()?);
        }
        Ok(state.context.fence(rank(to)?)?)
    })
}
