//! Which exception an error becomes. The classes are in `python/kumi/_errors.py`.

use kumi_mem::Error;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

/// A failed call: the exception's class, its sentence, and attributes of it.
#[derive(Debug)]
pub struct Failure {
    class: &'static str,
    text: String,
    details: Vec<(&'static str, i128)>,
}

impl Failure {
    /// A failure of this layer's own.
    pub fn new(class: &'static str, text: impl Into<String>) -> Failure {
        Failure { class, text: text.into(), details: Vec::new() }
    }

    /// With an attribute of the exception.
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
            Error::Attach(_) => failure("AttachError"),
            Error::BadRank { rank, ranks } => {
                failure("BadRankError").with("rank", *rank).with("ranks", *ranks)
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
            // What a newer library adds is at least a KumiError with its sentence.
            _ => failure("KumiError"),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| exception(py, &failure).unwrap_or_else(|error| error))
    }
}

/// Makes the exception; an error if the package's own module is damaged.
fn exception(py: Python<'_>, failure: &Failure) -> PyResult<PyErr> {
    static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = CLASSES.get_or_try_init(py, || py.import("kumi._errors").map(Bound::unbind))?;
    let class = module.bind(py).getattr(failure.class)?;
    let details = PyDict::new(py);
    for (name, value) in &failure.details {
        details.set_item(name, value)?;
    }
    let text = PyString::new(py, &failure.text);
    Ok(PyErr::from_value(class.call((text,), Some(&details))?))
}

/// What an object of the wrong kind raises.
pub fn wrong_type(text: String) -> PyErr {
    PyTypeError::new_err(text)
}
