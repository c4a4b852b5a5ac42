//! Windows. Offsets and lengths are in bytes here; `python/kumi/_window.py` counts elements.
//!
//! Python sees a window's memory as a buffer, of which numpy makes an array without a copy. Arrays may
//! outlive `free` and even `finalize`. Memory that an array shows stays, and so does the window's place at
//! the other ranks. A later call of the owner frees both once the last array is gone. A window on memory of a
//! Python object holds that object's buffer, and releases it after itself.

use std::ffi::c_int;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kumi_mem::{Error, OnPlacement, Rights, Window};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::buffer::{Input, Output};
use crate::control::rank_of;
use crate::error::Failure;
use crate::fifo::close_all;
use crate::number::{maybe_name, name, whole};
use crate::request::collect;
use crate::state::{State, current, number, released};

/// State that a window shares with the objects that show its memory. Views may be made and dropped in any
/// thread.
#[derive(Debug, Default)]
struct ExportCount {
    /// Buffers of the memory that Python has not released.
    views: AtomicUsize,
    /// `free` was called, or `finalize`.
    freed: AtomicBool,
}

/// Memory of a Python object below a window.
struct Memory {
    buffer: Output,
    /// Keeps the object from moving the memory although its buffer is held.
    _guard: Py<PyAny>,
}

/// A window, and its memory if that is not its own. Forgetting a window also forgets its memory.
pub struct WindowOnMemory {
    // In the order of their ends.
    window: Window<'static>,
    _memory: Option<Memory>,
}

impl Deref for WindowOnMemory {
    type Target = Window<'static>;

    fn deref(&self) -> &Window<'static> {
        &self.window
    }
}

/// A window that has memory.
pub struct WindowEntry {
    window: Arc<WindowOnMemory>,
    shown: Arc<ExportCount>,
}

impl WindowEntry {
    /// The window.
    pub fn window(&self) -> Arc<WindowOnMemory> {
        Arc::clone(&self.window)
    }

    /// Whether no operation can use it any more.
    fn is_over(&self) -> bool {
        self.shown.freed.load(Ordering::Acquire) && self.shown.views.load(Ordering::Acquire) == 0
    }

    /// Ends it with the job. If its memory is still shown, it forgets the window instead and returns true.
    pub fn end(self) -> bool {
        self.shown.freed.store(true, Ordering::Release);
        match Arc::try_unwrap(self.window) {
            Ok(window) if self.shown.views.load(Ordering::Acquire) == 0 => {
                drop(window);
                false
            }
            Ok(window) => {
                std::mem::forget(window);
                true
            }
            Err(window) => {
                std::mem::forget(window);
                true
            }
        }
    }
}

/// Frees the memory of freed windows that is no longer shown.
#[pyfunction]
pub fn reap() -> PyResult<()> {
    clear(current()?.as_ref());
    Ok(())
}

fn clear(state: &State) {
    let over = state.windows.lock().extract_if(|_, entry| entry.is_over()).collect::<Vec<_>>();
    // Only now, while the table is not locked: an object that gets its buffer back may run code.
    drop(over);
}

/// One rank's handle of a window.
#[pyclass(frozen, module = "kumi._native")]
pub struct NativeWindow {
    pub number: u64,
    address: usize,
    bytes: usize,
    shown: Arc<ExportCount>,
}

impl NativeWindow {
    fn check(&self) -> Result<(), Failure> {
        if self.shown.freed.load(Ordering::Acquire) {
            let text = "this window was freed (by free(), a with block, or kumi.finalize())";
            return Err(Failure::new("FreedWindowError", text));
        }
        Ok(())
    }

    /// The state of this thread and its window.
    pub fn find(&self) -> Result<(Arc<State>, Arc<WindowOnMemory>), Failure> {
        self.check()?;
        let state = current()?;
        let window = state.window(self.number)?;
        Ok((state, window))
    }

    /// Makes a window, of this many bytes or on memory; all ranks call it in the same order.
    fn make(
        py: Python<'_>,
        bytes: usize,
        memory: Option<Memory>,
        rights: Rights,
    ) -> PyResult<Self> {
        let state = current()?;
        clear(&state);
        let context = state.context;
        let base = memory.as_ref().map(|memory| memory.buffer.shared().as_ptr());
        let mut made = None;
        released(py, || {
            made = Some(match base {
                None => context.window_with(bytes, rights),
                // SAFETY: the buffer has these bytes. It is held, so they stay, until the window has been
                // dropped (see `WindowOnMemory`). The context drops the window at the latest, unless both are
                // forgotten. Python's threads know that the memory is shared.
                Some(base) => unsafe { context.window_on(base, bytes, rights) },
            });
        });
        let Some(made) = made else {
            return Err(Failure::new("KumiError", "the window was not made").into());
        };
        let window = made.map_err(Failure::from)?;
        let number = number();
        let address = window.base() as usize;
        let shown = Arc::<ExportCount>::default();
        let window = Arc::new(WindowOnMemory { window, _memory: memory });
        let entry = WindowEntry { window, shown: Arc::clone(&shown) };
        state.windows.lock().insert(number, entry);
        Ok(NativeWindow { number, address, bytes, shown })
    }
}

/// Rights in the form that Python passes.
fn rights_of(read: bool, write: bool, atomic: bool) -> Rights {
    let mut rights = Rights::ALL;
    (rights.read, rights.write, rights.atomic) = (read, write, atomic);
    rights
}

