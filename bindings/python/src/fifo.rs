//! FIFOs and signal ports. Their offsets and capacities are in bytes, in the package too, because they are
//! not arrays of elements.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kumi_mem::{Fifo, Signal, Window};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::Input;
use crate::control::{rank_of, ranks_of};
use crate::error::{Failure, keep_cause};
use crate::number::{name, whole};
use crate::state::{State, StateRef, current, handles_signals, number, released};
use crate::turn::LeaderLock;
use crate::window::{NativeWindow, WindowOnMemory, notify_of};

/// A FIFO and the window that it borrows, in the order of their ends.
pub struct FifoOnWindow {
    fifo: Mutex<Fifo<'static>>,
    /// Who has it uses the FIFO.
    turn: LeaderLock,
    _window: Arc<WindowOnMemory>,
}

impl FifoOnWindow {
    fn new(
        window: Arc<WindowOnMemory>,
        place: (usize, usize, u32),
    ) -> Result<FifoOnWindow, Failure> {
        let (offset, capacity, notify) = place;
        // SAFETY: `window` is kept beside the FIFO, and dropped after it.
        let borrowed: &'static Window<'static> = unsafe { &*Arc::as_ptr(&window) };
        let fifo = borrowed.fifo(offset, capacity, notify)?;
        Ok(FifoOnWindow { fifo: Mutex::new(fifo), turn: LeaderLock::default(), _window: window })
    }
}

impl FifoOnWindow {
    /// For who has the turn, and so never waits for the lock.
    fn fifo(&self) -> MutexGuard<'_, Fifo<'static>> {
        self.fifo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A FIFO of this rank.
pub struct FifoEntry {
    held: Arc<FifoOnWindow>,
    window: u64,
    freed: Arc<AtomicBool>,
}

impl Drop for FifoEntry {
    fn drop(&mut self) {
        self.freed.store(true, Ordering::Release);
    }
}

/// Frees the FIFOs and removes the signal ports of a window, or of all windows. Waits for handlers. Returns
/// the first error; it removes the other ports nevertheless.
pub fn close_all(py: Python<'_>, state: &State, window: Option<u64>) -> Result<(), Failure> {
    let goes = |number: u64| window.is_none_or(|window| window == number);
    let closed: Vec<_> = state.fifos.lock().extract_if(|_, entry| goes(entry.window)).collect();
    // Only now, while the table is not locked: the last one may end a window.
    drop(closed);
    let ports: Vec<(u64, usize)> = {
        let mut ports = state.ports.lock();
        let (gone, left) = ports.iter().partition(|port| goes(port.0));
        *ports = left;
        gone
    };
    let close = |(number, offset): (u64, usize)| -> Result<(), Failure> {
        let window = state.window(number)?;
        // Without the lock: a running handler needs it to finish.
        Ok(released(py, || window.remove_signal(offset))?)
    };
    let mut result = Ok(());
    for port in ports {
        let closed = close(port);
        result = result.and(closed);
    }
    result
}

/// The owner's end of a FIFO.
#[pyclass(frozen, module = "kumi._native")]
pub struct NativeFifo {
    number: u64,
    freed: Arc<AtomicBool>,
}

impl NativeFifo {
    fn find(&self) -> Result<StateRef<FifoOnWindow>, Failure> {
        let state = current()?;
        let gone = || Failure::new("FreedFifoError", "this FIFO was freed, or its window was");
        let found = state.fifos.lock().get(&self.number).map(|entry| Arc::clone(&entry.held));
        Ok(StateRef::new(found.ok_or_else(gone)?, state))
    }
}

/// A record as Python gets it.
type Record<'py> = (u32, Bound<'py, PyBytes>);

#[pymethods]
impl NativeFifo {
    /// Makes one.
    #[new]
    fn new(
        window: &NativeWindow,
        #[pyo3(from_py_with = whole)] offset: usize,
        #[pyo3(from_py_with = whole)] capacity: usize,
        #[pyo3(from_py_with = name)] notify: i64,
    ) -> PyResult<Self> {
        let (state, inside) = window.find()?;
        let held = FifoOnWindow::new(inside, (offset, capacity, notify_of(notify)?))?;
        let (number, freed) = (number(), Arc::<AtomicBool>::default());
        let (held, window) = (Arc::new(held), window.number);
        let entry = FifoEntry { held, window, freed: Arc::clone(&freed) };
        state.fifos.lock().insert(number, entry);
        Ok(NativeFifo { number, freed })
    }

