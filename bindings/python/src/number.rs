//! Numbers from Python. Invalid ones are refused with exceptions of the package.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;

use crate::error::{Failure, wrong_type};

/// A whole number.
///
/// # Errors
/// `BadTypeError` if the object is not a whole number, `BadArgumentError` if it is out of range.
pub fn whole<'py, T: FromPyObjectOwned<'py>>(object: &Bound<'py, PyAny>) -> PyResult<T> {
    object.extract::<T>().map_err(|error| {
        let (py, error) = (object.py(), error.into());
        if error.is_instance_of::<PyOverflowError>(py) {
            let text = format!("{object} is beyond the numbers that can be given here");
            return Failure::new("BadArgumentError", text).into();
        }
        if error.is_instance_of::<PyTypeError>(py) {
            let refusal = wrong_type(format!("not a whole number: {}", error.value(py)));
            refusal.set_cause(py, Some(error));
            return refusal;
        }
        error
    })
}

/// A whole number or `None`.
///
/// # Errors
/// As [`whole`].
pub fn maybe<'py, T: FromPyObjectOwned<'py>>(object: &Bound<'py, PyAny>) -> PyResult<Option<T>> {
    if object.is_none() { Ok(None) } else { whole(object).map(Some) }
}

/// The number of a rank, tag or counter. A number of more than 64 bits stays invalid.
///
/// # Errors
/// `BadTypeError` if the object is no whole number.
pub fn name(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    match object.extract::<i64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
            Ok(if object.lt(0)? { i64::MIN } else { i64::MAX })
        }
        Err(_) => whole(object),
        Ok(name) => Ok(name),
    }
}

/// The same or `None`.
///
/// # Errors
/// As [`name`].
pub fn maybe_name(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_none() { Ok(None) } else { name(object).map(Some) }
}
