//! Shared memory: arrays that all ranks see, locks, conditions.
//!
//! It begins with the first call that needs it, at all ranks together, and ends with the job. What a program reaches for comes by page
//! faults, in whatever thread, with or without the interpreter's lock: so the wait in it must not need that lock, and asks nobody.
//! Operations of the library copy under the channel's lock, where a fault would wait for itself. So `buffer` gives them copies.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use kumi_dsm::{Addresses, Config, Error, Misuse, Placement, SharedMemory, Sharing};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::control::rank_of;
use crate::error::Failure;
use crate::number::{name, whole};
use crate::state::{State, StateTable, current, is_active, released};
use crate::turn::LeaderLock;

/// Addresses of shared memory in this process.
struct Area {
    range: Range<usize>,
    /// As long as these exist: while the job lasts, or an array shows them.
    addresses: Weak<Addresses>,
    ended: bool,
}

/// Also those of jobs that are over.
static AREAS: StateTable<Vec<Area>> = StateTable::new(Vec::new());
/// Whether there are any: most programs have none, and ask for each buffer.
static ANY_AREA: AtomicBool = AtomicBool::new(false);

/// The shared memory of a job.
#[derive(Default)]
pub struct JobMemory {
    memory: OnceLock<(SharedMemory, Arc<Addresses>)>,
    /// Of several threads that would start it one does.
    start: LeaderLock,
    /// A signal handler of Python has ended a call whose answer will still come.
    broken: AtomicBool,
}

impl JobMemory {
    /// The memory if it has begun.
    fn begun(&self) -> Option<&SharedMemory> {
        self.memory.get().map(|(memory, _)| memory)
    }

    /// The memory, which begins now if it has not; all ranks call this together then.
    fn start(
        &self,
        py: Python<'_>,
        state: &State,
    ) -> Result<&(SharedMemory, Arc<Addresses>), Failure> {
        let turn = self.start.take(py, || Ok(self.begun().is_some()))?;
        if let Some(memory) = self.memory.get() {
            return Ok(memory);
        }
        let memory = released(py, || SharedMemory::new(state.context, Config::from_environment()?));
        let memory = self.checked(memory)?;
        let addresses = Arc::new(memory.addresses());
        let area =
            Area { range: addresses.range(), addresses: Arc::downgrade(&addresses), ended: false };
        let mut areas = AREAS.lock();
        areas.retain(|area| area.addresses.strong_count() > 0);
        areas.push(area);
        drop(areas);
        ANY_AREA.store(true, Ordering::Release);
        let memory = self.memory.get_or_init(|| (memory, addresses));
        drop(turn);
        Ok(memory)
    }

    /// Keeps in mind that a call was interrupted.
    fn checked<T>(&self, result: Result<T, Error>) -> Result<T, Failure> {
        if let Err(Error::Channel(kumi_mem::Error::Interrupted)) = &result {
            self.broken.store(true, Ordering::Release);
        }
        Ok(result?)
    }

    /// Runs a call without the interpreter's lock.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        memory: &SharedMemory,
        body: impl FnOnce(&SharedMemory) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        self.check()?;
        self.checked(released(py, || body(memory)))
    }

    /// No call has been interrupted that leaves something behind.
    fn check(&self) -> Result<(), Failure> {
        if self.broken.load(Ordering::Acquire) {
            let text = "an earlier call for shared memory was interrupted: end the program";
            return Err(Failure::new("FaultError", text));
        }
        Ok(())
    }

    /// Ends it: with all ranks, or at once if this one leaves because of an error.
    pub fn end(self, py: Python<'_>, wait: bool) -> Result<(), Failure> {
        let Some((memory, addresses)) = self.memory.into_inner() else { return Ok(()) };
        let together = wait && !self.broken.load(Ordering::Acquire);
        for area in AREAS.lock().iter_mut() {
            area.ended |= area.range == addresses.range();
        }
        Ok(released(py, || memory.end(together))?)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let text = error.to_string();
        match error {
            Error::Channel(error) => error.into(),
            Error::Misuse(Misuse::Full { wanted, .. }) => {
                Failure::new("OutOfMemoryError", text).with("bytes", wanted)
            }
            Error::Misuse(Misuse::Peer { .. }) => Failure::new("FaultError", text),
            Error::Setting { .. } => Failure::new("BadArgumentError", text),
            _ => Failure::new("SharedMemoryError", text),
        }
    }
}

/// Whether some of these bytes are shared memory; of a job that is over: true.
fn area_of(bytes: &Range<usize>) -> Option<bool> {
    if !ANY_AREA.load(Ordering::Acquire) {
        return None;
    }
    let meets = |area: &&Area| {
        let shown = area.addresses.strong_count() > 0;
        shown && area.range.start < bytes.end && bytes.start < area.range.end
    };
    AREAS.lock().iter().find(meets).map(|area| area.ended)
}

/// Brings the pages of memory that an operation is about to read or write; whether it is shared memory.
///
/// # Errors
/// `SharedMemoryError` if that has ended; those of the channel; `ForkedError`.
pub fn bring(py: Python<'_>, bytes: &Range<usize>) -> Result<bool, Failure> {
    match area_of(bytes) {
        None => return Ok(false),
        Some(true) => {
            let text =
                "this array is in shared memory that kumi.finalize() has ended; copy it before";
            return Err(Failure::new("SharedMemoryError", text));
        }
        Some(false) => {}
    }
    let state = match current() {
        Ok(state) => state,
        // A thread that may not call has its pages by its own faults.
        Err(_) if is_active() => return Ok(true),
        Err(error) => return Err(error),
    };
    if let Some(memory) = state.shared.begun() {
        let start = std::ptr::without_provenance(bytes.start);
        released(py, || memory.bring(start, bytes.len()))?;
    }
    Ok(true)
}

