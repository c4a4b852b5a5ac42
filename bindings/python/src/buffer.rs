//! Memory of Python objects, held for the length of a call.
//!
//! While a buffer is held, its owner neither frees nor resizes it. Another thread may still write to it,
//! although the package's documentation forbids that. The data sent or received is then undefined, but stays
//! inside the buffer.

use kumi_mem::any_overlap;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

use crate::error::{Failure, wrong_type};

/// Contiguous memory for reading.
pub struct Input(PyUntypedBuffer);

/// Contiguous memory for writing.
pub struct Output(PyUntypedBuffer);

impl Input {
    /// Holds the memory of `object`; `what` names it in messages.
    ///
    /// # Errors
    /// `TypeError` if it has no memory, or memory that cannot be copied as bytes.
    pub fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Input> {
        hold(object, what).map(Input)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        let length = self.0.len_bytes();
        if length == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous, so these are all its bytes. It is held while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), length) }
    }
}

impl Output {
    /// As [`Input::of`], for memory that may be written.
    ///
    /// # Errors
    /// `TypeError`, also if it is read-only.
    pub fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Output> {
        let buffer = hold(object, what)?;
        if buffer.readonly() {
            return Err(wrong_type(format!("{what} is read-only and cannot be written to")));
        }
        Ok(Output(buffer))
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        let length = self.0.len_bytes();
        if length == 0 {
            return &mut [];
        }
        // SAFETY: as in `Input::bytes`; it may be written, and this is the only borrow of `self`.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast::<u8>(), length) }
    }

    /// Its elements, if the memory is aligned for them and holds a whole number of elements.
    pub fn elements<T: kumi_mem::Scalar>(&mut self) -> Option<&mut [T]> {
        // SAFETY: `Scalar` is sealed to integers and floats, for which every bit pattern is valid.
        let (before, elements, after) = unsafe { self.bytes().align_to_mut::<T>() };
        (before.is_empty() && after.is_empty()).then_some(elements)
    }

    /// Checks that it shares no memory with the sent data.
    ///
    /// # Errors
    /// `OverlapError`.
    pub fn check_disjoint(&self, sent: &Input) -> Result<(), Failure> {
        disjoint(
            &[&self.0, &sent.0],
            "what is sent and what is received share memory: use two arrays",
        )
    }
}

/// Checks that no two of these share memory.
///
/// # Errors
/// `OverlapError`.
pub fn check_disjoint(outputs: &[Output]) -> Result<(), Failure> {
    let buffers: Vec<_> = outputs.iter().map(|output| &output.0).collect();
    disjoint(&buffers, "two of the arrays to be written to share memory")
}

fn disjoint(buffers: &[&PyUntypedBuffer], text: &str) -> Result<(), Failure> {
    let range = |buffer: &&PyUntypedBuffer| (buffer.buf_ptr().addr(), buffer.len_bytes());
    if any_overlap(&mut buffers.iter().map(range).collect::<Vec<_>>()) {
        return Err(Failure::new("OverlapError", text));
    }
    Ok(())
}

fn hold(object: &Bound<'_, PyAny>, what: &str) -> PyResult<PyUntypedBuffer> {
    let py = object.py();
    let buffer = PyUntypedBuffer::get(object).map_err(|error| {
        let text = format!("{what} gives no memory that can be sent as bytes: {}", error.value(py));
        let refusal = wrong_type(text);
        refusal.set_cause(py, Some(error));
        refusal
    })?;
    if !buffer.is_c_contiguous() {
        return Err(wrong_type(format!(
            "{what} is not contiguous in C order: pass numpy.ascontiguousarray({what})"
        )));
    }
    if holds_references(buffer.format().to_bytes()) {
        let text =
            format!("{what} holds references to Python objects, which mean nothing to others");
        return Err(wrong_type(text));
    }
    Ok(buffer)
}

/// Whether a format in the notation of the `struct` module, with the extensions of PEP 3118, has an `O`.
/// Names of fields stand between colons.
fn holds_references(format: &[u8]) -> bool {
    format.split(|byte| *byte == b':').step_by(2).any(|codes| codes.contains(&b'O'))
}
