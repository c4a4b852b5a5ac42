//! Requests: operations that go on after their call has returned.

use std::ffi::{c_int, c_uint, c_void};

use kumi_mem::{Atomic, PutEnd, PutOptions, Report, RequestHandle};

use crate::args::{check, input, list, output, rank, required, source, store, tag, tag_pattern};
use crate::code::{Code, Failure};
use crate::queue::KumiQueue;
use crate::state::{State, with};
use crate::transfer::{KumiCompletion, completion};
use crate::window::{KumiWindow, find};

/// `kumi_report` of `kumi_requests.h`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KumiReport {
    /// A counter that rises, or null.
    pub completion: *mut KumiCompletion,
    /// A queue that gets an entry, or null.
    pub queue: *mut KumiQueue,
    /// The entry's word.
    pub word: u64,
}

/// Where the end of a request is told.
///
/// # Safety
/// `report` is null or points to a report.
unsafe fn report_of(state: &State, report: *const KumiReport) -> Result<Report<'_>, Failure> {
    // SAFETY: promised by the caller.
    let given = unsafe { list(report, usize::from(!report.is_null()), "report") }?;
    let Some(KumiReport { completion: counter, queue, word }) = given.first().copied() else {
        return Ok(Report::Handle);
    };
    match (counter.is_null(), queue.is_null()) {
        (false, true) => Ok(Report::Counter(completion(state, counter)?)),
        (true, false) => Ok(Report::Queue(&state.queues.find(queue)?.queue, word)),
        _ => Err(Failure::new(Code::Queue, "a report needs a completion or a queue, not both")),
    }
}

/// Starts a request and stores its handle, for which there must be a place unless its end is told otherwise.
///
/// # Safety
/// `report` is null or points to a report, `request` is null or points to memory for a handle.
pub(crate) unsafe fn start(
    report: *const KumiReport,
    request: *mut u64,
    body: impl FnOnce(&State, Report<'_>) -> Result<RequestHandle, Failure>,
) -> c_int {
    with(|state| {
        if report.is_null() {
            required(request, "request")?;
        }
        check(request, usize::from(!request.is_null()), "request")?;
        // SAFETY: promised by the caller.
        let report = unsafe { report_of(state, report) }?;
        let handle = body(state, report)?;
        // SAFETY: promised by the caller.
        unsafe { store(request, handle.to_bits()) }
    })
}

/// A notification counter, or none for `KUMI_NO_NOTIFY`.
fn notify_of(notify: c_int) -> Result<Option<u32>, Failure> {
    match c_uint::try_from(notify) {
        Ok(notify) => Ok(Some(notify)),
        Err(_) if notify == -1 => Ok(None),
        Err(_) => {
            let text = format!("notification counter {notify} does not exist");
            Err(Failure::new(Code::Notify, text))
        }
    }
}

/// `KUMI_PUT_SENT` or `KUMI_PUT_PLACED`.
fn end_of(put_end: c_int) -> Result<PutEnd, Failure> {
    match put_end {
        0 => Ok(PutEnd::Sent),
        1 => Ok(PutEnd::Placed),
        _ => {
            let text = format!("{put_end} is neither KUMI_PUT_SENT nor KUMI_PUT_PLACED");
            Err(Failure::new(Code::Length, text))
        }
    }
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `data` points to `length` bytes, which stay until the request has ended; `report` to a report or nothing, `request`
/// to memory for a handle or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_iput(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    data: *const c_void,
    length: usize,
    notify: c_int,
    put_end: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    let put = |state: &State, report: Report<'_>| {
        let window = find(state, window)?;
        let options = PutOptions { notify: notify_of(notify)?, end: end_of(put_end)?, report };
        // SAFETY: promised by the caller.
        let data = unsafe { input(data, length, "data") }?;
        // SAFETY: promised by the caller.
        Ok(unsafe { window.start_put(rank(to)?, offset, data, options) }?)
    };
    // SAFETY: promised by the caller.
    unsafe { start(report, request, put) }
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `buffer` points to `length` bytes, which stay until the request has ended; the rest is as for `kumi_window_iput`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_iget(
    window: *mut KumiWindow,
    from: c_int,
    offset: usize,
    length: usize,
    buffer: *mut c_void,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    let get = |state: &State, report: Report<'_>| {
        let window = find(state, window)?;
        // SAFETY: promised by the caller.
        let buffer = unsafe { output(buffer, length, "buffer") }?;
        // SAFETY: promised by the caller.
        Ok(unsafe { window.start_get(rank(from)?, offset, buffer, report) }?)
    };
    // SAFETY: promised by the caller.
    unsafe { start(report, request, get) }
}