/// The barrier of shared memory, if that is in use; whether it is.
pub fn barrier(py: Python<'_>, state: &State) -> Result<bool, Failure> {
    let Some(memory) = state.shared.begun() else { return Ok(false) };
    // Reports what the barrier of the channel would.
    released(py, || state.context.progress())?;
    state.shared.call(py, memory, SharedMemory::barrier)?;
    Ok(true)
}

/// Memory of an array.
#[pyclass(frozen, module = "kumi._native")]
pub struct NativeSharedBytes {
    address: usize,
    bytes: usize,
    /// They stay as long as this does.
    _addresses: Arc<Addresses>,
}

#[pymethods]
impl NativeSharedBytes {
    /// Allocates memory with its pages at these homes; all ranks call it in the same order.
    #[new]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = whole)] bytes: usize,
        home: &str,
        #[pyo3(from_py_with = name)] rank: i64,
        update: bool,
    ) -> PyResult<Self> {
        let state = current()?;
        let sharing = if update { Sharing::Update } else { Sharing::Invalidate };
        let placement = match home {
            "blocks" => Placement::Blocks,
            "round-robin" => Placement::RoundRobin { block: 1, first: 0 },
            "first-touch" => Placement::FirstTouch,
            _ => Placement::At(rank_of(&state, rank)?),
        };
        let (memory, addresses) = state.shared.start(py, &state)?;
        let allocate = |memory: &SharedMemory| {
            memory
                .allocate_shared(bytes as u64, placement, sharing, || "shared_array".to_owned())
                .map(<*mut u8>::expose_provenance)
        };
        let address = state.shared.call(py, memory, allocate)?;
        Ok(NativeSharedBytes { address, bytes, _addresses: Arc::clone(addresses) })
    }

    /// Shows it.
    ///
    /// # Safety
    /// The interpreter calls it, with memory for a buffer in `view`.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let length = ffi::Py_ssize_t::try_from(this.bytes)?;
        let start = std::ptr::with_exposed_provenance_mut::<std::ffi::c_void>(this.address);
        // SAFETY: the interpreter lets us fill `view`, and NULL is refused there. The memory is an allocation of the job's
        // shared memory, which lasts as long as the job; its addresses last as long as this object, which the buffer holds.
        let done = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 0, flags) };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A number of a lock or condition.
fn numbered(number: i64) -> Result<u32, Failure> {
    u32::try_from(number).map_err(|_| {
        let text = format!("{number} is no number of a lock or condition: use 0 to 4294967295");
        Failure::new("BadArgumentError", text)
    })
}

/// Begins shared memory, if it has not begun, and checks the number of a lock or condition.
#[pyfunction]
pub fn shared_start(py: Python<'_>, #[pyo3(from_py_with = name)] number: i64) -> PyResult<()> {
    let state = current()?;
    numbered(number)?;
    state.shared.start(py, &state)?;
    Ok(())
}

/// Calls of locks and conditions.
fn synchronise(
    py: Python<'_>,
    number: i64,
    call: fn(&SharedMemory, u32) -> Result<(), Error>,
) -> PyResult<()> {
    let state = current()?;
    let number = numbered(number)?;
    let (memory, _) = state.shared.start(py, &state)?;
    Ok(state.shared.call(py, memory, |memory| call(memory, number))?)
}

/// Takes a lock.
#[pyfunction]
pub fn shared_lock(py: Python<'_>, #[pyo3(from_py_with = name)] number: i64) -> PyResult<()> {
    let state = current()?;
    let number = numbered(number)?;
    let (memory, _) = state.shared.start(py, &state)?;
    state.shared.check()?;
    // A wait for a lock that is interrupted leaves nothing behind.
    Ok(released(py, || memory.acquire_lock(number)).map_err(Failure::from)?)
}

/// Gives a lock back.
#[pyfunction]
pub fn shared_unlock(py: Python<'_>, #[pyo3(from_py_with = name)] number: i64) -> PyResult<()> {
    synchronise(py, number, SharedMemory::unlock)
}

/// Sets a condition.
#[pyfunction]
pub fn shared_set(py: Python<'_>, #[pyo3(from_py_with = name)] number: i64) -> PyResult<()> {
    synchronise(py, number, SharedMemory::set_condition)
}

/// Resets a condition.
#[pyfunction]
pub fn shared_reset(py: Python<'_>, #[pyo3(from_py_with = name)] number: i64) -> PyResult<()> {
    synchronise(py, number, SharedMemory::reset_condition)
}

/// Waits until a condition is set.
#[pyfunction]
pub fn shared_wait(py: Python<'_>, #[pyo3(from_py_with = name)] number: i64) -> PyResult<()> {
    synchronise(py, number, SharedMemory::wait_condition)
}

/// Brings pages for system calls.
#[pyfunction]
pub fn shared_bring(
    py: Python<'_>,
    #[pyo3(from_py_with = whole)] start: usize,
    #[pyo3(from_py_with = whole)] bytes: usize,
    write: bool,
) -> PyResult<()> {
    let brought = bring(py, &(start..start.saturating_add(bytes)))?;
    if write && brought {
        let state = current()?;
        if let Some(memory) = state.shared.begun() {
            let start = std::ptr::without_provenance_mut(start);
            let opened = released(py, || memory.bring_for_writing(start, bytes));
            opened.map_err(Failure::from)?;
        }
    }
    Ok(())
}

/// What this rank's shared memory has done so far, by name; nothing if it has not begun.
#[pyfunction]
pub fn shared_statistics() -> PyResult<Vec<(&'static str, u64)>> {
    let state = current()?;
    Ok(state.shared.begun().map(|memory| memory.statistics().all().collect()).unwrap_or_default())
}
