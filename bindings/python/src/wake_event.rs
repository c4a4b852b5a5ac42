//! Waiting for several calls at once.

use std::sync::Arc;
use std::time::Duration;

use kumi_call_client::{CallWatch, WakeEvent};
use pyo3::prelude::*;

use crate::call::{NativeCall, duration, failure};
use crate::error::Failure;

/// Interval at which a wait checks for signals that another thread received.
const SLICE: Duration = Duration::from_millis(100);

/// A thread that waits for several calls.
#[pyclass(frozen)]
pub struct NativeWakeEvent {
    wake_event: Arc<WakeEvent>,
    calls: Vec<CallWatch>,
}

#[pymethods]
impl NativeWakeEvent {
    /// An event for these calls.
    #[new]
    #[allow(clippy::needless_pass_by_value)] // As Python gives it.
    fn new(calls: Vec<PyRef<'_, NativeCall>>) -> PyResult<NativeWakeEvent> {
        let wake_event = WakeEvent::new().map_err(|error| {
            let text = format!("several calls cannot be waited for: {error}");
            Failure::of_call("CallError", text)
        })?;
        Ok(NativeWakeEvent { wake_event, calls: calls.iter().map(|call| call.watch()).collect() })
    }

    /// Waits until one of them may need attention, for at most this many seconds and for a short time in any
    /// case.
    fn wait(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<()> {
        let slice = SLICE.as_secs_f64();
        let time = duration(seconds.map_or(slice, |seconds| seconds.clamp(0.0, slice)))?;
        let waited = py.detach(|| self.wake_event.wait(&self.calls, time));
        waited.map_err(|error| failure(&error))?;
        py.check_signals()
    }
}
