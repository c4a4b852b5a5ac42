//! Conversion of errors to exceptions, whose classes are in `python/kumi/_errors.py`.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kumi_mem::Error;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// A failed call: the exception's class, message and attributes.
#[derive(Debug)]
pub struct Failure {
    module: &'static str,
    class: &'static str,
    text: String,
    details: Vec<(&'static str, i128)>,
}

impl Failure {
    /// A failure found in this layer.
    pub fn new(class: &'static str, text: impl Into<String>) -> Failure {
        Failure { module: "kumi._errors", class, text: text.into(), details: Vec::new() }
    }

    /// A failure of a call of a routine; the classes are in `python/kumi/call/_errors.py`.
    pub fn of_call(class: &'static str, text: impl Into<String>) -> Failure {
        Failure { module: "kumi.call._errors", ..Failure::new(class, text) }
    }

    /// Adds an attribute of the exception.
    pub fn with(mut self, name: &'static str, value: impl Into<i128>) -> Failure {
        self.details.push((name, value.into()));
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let failure = |class| Failure::new(class, error.to_string());
        let count = |number: usize| number as i128;
        match &error {
            Error::NotLaunched => failure("NotLaunchedError"),
            Error::Forked => failure("ForkedError"),
            Error::Attach(_) => failure("AttachError"),
            Error::BadRank { rank, ranks } => {
                failure("BadRankError").with("rank", *rank).with("ranks", *ranks)
            }
            Error::BadMember { member, members } => {
                failure("BadRankError").with("rank", *member).with("ranks", *members)
            }
            Error::BadMembers { .. } | Error::TooManyGroups => failure("BadGroupError"),
            Error::GroupDisagrees { rank, .. } => {
                failure("GroupDisagreesError").with("rank", *rank)
            }
            Error::BadTag { tag } => failure("BadTagError").with("tag", *tag),
            Error::OutOfBounds { rank, offset, length, size } => failure("OutOfBoundsError")
                .with("rank", *rank)
                .with("offset", *offset)
                .with("length", *length)
                .with("size", *size),
            Error::Truncated { needed } => failure("TruncatedError").with("needed", count(*needed)),
            Error::NoRight { rank } => failure("NoRightError").with("rank", *rank),
            Error::BadWindow { rank } => failure("BadWindowError").with("rank", *rank),
            Error::BadNotify { notify } => failure("BadNotifyError").with("notify", *notify),
            Error::BadAlignment { offset, width } => {
                failure("BadAlignmentError").with("offset", *offset).with("width", *width)
            }
            Error::BadOperation { .. } => failure("BadOperationError"),
            Error::BadLength { given, needed, .. } => failure("BadLengthError")
                .with("given", count(*given))
                .with("needed", count(*needed)),
            Error::OutOfMemory { bytes, .. } => failure("OutOfMemoryError").with("bytes", *bytes),
            Error::WindowRefused { rank, .. } => failure("WindowRefusedError").with("rank", *rank),
            Error::Refused { rank, count, .. } => {
                failure("RefusedError").with("rank", *rank).with("count", *count)
            }
            Error::Unread { bytes } => failure("UnreadError").with("bytes", count(*bytes)),
            Error::Fault(_) => failure("FaultError"),
            Error::Io(io) => {
                failure("IoError").with("errno", io.raw_os_error().unwrap_or_default())
            }
            Error::Unreachable { reason, .. } => {
                failure("IoError").with("errno", reason.raw_os_error().unwrap_or_default())
            }
            Error::HandlerPanicked { offset, count, .. } => {
                failure("HandlerError").with("offset", *offset).with("count", *count)
            }
            Error::NeverDone { begun, at_least } => {
                failure("NeverDoneError").with("begun", *begun).with("at_least", *at_least)
            }
            error => fifo_failure(error).or_else(|| request_failure(error)).unwrap_or_else(|| {
                // An unknown error of a newer library.
                failure("KumiError")
            }),
        }
    }
}

/// The failures of requests.
fn request_failure(error: &Error) -> Option<Failure> {
    let failure = |class| Failure::new(class, error.to_string());
    Some(match error {
        Error::StaleRequest { .. } | Error::NoRequests => failure("StaleRequestError"),
        Error::ForeignRequest { .. } => failure("ForeignRequestError"),
        Error::RequestListed { .. } => failure("RequestListedError"),
        Error::BufferLent => failure("BufferLentError"),
        Error::TooManyRequests { .. } => failure("OutOfMemoryError"),
        _ => return None,
    })
}

/// The failures of FIFOs.
fn fifo_failure(error: &Error) -> Option<Failure> {
    let failure = |class| Failure::new(class, error.to_string());
    let count = |number: usize| number as i128;
    Some(match error {
        Error::BadFifo { .. } => failure("BadFifoError"),
        Error::NoFifo { rank, offset } => {
            failure("NoFifoError").with("rank", *rank).with("offset", *offset)
        }
        Error::FifoFull { rank, offset } => {
            failure("FifoFullError").with("rank", *rank).with("offset", *offset)
        }
        Error::RecordTooLong { length, most } => {
            failure("RecordTooLongError").with("length", count(*length)).with("most", count(*most))
        }
        Error::FifoTooSmall { rank, offset, length } => failure("RecordTooLongError")
            .with("length", count(*length))
            .with("rank", *rank)
            .with("offset", *offset),
        Error::FifoDamaged { rank, offset } => {
            failure("FifoDamagedError").with("rank", *rank).with("offset", *offset)
        }
        _ => return None,
    })
}

/// The first exception of a signal port's handler since the last report.
static CAUSE: Mutex<Option<PyErr>> = Mutex::new(None);

thread_local! {
    /// The exception that a Python signal handler raised while a call of this thread waited.
    static SIGNAL: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Takes the lock of [`CAUSE`]. Exceptions are only moved under it. Dropping one runs destructors of the
/// program, which may give the interpreter's lock to a thread that then waits for this lock.
fn cause() -> MutexGuard<'static, Option<PyErr>> {
    CAUSE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the exception of a signal port's handler until the rank's thread gets it; returns its text.
pub fn keep_cause(error: PyErr) -> String {
    let text = error.to_string();
    let mut cause = cause();
    let second = if cause.is_none() { cause.replace(error) } else { Some(error) };
    drop(cause);
    drop(second);
    text
}

/// Forgets exceptions of an earlier job's handlers.
pub fn forget_cause() {
    let forgotten = cause().take();
    drop(forgotten);
}

/// Keeps the exception of a Python signal handler: the waiting call ends with it.
pub fn keep_signal(error: PyErr) {
    // Dropping the earlier one may call this function again.
    let forgotten = SIGNAL.replace(Some(error));
    drop(forgotten);
}

/// Whether this thread keeps the exception of a Python signal handler.
pub fn has_signal() -> bool {
    SIGNAL.with_borrow(Option::is_some)
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        // `Error::Interrupted`, or the error that ending the call caused.
        if let Some(error) = SIGNAL.take() {
            return error;
        }
        Python::attach(|py| exception(py, &failure).unwrap_or_else(|error| error))
    }
}

/// Makes the exception; fails if the package's own module is damaged.
fn exception(py: Python<'_>, failure: &Failure) -> PyResult<PyErr> {
    let class = py.import(failure.module)?.getattr(failure.class)?;
    let details = PyDict::new(py);
    for (name, value) in &failure.details {
        details.set_item(name, value)?;
    }
    let text = PyString::new(py, &failure.text);
    let made = PyErr::from_value(class.call((text,), Some(&details))?);
    if failure.class == "HandlerError" {
        let raised = cause().take();
        made.set_cause(py, raised);
    }
    Ok(made)
}

/// The exception for an object of the wrong type.
pub fn wrong_type(text: String) -> PyErr {
    Failure::new("BadTypeError", text).into()
}
