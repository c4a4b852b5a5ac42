//! Arrays that a server holds: results that stay, as arguments of later calls.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kumi_call_client::{Array, ArrayMut, CallError, Client, HeldNames, Remote, RemoteArray};
use kumi_rpc::HeldArrayName;
use pyo3::prelude::*;

use crate::call::{NativeClient, duration, failure, interrupted, lent, lent_mut};
use crate::error::Failure;

/// The names of this process, and its number. A forked process that went on with them would give its parent's names again.
static NAMES: Mutex<Option<(u32, HeldNames)>> = Mutex::new(None);

/// The server may have a lower limit.
const LIFETIME: Duration = Duration::MAX;

/// An array at a server. The server drops it with this.
#[pyclass(frozen)]
pub struct NativeHeld {
    client: Client,
    name: HeldArrayName,
    /// Its length.
    bytes: u64,
}

impl Drop for NativeHeld {
    fn drop(&mut self) {
        // A thread that holds the connection's lock may wait for the interpreter's.
        Python::try_attach(|py| py.detach(|| self.let_go()));
    }
}

impl NativeHeld {
    fn let_go(&self) {
        // With its connection the array goes by itself.
        let _lost: Result<(), CallError> = self.client.let_go(&[self.name]);
    }

    /// The array as an argument. Without `keep`, the result is written to `to`, if there is one.
    pub fn argument(
        held: Option<&NativeHeld>,
        from: Option<Array<'static>>,
        to: Option<ArrayMut<'static>>,
        keep: Option<&NativeHeld>,
    ) -> RemoteArray<'static> {
        let parts = held.map(|held| RemoteArray::held(held.name, held.bytes, "").parts);
        let keep = keep.and_then(|keep| RemoteArray::stays(keep.name, LIFETIME).keep);
        RemoteArray { from, parts: parts.unwrap_or_default(), to, keep }
    }
}

#[pymethods]
impl NativeHeld {
    /// A name for a result of this length that is to stay at the server of this connection.
    #[new]
    #[allow(clippy::needless_pass_by_value)] // As Python gives it.
    fn new(client: PyRef<'_, NativeClient>, bytes: u64) -> PyResult<NativeHeld> {
        let Remote::Server(client) = client.remote() else {
            let text = "a metaserver chooses the server of each call, so arrays cannot stay: connect to a server, or use a transaction";
            return Err(Failure::of_call("ArgumentError", text).into());
        };
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        let (_, names) = match &mut *names {
            Some(known) if known.0 == process => known,
            other => {
                let made = HeldNames::new().map_err(|error| {
                    Failure::of_call("CallError", format!("an array has no name: {error}"))
                })?;
                other.insert((process, made))
            }
        };
        Ok(NativeHeld { client, name: names.fresh(), bytes })
    }

    /// Whether the connection is lost, and the array with it.
    fn is_lost(&self, py: Python<'_>) -> bool {
        py.detach(|| self.client.is_lost())
    }

    /// Sends the array, which has its length.
    fn put(&self, py: Python<'_>, array: &Bound<'_, PyAny>, seconds: Option<f64>) -> PyResult<()> {
        let time = seconds.map(duration).transpose()?;
        let mut buffers = Vec::new();
        let from = lent(array, &mut buffers)?;
        let sent =
            py.detach(|| self.client.hold_bytes(self.name, from, LIFETIME, time, &interrupted));
        // It was lent until the answer was there.
        drop(buffers);
        sent.map_err(|error| failure(&error).into())
    }

    /// Writes the array to memory of its length.
    fn fetch(&self, py: Python<'_>, into: &Bound<'_, PyAny>, seconds: Option<f64>) -> PyResult<()> {
        let time = seconds.map(duration).transpose()?;
        let mut buffers = Vec::new();
        let to = lent_mut(into, &mut buffers)?;
        let fetched = py.detach(|| self.client.fetch_bytes(self.name, 0, to, time, &interrupted));
        // It was lent until the answer was there.
        drop(buffers);
        fetched.map_err(|error| failure(&error).into())
    }

    /// Has the server drop the array.
    fn free(&self, py: Python<'_>) {
        py.detach(|| self.let_go());
    }
}
