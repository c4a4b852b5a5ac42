//! Waiting for requests.

use std::ffi::c_int;

use kumi_mem::{Error, Outcome, RequestHandle};

use crate::args::{check, required, store};
use crate::code::{Code, Failure};
use crate::state::{State, with};

/// `kumi_result` of `kumi_requests.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct KumiResult {
    /// `KUMI_OK`, or why the request failed.
    pub error: c_int,
    /// Whether it was cancelled.
    pub cancelled: c_int,
    /// Sender of the message.
    pub source: c_int,
    /// Its tag.
    pub tag: c_int,
    /// Its length in bytes.
    pub length: usize,
    /// The value before an atomic operation.
    pub value: u64,
    /// The word of the report.
    pub word: u64,
}

/// That of no request.
const NOTHING: KumiResult =
    KumiResult { error: 0, cancelled: 0, source: -1, tag: -1, length: 0, value: 0, word: 0 };

/// What C is told of the end of a request, and its failure.
pub(crate) fn told(ended: Result<Outcome, Error>, word: u64) -> (KumiResult, Result<(), Failure>) {
    let mut result = KumiResult { word, ..NOTHING };
    match ended {
        Ok(Outcome::Value(value)) => result.value = value,
        Ok(Outcome::Received(status)) => {
            result.source = c_int::try_from(status.from).unwrap_or(c_int::MAX);
            (result.tag, result.length) = (status.tag, status.len);
        }
        Ok(Outcome::Cancelled) => result.cancelled = 1,
        Ok(_) => {}
        Err(error) => {
            if let Error::Truncated { needed, .. } = &error {
                result.length = *needed;
            }
            let failure = Failure::from(error);
            result.error = failure.code as c_int;
            return (result, Err(failure));
        }
    }
    (result, Ok(()))
}

/// Whether this error says that a call did nothing, and not how a request has ended.
fn nothing_ended(error: &Error) -> bool {
    use Error::{
        FifoDamaged, ForeignRequest, HandlerPanicked, Interrupted, RequestListed, StaleRequest,
    };
    matches!(
        error,
        StaleRequest { .. }
            | ForeignRequest { .. }
            | RequestListed { .. }
            | HandlerPanicked { .. }
            | FifoDamaged { .. }
            | Interrupted
    )
}

fn no_request() -> Failure {
    Failure::new(Code::Request, "KUMI_REQUEST_NONE: there is no request to wait for")
}

/// The request in a variable of C.
///
/// # Safety
/// `request` is null or points to a handle.
unsafe fn handle_in(request: *const u64) -> Result<RequestHandle, Failure> {
    check(request, 1, "request")?;
    // SAFETY: not null and aligned; the rest is promised by the caller.
    RequestHandle::from_bits(unsafe { request.read() }).ok_or_else(no_request)
}

/// A list of requests in C's memory: those that are there, and the places of C's list where they are.
struct RequestList {
    first: *mut u64,
    handles: Vec<RequestHandle>,
    places: Vec<usize>,
}

impl RequestList {
    /// # Safety
    /// `requests` points to `count` handles, which stay as long as this is used.
    unsafe fn read(requests: *mut u64, count: usize) -> Result<RequestList, Failure> {
        check(requests, count, "requests")?;
        let (mut handles, mut places) = (Vec::new(), Vec::new());
        for place in 0..count {
            // SAFETY: one of the `count` handles.
            if let Some(handle) = RequestHandle::from_bits(unsafe { requests.add(place).read() }) {
                handles.push(handle);
                places.push(place);
            }
        }
        Ok(RequestList { first: requests, handles, places })
    }

    /// The same, of a list that must not be empty.
    ///
    /// # Safety
    /// As [`RequestList::read`].
    unsafe fn some(requests: *mut u64, count: usize) -> Result<RequestList, Failure> {
        // SAFETY: the caller's promise.
        let list = unsafe { RequestList::read(requests, count) }?;
        if list.handles.is_empty() { Err(no_request()) } else { Ok(list) }
    }

    /// The request with this index has ended: its place in C's list, which is empty now.
    fn ended(&self, index: usize) -> usize {
        let place = self.places[index];
        // SAFETY: one of the handles that C's list has, by the promise of `read`.
        unsafe { self.first.add(place).write(0) };
        place
    }