/// A counter's number; the library refuses one that is not a `u32`.
pub fn notify_of(notify: i64) -> Result<u32, Failure> {
    u32::try_from(notify).map_err(|_| {
        let text = format!("notification counter {notify} does not exist: use 0 to 63");
        Failure::new("BadNotifyError", text).with("notify", notify)
    })
}

#[pymethods]
impl NativeWindow {
    /// Makes a window; all ranks call it in the same order.
    #[new]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = whole)] bytes: usize,
        read: bool,
        write: bool,
        atomic: bool,
    ) -> PyResult<Self> {
        Self::make(py, bytes, None, rights_of(read, write, atomic))
    }

    /// Makes a window on memory, which it holds with the guard until it is freed; all ranks call it in the
    /// same order.
    #[staticmethod]
    fn on(
        memory: &Bound<'_, PyAny>,
        guard: Py<PyAny>,
        read: bool,
        write: bool,
        atomic: bool,
    ) -> PyResult<Self> {
        let buffer = Output::lasting(memory, "memory")?;
        let bytes = buffer.shared().len();
        let held = Memory { buffer, _guard: guard };
        Self::make(memory.py(), bytes, Some(held), rights_of(read, write, atomic))
    }

    /// Refuses operations from now on; [`reap`] frees the memory once nothing shows it.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        if !self.shown.freed.load(Ordering::Acquire) {
            let state = current()?;
            let lends = || {
                state.context.lends(self.address as *const u8, self.bytes)
                    || state.requests.copies(self.address, self.bytes)
            };
            // What has ended is not under way, even if nobody has asked for it yet.
            if lends() && (collect(py, &state).is_err() || lends()) {
                return Err(Failure::from(Error::BufferLent).into());
            }
            // From here on nobody makes a port or FIFO in it. It counts as shown: nobody ends it before its ports.
            self.shown.views.fetch_add(1, Ordering::AcqRel);
            self.shown.freed.store(true, Ordering::Release);
            let closed = close_all(py, &state, Some(self.number));
            if closed.is_err() {
                self.shown.freed.store(false, Ordering::Release);
            }
            self.shown.views.fetch_sub(1, Ordering::AcqRel);
            closed?;
        }
        Ok(())
    }

    /// Whether it was freed.
    #[getter]
    fn freed(&self) -> bool {
        self.shown.freed.load(Ordering::Acquire)
    }

    /// Bytes of a rank's piece.
    fn size_at(&self, #[pyo3(from_py_with = name)] rank: i64) -> PyResult<u64> {
        let (state, window) = self.find()?;
        Ok(window.size_at(rank_of(&state, rank)?).map_err(Failure::from)?)
    }

    /// Writes into the piece of a rank.
    #[pyo3(signature = (rank, data, offset, notify))]
    fn put(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name)] rank: i64,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole)] offset: usize,
        #[pyo3(from_py_with = maybe_name)] notify: Option<i64>,
    ) -> PyResult<()> {
        let data = Input::of(data, "array")?;
        let (state, window) = self.find()?;
        let to = rank_of(&state, rank)?;
        let notify = notify.map(notify_of).transpose()?;
        let after = OnPlacement { notify, completion: None };
        let done = released(py, || window.put_shared(to, offset, data.shared(), after));
        Ok(done.map_err(Failure::from)?)
    }

    /// Reads from the piece of a rank.
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name)] rank: i64,
        into: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole)] offset: usize,
    ) -> PyResult<()> {
        let into = Output::of(into, "out")?;
        let (state, window) = self.find()?;
        let from = rank_of(&state, rank)?;
        let done = released(py, || window.get_shared(from, offset, into.shared()));
        Ok(done.map_err(Failure::from)?)
    }

    /// The value of a notification counter.
    fn notified(&self, py: Python<'_>, #[pyo3(from_py_with = name)] notify: i64) -> PyResult<u64> {
        let (_state, window) = self.find()?;
        let notify = notify_of(notify)?;
        Ok(released(py, || window.notified(notify)).map_err(Failure::from)?)
    }

    /// Waits until a notification counter shows at least this.
    fn wait_notify(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name)] notify: i64,
        #[pyo3(from_py_with = whole)] at_least: u64,
    ) -> PyResult<u64> {
        let (_state, window) = self.find()?;
        let notify = notify_of(notify)?;
        Ok(released(py, || window.wait_notify(notify, at_least)).map_err(Failure::from)?)
    }

    /// Shows this rank's piece.
    ///
    /// # Safety
    /// The interpreter calls it, with memory for a buffer in `view`.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no memory for the buffer"));
        }
        let this = slf.get();
        this.check()?;
        let length = ffi::Py_ssize_t::try_from(this.bytes)?;
        // SAFETY: the interpreter lets us fill `view`. The memory is that of this rank's own piece, which may
        // be written. It stays while `views` is not 0 (see `WindowEntry`): neither `clear` nor `end` frees
        // it, and both run with the interpreter's lock held.
        let done = unsafe {
            let start = this.address as *mut std::ffi::c_void;
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 0, flags)
        };
        if done != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        this.shown.views.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Removes one view.
    ///
    /// # Safety
    /// The interpreter calls it, once for each buffer that `__getbuffer__` filled.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.shown.views.fetch_sub(1, Ordering::AcqRel);
    }
}
