//! Memory of Python objects, held for the length of a call.
//!
//! While a buffer is held its owner neither frees nor resizes it. Other threads of the program may write to it meanwhile, and
//! other ranks if it shows a window. So it is no slice but shared bytes; collectives work on a private copy of a window's.

use std::borrow::Cow;
use std::ops::Range;
use std::ptr::NonNull;

use kumi_mem::{Context, Error, Scalar, SharedBytes, SharedBytesMut, any_overlap};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

use crate::error::{Failure, wrong_type};
use crate::private_copy::{PrivateCopy, WorkingCopy};
use crate::shared::bring;

/// Contiguous memory for reading.
pub struct Input {
    buffer: PyUntypedBuffer,
    /// Its bytes, if it is shared memory: operations copy under the channel's lock, where a page fault would wait for itself.
    copy: Option<PrivateCopy>,
}

/// Contiguous memory for writing. Operations on shared memory work on a copy, which is written back at the end.
pub struct Output {
    buffer: PyUntypedBuffer,
    copy: Option<WorkingCopy>,
}

impl Input {
    /// Holds the memory of `object`; `what` names it in messages.
    ///
    /// # Errors
    /// `TypeError` if it has no memory, or memory that cannot be copied as bytes.
    pub fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Input> {
        let buffer = hold(object, what)?;
        let shared = bring(object.py(), &addresses(&buffer))?;
        let of = |bytes| PrivateCopy::of(bytes, COPY).map_err(Failure::from);
        let copy = shared.then(|| of(readable(&buffer))).transpose()?;
        Ok(Input { buffer, copy })
    }

    /// Its bytes.
    pub fn shared(&self) -> SharedBytes<'_> {
        let copy = self.copy.as_ref().map(|copy| copy.shared().shared());
        copy.unwrap_or_else(|| readable(&self.buffer))
    }

    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.shared().to_vec()
    }

    /// Its bytes for a collective: a copy if they are a window's.
    ///
    /// # Errors
    /// Those of [`Context::elements`].
    pub fn collective(&self, context: &Context) -> Result<Cow<'_, [u8]>, Error> {
        let bytes = self.shared();
        // SAFETY: the buffer is held while `self` is borrowed. That no thread of the program writes it during a call is
        // demanded by the package's documentation.
        unsafe { context.elements(bytes.as_ptr(), bytes.len()) }
    }
}

impl Output {
    /// As [`Input::of`], for memory that may be written.
    ///
    /// # Errors
    /// `TypeError`, also if it is read-only.
    pub fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Output> {
        let buffer = hold_writable(object, what)?;
        let shared = bring(object.py(), &addresses(&buffer))?;
        let of = |bytes| WorkingCopy::of(bytes, COPY).map_err(Failure::from);
        let copy = shared.then(|| of(readable(&buffer))).transpose()?;
        Ok(Output { buffer, copy })
    }

    /// As [`Output::of`], for memory that is used after the call, by whoever fills it.
    ///
    /// # Errors
    /// As [`Output::of`]; `SharedMemoryError` if it is shared memory.
    pub fn lasting(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Output> {
        let buffer = hold_writable(object, what)?;
        if bring(object.py(), &addresses(&buffer))? {
            let text = format!(
                "{what} is in the ranks' shared memory, which cannot be written to by this: \
                 use another array, and copy it"
            );
            return Err(Failure::new("SharedMemoryError", text).into());
        }
        Ok(Output { buffer, copy: None })
    }

    /// Its bytes.
    pub fn shared(&self) -> SharedBytesMut<'_> {
        self.copy.as_ref().map_or_else(|| writable(&self.buffer), WorkingCopy::shared)
    }

    /// Runs `body` with its bytes, or with a copy if they are a window's.
    ///
    /// # Errors
    /// Those of [`Context::with_elements`] and of `body`.
    pub fn collective(
        &mut self,
        context: &Context,
        body: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let bytes = self.shared();
        // SAFETY: the buffer is held and may be written, and this is the only borrow of `self`. That no thread of the
        // program uses it during a call is demanded by the package's documentation.
        unsafe { context.with_elements(bytes.as_ptr(), bytes.len(), body) }
    }

    /// The same with its elements; none if the memory is not aligned for them or holds no whole number of them.
    pub fn reduction<T: Scalar>(
        &mut self,
        context: &Context,
        body: impl FnOnce(&mut [T]) -> Result<(), Error>,
    ) -> Option<Result<(), Error>> {
        let bytes = self.shared();
        let (start, count) = (bytes.as_ptr().cast::<T>(), bytes.len() / size_of::<T>());
        let whole = count * size_of::<T>() == bytes.len() && (count == 0 || start.is_aligned());
        // SAFETY: aligned, as was just found; the rest as in `Output::collective`.
        whole.then(|| unsafe { context.with_elements(start, count, body) })
    }

    /// Checks that it shares no memory with the sent data.
    ///
    /// # Errors
    /// `OverlapError`.
    pub fn check_disjoint(&self, sent: &Input) -> Result<(), Failure> {
        disjoint(
            &[&self.buffer, &sent.buffer],
            "what is sent and what is received share memory: use two arrays",
        )
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(copy) = &self.copy {
            copy.write_back(writable(&self.buffer));
        }
    }
}

/// The copies of shared memory, in messages.
const COPY: &str = "a private copy of shared memory";

/// A buffer's bytes.
fn readable(buffer: &PyUntypedBuffer) -> SharedBytes<'_> {
    let Some(start) = start(buffer) else { return SharedBytes::default() };
    // SAFETY: the buffer is contiguous, so that these are all its bytes, and is held while it is borrowed. Who writes them is no
    // Rust code or uses shared bytes.
    unsafe { SharedBytes::new(start, buffer.len_bytes()) }
}

/// A buffer's bytes, of one that may be written.
fn writable(buffer: &PyUntypedBuffer) -> SharedBytesMut<'_> {
    let Some(start) = start(buffer) else { return SharedBytesMut::default() };
    // SAFETY: as in `readable`, and all buffers of outputs may be written.
    unsafe { SharedBytesMut::new(start, buffer.len_bytes()) }
}

/// Where a buffer is.
fn addresses(buffer: &PyUntypedBuffer) -> Range<usize> {
    let start = buffer.buf_ptr().addr();
    start..start + buffer.len_bytes()
}

/// Where a buffer begins, unless it is empty.
fn start(buffer: &PyUntypedBuffer) -> Option<NonNull<u8>> {
    NonNull::new(buffer.buf_ptr().cast::<u8>()).filter(|_| buffer.len_bytes() > 0)
}

/// Checks that no two of these share memory.
///
/// # Errors
/// `OverlapError`.
pub fn check_disjoint(outputs: &[Output]) -> Result<(), Failure> {
    let buffers: Vec<_> = outputs.iter().map(|output| &output.buffer).collect();
    disjoint(&buffers, "two of the arrays to be written to share memory")
}

fn disjoint(buffers: &[&PyUntypedBuffer], text: &str) -> Result<(), Failure> {
    let range = |buffer: &&PyUntypedBuffer| (buffer.buf_ptr().addr(), buffer.len_bytes());
    if any_overlap(&mut buffers.iter().map(range).collect::<Vec<_>>()) {
        return Err(Failure::new("OverlapError", text));
    }
    Ok(())
}

fn hold_writable(object: &Bound<'_, PyAny>, what: &str) -> PyResult<PyUntypedBuffer> {
    let buffer = hold(object, what)?;
    if buffer.readonly() {
        return Err(wrong_type(format!("{what} is read-only and cannot be written to")));
    }
    Ok(buffer)
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