    /// Ends the FIFO.
    fn free(&self) -> PyResult<()> {
        if !self.freed.load(Ordering::Acquire) {
            let entry = current()?.fifos.lock().remove(&self.number);
            drop(entry);
        }
        Ok(())
    }

    /// Whether it was freed.
    #[getter]
    fn freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    /// Waits for the next record and takes it.
    fn pop<'py>(&self, py: Python<'py>) -> PyResult<Record<'py>> {
        let held = self.find()?;
        let turn = held.turn.take(py, || Ok(false))?;
        let (from, data) = released(py, || held.fifo().pop_vec()).map_err(Failure::from)?;
        drop(turn);
        Ok((from, PyBytes::new(py, &data)))
    }

    /// Takes the next record if there is one.
    fn try_pop<'py>(&self, py: Python<'py>) -> PyResult<Option<Record<'py>>> {
        let held = self.find()?;
        // What comes is for the thread that waits.
        let Some(turn) = held.turn.try_take() else { return Ok(None) };
        let popped = released(py, || held.fifo().try_pop_vec()).map_err(Failure::from)?;
        drop(turn);
        Ok(popped.map(|(from, data)| (from, PyBytes::new(py, &data))))
    }
}

/// Bytes of the longest record.
#[pyfunction]
pub fn max_record() -> PyResult<usize> {
    Ok(current()?.context.max_record())
}

/// Appends a record to a FIFO, or sends a signal. Without waiting, false means that there is no room.
#[pyfunction]
pub fn append(
    py: Python<'_>,
    window: &NativeWindow,
    #[pyo3(from_py_with = name)] rank: i64,
    #[pyo3(from_py_with = whole)] offset: usize,
    data: &Bound<'_, PyAny>,
    signal: bool,
    wait: bool,
) -> PyResult<bool> {
    let data = Input::of(data, "data")?;
    let (state, window) = window.find()?;
    let to = rank_of(&state, rank)?;
    let record = data.shared();
    let done = released(py, || match signal {
        false => window.append_shared(to, offset, record, wait),
        true => window.signal_shared(to, offset, record, wait),
    });
    Ok(done.map_err(Failure::from)?)
}

/// Appends a record to the FIFOs of several ranks, or sends a signal to their ports. Without waiting, returns
/// the ranks that have no room.
#[pyfunction]
pub fn multicast_append(
    py: Python<'_>,
    window: &NativeWindow,
    #[pyo3(from_py_with = whole)] ranks: Vec<i64>,
    #[pyo3(from_py_with = whole)] offset: usize,
    data: &Bound<'_, PyAny>,
    signal: bool,
    wait: bool,
) -> PyResult<Vec<u32>> {
    let data = Input::of(data, "data")?;
    let (state, window) = window.find()?;
    let to = ranks_of(&state, ranks)?;
    let record = data.shared();
    let full = released(py, || match signal {
        false => window.multicast_append_shared(&to, offset, record, wait),
        true => window.multicast_signal_shared(&to, offset, record, wait),
    });
    Ok(full.map_err(Failure::from)?)
}

/// Makes a signal port that passes records to a callable: `handler(source, data)`.
#[pyfunction]
pub fn on_signal(
    window: &NativeWindow,
    #[pyo3(from_py_with = whole)] offset: usize,
    #[pyo3(from_py_with = whole)] capacity: usize,
    handler: Py<PyAny>,
) -> PyResult<()> {
    let (state, inside) = window.find()?;
    let call = move |signal: Signal<'_>| {
        // Nothing can run in an interpreter that is shutting down.
        handles_signals();
        let outcome = Python::try_attach(|py| {
            let data = PyBytes::new(py, signal.data);
            handler.call1(py, (signal.from, data)).map(drop).map_err(keep_cause)
        });
        if let Some(Err(text)) = outcome {
            // The port keeps the exception for the rank's next call. Nothing is printed here.
            std::panic::resume_unwind(Box::new(text));
        }
    };
    inside.on_signal(offset, capacity, call).map_err(Failure::from)?;
    state.ports.lock().push((window.number, offset));
    Ok(())
}

/// Removes a signal port, after its running handler.
#[pyfunction]
pub fn remove_signal(
    py: Python<'_>,
    window: &NativeWindow,
    #[pyo3(from_py_with = whole)] offset: usize,
) -> PyResult<()> {
    let (state, inside) = window.find()?;
    released(py, || inside.remove_signal(offset)).map_err(Failure::from)?;
    state.ports.lock().retain(|port| *port != (window.number, offset));
    Ok(())
}
