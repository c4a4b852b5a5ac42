//! FIFOs and signals.

use std::ffi::{c_int, c_uint, c_void};

use kumi_mem::{Fifo, Popped, Signal};

use crate::args::{input, output, rank, required, store};
use crate::code::{Code, Failure};
use crate::state::{State, with};
use crate::window::{KumiWindow, find as find_window};

/// `kumi_fifo` of `kumi.h`: opaque to C.
pub struct KumiFifo {
    fifo: Fifo<'static>,
    window: *mut KumiWindow,
}

/// `kumi_signal_handler` of `kumi.h`.
pub type KumiSignalHandler =
    unsafe extern "C" fn(argument: *mut c_void, source: c_int, data: *const c_void, length: usize);

/// The FIFO behind a handle, if it is one that was given out.
fn find(state: &State, handle: *mut KumiFifo) -> Result<&Fifo<'static>, Failure> {
    if !state.fifos.borrow().contains(&handle) {
        return Err(Code::Fifo.into());
    }
    // SAFETY: the handle is in the list, so it came from `Box::into_raw` and was not freed. It lives
    // at least as long as this call: only functions of this thread free it.
    Ok(unsafe { &(*handle).fifo })
}

/// Frees the FIFOs that lie in a window which is about to be freed, or all.
pub fn free_those_of(state: &State, window: Option<*mut KumiWindow>) {
    // SAFETY: a pointer in the list came from `Box::into_raw` and was not freed.
    let lies_in = |fifo: *mut KumiFifo| window.is_none_or(|it| unsafe { (*fifo).window } == it);
    let (gone, left) = state.fifos.take().into_iter().partition(|fifo| lies_in(*fifo));
    state.fifos.replace(left);
    for fifo in gone {
        // SAFETY: as above; now it is in no list.
        drop(unsafe { Box::from_raw(fifo) });
    }
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
        find_window(state, window)?;
        required(fifo, "fifo")?;
        // SAFETY: just found. The window lives until `kumi_window_free` or `kumi_finalize`, which
        // free its FIFOs first.
        let inside = unsafe { &(*window).window };
        let made = inside.fifo(offset, capacity, notify)?;
        let handle = Box::into_raw(Box::new(KumiFifo { fifo: made, window }));
        state.fifos.borrow_mut().push(handle);
        // SAFETY: promised by the caller.
        unsafe { store(fifo, handle) }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// None but that of every function that takes a handle: it is looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_fifo_free(fifo: *mut KumiFifo) -> c_int {
    with(|state| {
        if fifo.is_null() {
            return Ok(());
        }
        let mut fifos = state.fifos.borrow_mut();
        let place = fifos.iter().position(|known| *known == fifo).ok_or(Code::Fifo)?;
        fifos.swap_remove(place);
        drop(fifos);
        // SAFETY: it was in the list, so it came from `Box::into_raw` and was not freed; now it is
        // in no list.
        drop(unsafe { Box::from_raw(fifo) });
        Ok(())
    })
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
    with(|state| {
        let window = find_window(state, window)?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data.cast::<u8>(), length, "data") }?;
        Ok(window.append(rank(to)?, offset, data)?)
    })
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
    with(|state| {
        let window = find_window(state, window)?;
        required(appended, "appended")?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data.cast::<u8>(), length, "data") }?;
        let taken = window.try_append(rank(to)?, offset, data)?;
        // SAFETY: promised by the caller.
        unsafe { store(appended, c_int::from(taken)) }
    })
}

/// Tells C of a record.
///
/// # Safety
/// `length` and `source` are null or point to memory for their types.
unsafe fn tell(popped: Popped, length: *mut usize, source: *mut c_int) -> Result<(), Failure> {
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
        let into = unsafe { output(buffer.cast::<u8>(), capacity, "buffer") }?;
        match fifo.pop(into) {
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
        let into = unsafe { output(buffer.cast::<u8>(), capacity, "buffer") }?;
        match fifo.try_pop(into) {
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

/// What a handler of the program is called with beside the signal.
struct Argument(*mut c_void);

// SAFETY: the pointer is only handed back to the program, which said that its handler can be called
// from another thread with it.
unsafe impl Send for Argument {}

impl Argument {
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
        let argument = Argument(argument);
        let call = move |signal: Signal<'_>| {
            let from = c_int::try_from(signal.from).unwrap_or(c_int::MAX);
            let (data, length) = (signal.data.as_ptr().cast(), signal.data.len());
            // SAFETY: promised by the caller; the data lives as long as the call.
            unsafe { handler(argument.pointer(), from, data, length) };
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
    with(|state| {
        let window = find_window(state, window)?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data.cast::<u8>(), length, "data") }?;
        Ok(window.signal(rank(to)?, offset, data)?)
    })
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
    with(|state| {
        let window = find_window(state, window)?;
        required(sent, "sent")?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data.cast::<u8>(), length, "data") }?;
        let taken = window.try_signal(rank(to)?, offset, data)?;
        // SAFETY: promised by the caller.
        unsafe { store(sent, c_int::from(taken)) }
    })
}
