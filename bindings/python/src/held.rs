//! Arrays that a server holds: results that stay, as arguments of later calls.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kumi_call_client::{
    Array, ArrayMut, CallError, Client, HeldArray, HeldNames, Remote, RemoteArray,
};
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
    place: Place,
}

/// Where it is.
enum Place {
    /// At the server of this connection, under this name, with this length.
    Server(Client, HeldArrayName, u64),
    /// At the server that a metaserver chooses for the call that makes it.
    Grid(HeldArray),
}

impl Drop for NativeHeld {
    fn drop(&mut self) {
        // A thread that holds the connection's lock may wait for the interpreter's.
        Python::try_attach(|py| py.detach(|| self.let_go()));
    }
}

impl NativeHeld {
    fn let_go(&self) {
        match &self.place {
            Place::Server(client, name, _) => {
                // With its connection the array goes by itself.
                let _lost: Result<(), CallError> = client.let_go(&[*name]);
            }
            Place::Grid(held) => held.release(),
        }
    }

    /// The array as an argument. Without `keep`, the result is written to `to`, if there is one.
    pub fn argument(
        held: Option<&NativeHeld>,
        from: Option<Array<'static>>,
        to: Option<ArrayMut<'static>>,
        keep: Option<&NativeHeld>,
    ) -> RemoteArray<'static> {
        let mut array = RemoteArray { from, to, ..RemoteArray::default() };
        match held.map(|held| &held.place) {
            Some(Place::Server(_, name, bytes)) => {
                array.parts = RemoteArray::held(*name, *bytes, "").parts;
            }
            Some(Place::Grid(held)) => array = array.held_as(held),
            None => {}
        }
        match keep.map(|keep| &keep.place) {
            Some(Place::Server(_, name, _)) => {
                array.keep = RemoteArray::stays(*name, LIFETIME).keep;
            }
            Some(Place::Grid(held)) => array = array.staying_as(held),
            None => {}
        }
        array
    }
}

/// A name that this process has not used.
fn fresh_name() -> PyResult<HeldArrayName> {
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
    Ok(names.fresh())
}

#[pymethods]
impl NativeHeld {
    /// A result of this length that is to stay at the server of this connection, or at the one that the metaserver chooses.
    #[new]
    #[allow(clippy::needless_pass_by_value)] // As Python gives it.
    fn new(client: PyRef<'_, NativeClient>, bytes: u64) -> PyResult<NativeHeld> {
        let place = match client.remote() {
            Remote::Server(client) => Place::Server(client, fresh_name()?, bytes),
            Remote::Grid(_) => Place::Grid(HeldArray::new()),
        };
        Ok(NativeHeld { place })
    }

    /// Whether the connection is lost, and the array with it; or whether no call has made it.
    fn is_lost(&self, py: Python<'_>) -> bool {
        py.detach(|| match &self.place {
            Place::Server(client, ..) => client.is_lost(),
            Place::Grid(held) => held.is_lost(),
        })
    }

    /// The name of its server, and its address if a metaserver has named it. `None`: no call has made it.
    fn server(&self, py: Python<'_>) -> Option<(String, Option<String>)> {
        py.detach(|| match &self.place {
            Place::Server(client, ..) => Some((client.server().to_owned(), None)),
            Place::Grid(held) => held.server().map(|(name, address)| (name, Some(address))),
        })
    }

    /// Sends the array, which has its length.
    fn put(&self, py: Python<'_>, array: &Bound<'_, PyAny>, seconds: Option<f64>) -> PyResult<()> {
        let Place::Server(client, name, _) = &self.place else {
            let text = "a metaserver chooses servers for calls only: let a call make the array (out=KEEP), connect to a server, or \
                        use a transaction";
            return Err(Failure::of_call("ArgumentError", text).into());
        };
        let time = seconds.map(duration).transpose()?;
        let mut buffers = Vec::new();
        let from = lent(array, &mut buffers)?;
        let sent = py.detach(|| client.hold_bytes(*name, from, LIFETIME, time, &interrupted));
        // It was lent until the answer was there.
        drop(buffers);
        sent.map_err(|error| failure(&error).into())
    }

    /// Writes the array to memory of its length.
    fn fetch(&self, py: Python<'_>, into: &Bound<'_, PyAny>, seconds: Option<f64>) -> PyResult<()> {
        let time = seconds.map(duration).transpose()?;
        let mut buffers = Vec::new();
        let to = lent_mut(into, &mut buffers)?;
        let fetched = py.detach(|| match &self.place {
            Place::Server(client, name, _) => client.fetch_bytes(*name, 0, to, time, &interrupted),
            Place::Grid(held) => held.fetch_bytes(0, to, time, &interrupted),
        });
        // It was lent until the answer was there.
        drop(buffers);
        fetched.map_err(|error| failure(&error).into())
    }

    /// Has the server drop the array.
    fn free(&self, py: Python<'_>) {
        py.detach(|| self.let_go());
    }
}