    /// All have ended: stores their results, if `results` is not null, for places without a request too. The first
    /// failure.
    ///
    /// # Safety
    /// `results` is null or points to memory for `count` results.
    unsafe fn all_ended(
        &self,
        outcomes: Vec<Result<Outcome, Error>>,
        results: *mut KumiResult,
        count: usize,
    ) -> Result<(), Failure> {
        if !results.is_null() {
            for place in 0..count {
                // SAFETY: promised by the caller.
                unsafe { results.add(place).write(NOTHING) };
            }
        }
        let mut first = Ok(());
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let (result, failure) = told(outcome, 0);
            let place = self.ended(index);
            if !results.is_null() {
                // SAFETY: promised by the caller; a place is below `count`.
                unsafe { results.add(place).write(result) };
            }
            first = first.and(failure);
        }
        first
    }

    /// Some have ended: stores how many, where they are, and their results.
    ///
    /// # Safety
    /// `ended` points to memory for a number, `indices` for as many as there are requests, `results` is null or points to
    /// memory for as many results.
    unsafe fn some_ended(
        &self,
        outcomes: Vec<(usize, Result<Outcome, Error>)>,
        ended: *mut usize,
        indices: *mut usize,
        results: *mut KumiResult,
    ) -> Result<(), Failure> {
        // SAFETY: promised by the caller.
        unsafe { ended.write(outcomes.len()) };
        let mut first = Ok(());
        for (at, (index, outcome)) in outcomes.into_iter().enumerate() {
            let (result, failure) = told(outcome, 0);
            // SAFETY: promised by the caller; not more have ended than there are.
            unsafe { indices.add(at).write(self.ended(index)) };
            if !results.is_null() {
                // SAFETY: promised by the caller.
                unsafe { results.add(at).write(result) };
            }
            first = first.and(failure);
        }
        first
    }
}

