//! Completions, puts that report their arrival, strided puts and gets, multicast.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use kumi_mem::{Completion, OnPlacement, Strided};

use crate::args::{input, list, output, rank, required, store};
use crate::code::{Code, Failure};
use crate::state::{State, with};
use crate::window::{KumiWindow, find};

/// `kumi_completion` of `kumi.h`: opaque to C.
pub struct KumiCompletion {
    completion: Completion<'static>,
}

/// The completion behind a handle, if it is one that was given out.
pub(crate) fn completion(
    state: &State,
    handle: *mut KumiCompletion,
) -> Result<&Completion<'static>, Failure> {
    Ok(&state.completions.find(handle)?.completion)
}

/// The counter and the completion that follow a put: -1 and null mean none.
pub(crate) fn after(
    state: &State,
    notify: c_int,
    handle: *mut KumiCompletion,
) -> Result<OnPlacement<'_>, Failure> {
    let notify = match c_uint::try_from(notify) {
        Ok(notify) => Some(notify),
        Err(_) if notify == -1 => None,
        Err(_) => {
            let text = format!("notification counter {notify} does not exist");
            return Err(Failure::new(Code::Notify, text));
        }
    };
    let completion = if handle.is_null() { None } else { Some(completion(state, handle)?) };
    Ok(OnPlacement { notify, completion })
}

/// Bytes of all blocks.
fn bytes(block: usize, count: usize) -> Result<usize, Failure> {
    block.checked_mul(count).ok_or_else(|| {
        let text = format!("{count} blocks of {block} bytes are more than memory can hold");
        Failure::new(Code::Length, text)
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `made` points to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_completion_create(made: *mut *mut KumiCompletion) -> c_int {
    with(|state| {
        required(made, "completion")?;
        let completion = state.context.completion()?;
        let handle = state.completions.give(KumiCompletion { completion })?;
        // SAFETY: promised by the caller.
        unsafe { store(made, handle) }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// No other call uses the completion, now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_completion_free(handle: *mut KumiCompletion) -> c_int {
    // SAFETY: the program promises that no other call uses the completion.
    with(|state| unsafe { state.completions.free(handle) })
}

/// See `kumi.h`.
///
/// # Safety
/// `count` points to memory for a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_completion_done(
    handle: *mut KumiCompletion,
    count: *mut u64,
) -> c_int {
    with(|state| {
        required(count, "count")?;
        let done = completion(state, handle)?.done()?;
        // SAFETY: promised by the caller.
        unsafe { store(count, done) }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `count` is null or points to memory for a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_completion_wait(
    handle: *mut KumiCompletion,
    at_least: u64,
    count: *mut u64,
) -> c_int {
    with(|state| {
        let done = completion(state, handle)?.wait(at_least)?;
        // SAFETY: promised by the caller.
        unsafe { store(count, done) }
    })
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_completion_wait_all(handle: *mut KumiCompletion) -> c_int {
    with(|state| Ok(completion(state, handle)?.wait_all()?))
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_put_with(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    data: *const c_void,
    length: usize,
    notify: c_int,
    completion: *mut KumiCompletion,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        let after = after(state, notify, completion)?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data, length, "data") }?;
        Ok(window.put_shared(rank(to)?, offset, data, after)?)
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `block * count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_put_strided(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    stride: usize,
    block: usize,
    count: usize,
    data: *const c_void,
    notify: c_int,
    completion: *mut KumiCompletion,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        let after = after(state, notify, completion)?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data, bytes(block, count)?, "data") }?;
        let shape = Strided { offset, stride, block, count };
        Ok(window.put_strided_shared(rank(to)?, shape, data, after)?)
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `buffer` points to `block * count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_get_strided(
    window: *mut KumiWindow,
    from: c_int,
    offset: usize,
    stride: usize,
    block: usize,
    count: usize,
    buffer: *mut c_void,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        // SAFETY: promised by the caller.
        let buffer = unsafe { output(buffer, bytes(block, count)?, "buffer") }?;
        let shape = Strided { offset, stride, block, count };
        Ok(window.get_strided_shared(rank(from)?, shape, buffer)?)
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `ranks` points to `count` numbers, `data` to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_multicast(
    window: *mut KumiWindow,
    ranks: *const c_int,
    count: usize,
    offset: usize,
    data: *const c_void,
    length: usize,
    notify: c_int,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        let notify = after(state, notify, ptr::null_mut())?.notify;
        // SAFETY: promised by the caller.
        let ranks = unsafe { list(ranks, count, "ranks") }?;
        let ranks: Vec<u32> = ranks.iter().map(|number| rank(*number)).collect::<Result<_, _>>()?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data, length, "data") }?;
        Ok(window.multicast_shared(&ranks, offset, data, notify)?)
    })
}
