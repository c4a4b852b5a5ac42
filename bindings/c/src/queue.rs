//! Queues of ends of requests.

use std::ffi::c_int;

use kumi_mem::{CompletionEntry, CompletionQueue};

use crate::args::{check, required, store};
use crate::code::Failure;
use crate::state::with;
use crate::wait::{KumiResult, told};

/// `kumi_queue` of `kumi_requests.h`: opaque to C.
pub struct KumiQueue {
    pub(crate) queue: CompletionQueue<'static>,
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `made` points to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_queue_create(made: *mut *mut KumiQueue) -> c_int {
    with(|state| {
        required(made, "queue")?;
        let queue = state.context.completion_queue()?;
        let handle = state.queues.give(KumiQueue { queue })?;
        // SAFETY: promised by the caller.
        unsafe { store(made, handle) }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// No other call uses the queue, now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_queue_free(queue: *mut KumiQueue) -> c_int {
    // SAFETY: the program promises that no other call uses the queue.
    with(|state| unsafe { state.queues.free(queue) })
}

/// Stores what an entry says.
///
/// # Safety
/// `result` is null or points to memory for a result.
unsafe fn tell(entry: CompletionEntry, result: *mut KumiResult) -> Result<(), Failure> {
    let CompletionEntry { word, result: ended, .. } = entry;
    let (told, failure) = told(ended, word);
    // SAFETY: promised by the caller.
    unsafe { store(result, told) }?;
    failure
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `found` points to an int, `result` to memory for a result or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_queue_poll(
    queue: *mut KumiQueue,
    found: *mut c_int,
    result: *mut KumiResult,
) -> c_int {
    with(|state| {
        let queue = state.queues.find(queue)?;
        required(found, "found")?;
        check(result, usize::from(!result.is_null()), "result")?;
        let entry = queue.queue.poll()?;
        // SAFETY: promised by the caller.
        unsafe {
            store(found, c_int::from(entry.is_some()))?;
            entry.map_or(Ok(()), |entry| tell(entry, result))
        }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `result` points to memory for a result or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_queue_wait(queue: *mut KumiQueue, result: *mut KumiResult) -> c_int {
    with(|state| {
        let queue = state.queues.find(queue)?;
        check(result, usize::from(!result.is_null()), "result")?;
        let entry = queue.queue.wait()?;
        // SAFETY: promised by the caller.
        unsafe { tell(entry, result) }
    })
}
