//! Waiting for several calls at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kumi_call_client::{CallWatch, WakeEvent};
use pyo3::prelude::*;

use crate::call::{NativeCall, duration, failure};
use crate::error::Failure;

/// Interval at which a wait checks for signals that another thread received.
const SLICE: Duration = Duration::from_millis(100);

fn new_event() -> PyResult<Arc<WakeEvent>> {
    WakeEvent::new().map_err(|error| {
        let text = format!("several calls cannot be waited for: {error}");
        Failure::of_call("CallError", text).into()
    })
}

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
        let wake_event = new_event()?;
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

/// Calls for which one thread waits, each with a key. Other threads add calls meanwhile.
#[pyclass(frozen)]
pub struct NativeCallSet {
    wake_event: Arc<WakeEvent>,
    calls: Mutex<BTreeMap<u64, CallWatch>>,
}

impl NativeCallSet {
    /// The calls. No other lock is taken under theirs.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, CallWatch>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl NativeCallSet {
    /// A set without calls.
    #[new]
    fn new() -> PyResult<NativeCallSet> {
        let wake_event = new_event()?;
        Ok(NativeCallSet { wake_event, calls: Mutex::default() })
    }

    /// Adds a call, and wakes the thread that waits.
    fn add(&self, key: u64, call: &NativeCall) {
        self.lock().insert(key, call.watch());
        self.wake_event.wake();
    }

    /// Removes a call.
    fn remove(&self, key: u64) {
        // The connection of its watch may end with it, without the lock.
        let removed = self.lock().remove(&key);
        drop(removed);
    }

    /// Wakes the thread that waits.
    fn wake(&self) {
        self.wake_event.wake();
    }

    /// Waits until a call may need attention, the thread is woken, or these seconds are over. Returns the keys
    /// of the calls that need attention.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<Vec<u64>> {
        let time = duration(seconds)?;
        let news = py.detach(|| {
            let calls: Vec<(u64, CallWatch)> =
                self.lock().iter().map(|(key, watch)| (*key, watch.clone())).collect();
            let (keys, watches): (Vec<u64>, Vec<CallWatch>) = calls.into_iter().unzip();
            self.wake_event.wait(&watches, time)?;
            let all = keys.into_iter().zip(&watches);
            Ok(all.filter(|(_, watch)| watch.has_news()).map(|(key, _)| key).collect())
        });
        news.map_err(|error| failure(&error).into())
    }
}
