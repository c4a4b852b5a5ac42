//! Messages that are claimed before they are received.

use kumi_mem::{ClaimedMessage, Error, MessageStatus};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::Output;
use crate::error::Failure;
use crate::message::{status, wanted};
use crate::number::maybe_name;
use crate::state::{State, current, number, released};

/// A message that nobody else gets. The state has it until it was received, released or dropped.
#[pyclass(frozen)]
pub struct NativeClaim {
    number: u64,
    status: MessageStatus,
}

impl NativeClaim {
    fn keep(state: &State, message: ClaimedMessage<'static>) -> NativeClaim {
        let (number, status) = (number(), message.status());
        state.claims.lock().insert(number, message);
        NativeClaim { number, status }
    }

    /// Takes the message out of the state.
    fn take(&self, state: &State) -> Result<ClaimedMessage<'static>, Failure> {
        let text = "this message was received or released already, or its job has ended";
        let gone = || Failure::new("StaleClaimError", text);
        state.claims.lock().remove(&self.number).ok_or_else(gone)
    }
}

#[pymethods]
impl NativeClaim {
    /// Source, tag and length in bytes.
    #[getter]
    fn status(&self) -> (u32, i32, usize) {
        status(self.status)
    }

    /// Receives it.
    fn receive<'py>(&self, py: Python<'py>) -> PyResult<(u32, i32, Bound<'py, PyBytes>)> {
        let state = current()?;
        let message = self.take(&state)?;
        let received = released(py, || message.receive_vec());
        let (received, data) = received.map_err(Failure::from)?;
        Ok((received.from, received.tag, PyBytes::new(py, &data)))
    }

    /// Receives it into memory.
    fn receive_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<(u32, i32, usize)> {
        let buffer = Output::of(buffer, "buffer")?;
        let state = current()?;
        let message = self.take(&state)?;
        let received = released(py, || message.receive_shared(buffer.shared()));
        Ok(status(received.map_err(Failure::from)?))
    }

    /// Gives it back: it is there for every receive again.
    fn release(&self) -> PyResult<()> {
        let state = current()?;
        let message = self.take(&state)?;
        drop(message);
        Ok(())
    }
}

impl Drop for NativeClaim {
    fn drop(&mut self) {
        // If a thread drops it that may not call, or while a call waits, nobody gets it before `finalize`.
        if let Ok(state) = current() {
            // It may have been received.
            drop(self.take(&state));
        }
    }
}

/// A claim on its way out of [`released`].
struct Claimed<C>(Result<C, Error>);

// SAFETY: `released` runs in the calling thread, so the claim never changes threads.
unsafe impl<C> Send for Claimed<C> {}

/// Takes hold of a message that has come.
#[pyfunction]
#[pyo3(signature = (source, tag))]
pub fn claim(
    py: Python<'_>,
    #[pyo3(from_py_with = maybe_name)] source: Option<i64>,
    #[pyo3(from_py_with = maybe_name)] tag: Option<i64>,
) -> PyResult<Option<NativeClaim>> {
    let state = current()?;
    let (source, tag) = wanted(&state, source, tag)?;
    let claimed = released(py, || Claimed(state.context.claim(source, tag)));
    let claimed = claimed.0.map_err(Failure::from)?;
    Ok(claimed.map(|message| NativeClaim::keep(&state, message)))
}

/// Waits for a message and takes hold of it.
#[pyfunction]
#[pyo3(signature = (source, tag))]
pub fn await_claim(
    py: Python<'_>,
    #[pyo3(from_py_with = maybe_name)] source: Option<i64>,
    #[pyo3(from_py_with = maybe_name)] tag: Option<i64>,
) -> PyResult<NativeClaim> {
    let state = current()?;
    let (source, tag) = wanted(&state, source, tag)?;
    let claimed = released(py, || Claimed(state.context.await_claim(source, tag)));
    let claimed = claimed.0.map_err(Failure::from)?;
    Ok(NativeClaim::keep(&state, claimed))
}