/// A request in a variable has ended: empties it and stores the result.
///
/// # Safety
/// `request` points to a handle, `result` is null or points to memory for a result.
unsafe fn one_ended(
    request: *mut u64,
    ended: Result<Outcome, Error>,
    result: *mut KumiResult,
) -> Result<(), Failure> {
    let (told, failure) = told(ended, 0);
    // SAFETY: promised by the caller.
    unsafe {
        request.write(0);
        store(result, told)?;
    }
    failure
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `request` points to a handle, `done` to an int, `result` to memory for a result or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_test(
    request: *mut u64,
    done: *mut c_int,
    result: *mut KumiResult,
) -> c_int {
    with(|state| {
        // SAFETY: promised by the caller.
        let handle = unsafe { handle_in(request) }?;
        required(done, "done")?;
        check(result, usize::from(!result.is_null()), "result")?;
        let ended = match state.context.test(handle) {
            // SAFETY: promised by the caller.
            Ok(None) => return unsafe { store(done, 0) },
            Ok(Some(outcome)) => Ok(outcome),
            Err(error) if nothing_ended(&error) => return Err(error.into()),
            Err(error) => Err(error),
        };
        // SAFETY: promised by the caller.
        unsafe {
            store(done, 1)?;
            one_ended(request, ended, result)
        }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `request` points to a handle, `result` to memory for a result or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_wait(request: *mut u64, result: *mut KumiResult) -> c_int {
    with(|state| {
        // SAFETY: promised by the caller.
        let handle = unsafe { handle_in(request) }?;
        check(result, usize::from(!result.is_null()), "result")?;
        match state.context.wait(handle) {
            Err(error) if nothing_ended(&error) => Err(error.into()),
            // SAFETY: promised by the caller.
            ended => unsafe { one_ended(request, ended, result) },
        }
    })
}

/// Checks the arguments for results of a list.
fn check_results(results: *mut KumiResult, count: usize) -> Result<(), Failure> {
    check(results, if results.is_null() { 0 } else { count }, "results")
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `requests` points to `count` handles, `results` to memory for as many results or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_wait_all(
    requests: *mut u64,
    count: usize,
    results: *mut KumiResult,
) -> c_int {
    with(|state| {
        // SAFETY: promised by the caller.
        let list = unsafe { RequestList::read(requests, count) }?;
        check_results(results, count)?;
        let outcomes = state.context.wait_all(&list.handles)?;
        // SAFETY: promised by the caller.
        unsafe { list.all_ended(outcomes, results, count) }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// As `kumi_request_wait_all`; `done` points to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_test_all(
    requests: *mut u64,
    count: usize,
    done: *mut c_int,
    results: *mut KumiResult,
) -> c_int {
    with(|state| {
        // SAFETY: promised by the caller.
        let list = unsafe { RequestList::read(requests, count) }?;
        required(done, "done")?;
        check_results(results, count)?;
        let outcomes = state.context.test_all(&list.handles)?;
        // SAFETY: promised by the caller.
        unsafe { store(done, c_int::from(outcomes.is_some())) }?;
        match outcomes {
            // SAFETY: promised by the caller.
            Some(outcomes) => unsafe { list.all_ended(outcomes, results, count) },
            None => Ok(()),
        }
    })
}

/// Stores which request has ended, and how.
///
/// # Safety
/// `index` points to memory for a number, `result` for a result or to nothing.
unsafe fn any_ended(
    list: &RequestList,
    (at, outcome): (usize, Result<Outcome, Error>),
    index: *mut usize,
    result: *mut KumiResult,
) -> Result<(), Failure> {
    let (told, failure) = told(outcome, 0);
    // SAFETY: promised by the caller.
    unsafe {
        store(index, list.ended(at))?;
        store(result, told)?;
    }
    failure
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `requests` points to `count` handles, `index` to a `size_t`, `result` to memory for a result or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_wait_any(
    requests: *mut u64,
    count: usize,
    index: *mut usize,
    result: *mut KumiResult,
) -> c_int {
    with(|state| {
        // SAFETY: promised by the caller.
        let list = unsafe { RequestList::some(requests, count) }?;
        required(index, "index")?;
        check(result, usize::from(!result.is_null()), "result")?;
        let ended = state.context.wait_any(&list.handles)?;
        // SAFETY: promised by the caller.
        unsafe { any_ended(&list, ended, index, result) }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// As `kumi_request_wait_any`; `done` points to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_test_any(
    requests: *mut u64,
    count: usize,
    done: *mut c_int,
    index: *mut usize,
    result: *mut KumiResult,
) -> c_int {
    with(|state| {
        // SAFETY: promised by the caller.
        let list = unsafe { RequestList::some(requests, count) }?;
        required(done, "done")?;
        required(index, "index")?;
        check(result, usize::from(!result.is_null()), "result")?;
        let ended = state.context.test_any(&list.handles)?;
        // SAFETY: promised by the caller.
        unsafe { store(done, c_int::from(ended.is_some())) }?;
        match ended {
            // SAFETY: promised by the caller.
            Some(ended) => unsafe { any_ended(&list, ended, index, result) },
            None => Ok(()),
        }
    })
}

/// What `kumi_request_wait_some` and `kumi_request_test_some` have in common.
///
/// # Safety
/// As for these.
unsafe fn some(
    requests: *mut u64,
    count: usize,
    (ended, indices): (*mut usize, *mut usize),
    results: *mut KumiResult,
    body: impl FnOnce(&State, &[RequestHandle]) -> Result<Vec<(usize, Result<Outcome, Error>)>, Error>,
) -> c_int {
    with(|state| {
        // SAFETY: promised by the caller.
        let list = unsafe { RequestList::some(requests, count) }?;
        required(ended, "ended")?;
        check(indices, count, "indices")?;
        check_results(results, count)?;
        let outcomes = body(state, &list.handles)?;
        // SAFETY: promised by the caller; a list has as many requests as places, or fewer.
        unsafe { list.some_ended(outcomes, ended, indices, results) }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `requests` points to `count` handles, `indices` to memory for as many numbers, `results` for as many results or to
/// nothing, `ended` to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_wait_some(
    requests: *mut u64,
    count: usize,
    ended: *mut usize,
    indices: *mut usize,
    results: *mut KumiResult,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        some(requests, count, (ended, indices), results, |state, list| {
            state.context.wait_some(list)
        })
    }
}

/// See `kumi_requests.h`.
///
/// # Safety
/// As `kumi_request_wait_some`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_test_some(
    requests: *mut u64,
    count: usize,
    ended: *mut usize,
    indices: *mut usize,
    results: *mut KumiResult,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        some(requests, count, (ended, indices), results, |state, list| {
            state.context.test_some(list)
        })
    }
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `cancelled` points to an int or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_cancel(request: u64, cancelled: *mut c_int) -> c_int {
    with(|state| {
        let handle = RequestHandle::from_bits(request).ok_or_else(no_request)?;
        check(cancelled, usize::from(!cancelled.is_null()), "cancelled")?;
        let stopped = state.context.cancel(handle)?;
        // SAFETY: promised by the caller.
        unsafe { store(cancelled, c_int::from(stopped)) }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `request` points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_release(request: *mut u64) -> c_int {
    with(|state| {
        // SAFETY: promised by the caller.
        state.context.release(unsafe { handle_in(request) }?)?;
        // SAFETY: promised by the caller.
        unsafe { store(request, 0) }
    })
}

/// See `kumi_requests.h`.
///
/// # Safety
/// `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_count(count: *mut usize) -> c_int {
    with(|state| {
        required(count, "count")?;
        // SAFETY: promised by the caller.
        unsafe { store(count, state.context.requests()?) }
    })
}
