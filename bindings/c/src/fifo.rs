//! FIFOs and signals.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kumi_mem::{Fifo, FifoRecord, Signal, Window};

use crate::args::{output, required, store};
use crate::code::{Code, Failure};
use crate::state::{State, away, with};
use crate::window::{KumiWindow, find as find_window, with_bytes};

/// `kumi_fifo` of `kumi.h`: opaque to C.
pub struct KumiFifo {
    /// One thread at a time takes records out.
    fifo: Mutex<Fifo<'static>>,
    window: *mut KumiWindow,
}

// SAFETY: the handle of the window is a number here; the rest may be moved and shared.
unsafe impl Send for KumiFifo {}
// SAFETY: as above.
unsafe impl Sync for KumiFifo {}

/// `kumi_signal_handler` of `kumi.h`.
pub type KumiSignalHandler =
    unsafe extern "C" fn(argument: *mut c_void, source: c_int, data: *const c_void, length: usize);

impl KumiFifo {
    /// Whether it is in a window's memory.
    pub(crate) fn lies_in(&self, window: *mut KumiWindow) -> bool {
        self.window == window
    }
}

/// The FIFO behind a handle, if it is one that was given out.
fn find(state: &State, handle: *mut KumiFifo) -> Result<MutexGuard<'_, Fifo<'static>>, Failure> {
    Ok(state.fifos.find(handle)?.fifo.lock().unwrap_or_else(PoisonError::into_inner))
}

/// See `kumi.h`.
///
/// # Safety
/// `fifo` points to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_fifo_create(
    window: *mut KumiWindow,
    offset: usize,
    capacity: usize,
    notify: c_uint,
    fifo: *mut *mut KumiFifo,
) -> c_int {
    with(|state| {
        required(fifo, "fifo")?;
        let inside: *const Window<'static> = find_window(state, window)?;
        // SAFETY: just found. The window lives until `kumi_window_free` or `kumi_finalize`, which
        // free its FIFOs first.
        let inside = unsafe { &*inside };
        let made = inside.fifo(offset, capacity, notify)?;
        let handle = state.fifos.give(KumiFifo { fifo: Mutex::new(made), window })?;
        // SAFETY: promised by the caller.
        unsafe { store(fifo, handle) }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// No other call uses the FIFO, now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_fifo_free(fifo: *mut KumiFifo) -> c_int {
    // SAFETY: the program promises that no other call uses the FIFO.
    with(|state| unsafe { state.fifos.free(fifo) })
}

/// See `kumi.h`.
///
/// # Safety
/// `bytes` points to memory for a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_fifo_max_record(bytes: *mut usize) -> c_int {
    with(|state| {
        required(bytes, "bytes")?;
        // SAFETY: promised by the caller.
        unsafe { store(bytes, state.context.max_record()) }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_fifo_append(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        with_bytes(window, to, data, length, |window, to, data| {
            Ok(window.append_shared(to, offset, data, true).map(drop)?)
        })
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `length` bytes, `appended` to memory for an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_fifo_try_append(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    data: *const c_void,
    length: usize,
    appended: *mut c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        with_bytes(window, to, data, length, |window, to, data| {
            required(appended, "appended")?;
            store(appended, c_int::from(window.append_shared(to, offset, data, false)?))
        })
    }
}

/// Tells C of a record.
///
/// # Safety
/// `length` and `source` are null or point to memory for their types.
unsafe fn tell(popped: FifoRecord, length: *mut usize, source: *mut c_int) -> Result<(), Failure> {
    // SAFETY: promised by the caller.
    unsafe {
        store(length, popped.len)?;
        store(source, c_int::try_from(popped.from).unwrap_or(c_int::MAX))
    }
}

/// A failed take; of one that failed because of the buffer, `length` gets what is needed.
///
/// # Safety
/// As [`tell`].
unsafe fn too_short(error: kumi_mem::Error, length: *mut usize) -> Result<Failure, Failure> {
    if let kumi_mem::Error::ShortBuffer { needed, .. } = &error {
        // SAFETY: promised by the caller.
        unsafe { store(length, *needed) }?;
    }
    Ok(error.into())
}

/// See `kumi.h`.
///
/// # Safety
/// `buffer` points to `capacity` bytes; `length` and `source` are null or point to memory for their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_fifo_pop(
    fifo: *mut KumiFifo,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
    source: *mut c_int,
) -> c_int {
    with(|state| {
        let fifo = find(state, fifo)?;
        // SAFETY: promised by the caller.
        let into = unsafe { output(buffer, capacity, "buffer") }?;
        match fifo.pop_shared(into) {
            // SAFETY: promised by the caller.
            Ok(popped) => unsafe { tell(popped, length, source) },
            // SAFETY: promised by the caller.
            Err(error) => Err(unsafe { too_short(error, length) }?),
        }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// As [`kumi_fifo_pop`], and `found` points to memory for an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_fifo_try_pop(
    fifo: *mut KumiFifo,
    buffer: *mut c_void,
    capacity: usize,
    found: *mut c_int,
    length: *mut usize,
    source: *mut c_int,
) -> c_int {
    with(|state| {
        let fifo = find(state, fifo)?;
        required(found, "found")?;
        // SAFETY: promised by the caller.
        let into = unsafe { output(buffer, capacity, "buffer") }?;
        match fifo.try_pop_shared(into) {
            // SAFETY: promised by the caller.
            Ok(None) => unsafe { store(found, 0) },
            Ok(Some(popped)) => {
                // SAFETY: promised by the caller.
                unsafe {
                    store(found, 1)?;
                    tell(popped, length, source)
                }
            }
            // SAFETY: promised by the caller.
            Err(error) => Err(unsafe { too_short(error, length) }?),
        }
    })
}

/// The program's argument to a handler, beside the signal.
struct HandlerArgument(*mut c_void);

// SAFETY: the pointer is only handed back to the program, which said that its handler can be called
// from another thread with it.
unsafe impl Send for HandlerArgument {}

impl HandlerArgument {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `handler` can be called from another thread with `argument`, until the port is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_signal_handle(
    window: *mut KumiWindow,
    offset: usize,
    capacity: usize,
    handler: Option<KumiSignalHandler>,
    argument: *mut c_void,
) -> c_int {
    with(|state| {
        let window = find_window(state, window)?;
        let handler = handler.ok_or_else(|| Failure::new(Code::Null, "handler is NULL"))?;
        let argument = HandlerArgument(argument);
        let call = move |signal: Signal<'_>| {
            let from = c_int::try_from(signal.from).unwrap_or(c_int::MAX);
            let (data, length) = (signal.data.as_ptr().cast(), signal.data.len());
            // SAFETY: promised by the caller; the data lives as long as the call.
            away(|| unsafe { handler(argument.pointer(), from, data, length) });
        };
        Ok(window.on_signal(offset, capacity, call)?)
    })
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_signal_remove(window: *mut KumiWindow, offset: usize) -> c_int {
    with(|state| Ok(find_window(state, window)?.remove_signal(offset)?))
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_signal_send(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        with_bytes(window, to, data, length, |window, to, data| {
            Ok(window.signal_shared(to, offset, data, true).map(drop)?)
        })
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `length` bytes, `sent` to memory for an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_signal_try_send(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    data: *const c_void,
    length: usize,
    sent: *mut c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        with_bytes(window, to, data, length, |window, to, data| {
            required(sent, "sent")?;
            store(sent, c_int::from(window.signal_shared(to, offset, data, false)?))
        })
    }
}