/// The error for a number that is no `kumi_atomic`.
fn no_operation(operation: c_int) -> Failure {
    Failure::new(Code::Operation, format!("{operation} is not a kumi_atomic"))
}

/// See `kumi_requests.h`.
///
/// # Safety
/// As for `kumi_window_iput`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_iatomic(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    operation: c_int,
    operand: u64,
    value: u64,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    let begin = |state: &State, report: Report<'_>| {
        let window = find(state, window)?;
        let operation = match operation {
            1 => Atomic::Add64(operand),
            2 => Atomic::And64(operand),
            3 => Atomic::Or64(operand),
            4 => Atomic::Xor64(operand),
            5 => Atomic::Swap64(operand),
            6 => Atomic::CompareSwap64 { expected: operand, value },
            _ => return Err(no_operation(operation)),
        };
        Ok(window.start_atomic(rank(to)?, offset, operation, report)?)
    };
    // SAFETY: promised by the caller.
    unsafe { start(report, request, begin) }
}

/// See `kumi_requests.h`.
///
/// # Safety
/// As for `kumi_window_iput`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_iatomic_u32(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    operation: c_int,
    operand: u32,
    value: u32,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    let begin = |state: &State, report: Report<'_>| {
        let window = find(state, window)?;
        let operation = match operation {
            1 => Atomic::Add32(operand),
            2 => Atomic::And32(operand),
            3 => Atomic::Or32(operand),
            4 => Atomic::Xor32(operand),
            5 => Atomic::Swap32(operand),
            6 => Atomic::CompareSwap32 { expected: operand, value },
            _ => return Err(no_operation(operation)),
        };
        Ok(window.start_atomic(rank(to)?, offset, operation, report)?)
    };
    // SAFETY: promised by the caller.
    unsafe { start(report, request, begin) }
}

/// See `kumi_requests.h`.
///
/// # Safety
/// As for `kumi_window_iput`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_message_isend(
    to: c_int,
    tag_number: c_int,
    data: *const c_void,
    length: usize,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    let send = |state: &State, report: Report<'_>| {
        let (to, tag) = (rank(to)?, tag(tag_number)?);
        // SAFETY: promised by the caller.
        let data = unsafe { input(data, length, "data") }?;
        // SAFETY: promised by the caller.
        Ok(unsafe { state.context.start_send(to, tag, data, report) }?)
    };
    // SAFETY: promised by the caller.
    unsafe { start(report, request, send) }
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `buffer` points to `capacity` bytes, which stay until the request has ended; the rest is as for `kumi_window_iput`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_message_irecv(
    from: c_int,
    tag: c_int,
    buffer: *mut c_void,
    capacity: usize,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    let receive = |state: &State, report: Report<'_>| {
        let (source, pattern) = (source(from)?, tag_pattern(tag)?);
        // SAFETY: promised by the caller.
        let buffer = unsafe { output(buffer, capacity, "buffer") }?;
        // SAFETY: promised by the caller.
        Ok(unsafe { state.context.start_receive(source, pattern, buffer, report) }?)
    };
    // SAFETY: promised by the caller.
    unsafe { start(report, request, receive) }
}
