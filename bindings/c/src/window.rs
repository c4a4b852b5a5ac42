//! Windows.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use kumi_mem::{Error, OnPlacement, Rights, SharedBytes, Window};

use crate::args::{input, not_shared, output, rank, required, store};
use crate::code::{Code, Failure};
use crate::state::{State, with};

/// `kumi_window` of `kumi.h`: opaque to C.
pub struct KumiWindow {
    pub(crate) window: Window<'static>,
}

/// A window that lives at least as long as the call.
pub(crate) type WindowRef<'s> = &'s Window<'static>;

/// The window behind a handle, if it is one that was given out.
pub(crate) fn find(state: &State, handle: *mut KumiWindow) -> Result<WindowRef<'_>, Failure> {
    Ok(&state.windows.find(handle)?.window)
}

/// Runs `body` with a window, a rank and bytes that C passes.
///
/// # Safety
/// `data` points to `length` bytes.
pub(crate) unsafe fn with_bytes(
    window: *mut KumiWindow,
    to: c_int,
    data: *const c_void,
    length: usize,
    body: impl FnOnce(WindowRef<'_>, u32, SharedBytes<'_>) -> Result<(), Failure>,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data, length, "data") }?;
        body(window, rank(to)?, data)
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `window` points to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_create(bytes: usize, window: *mut *mut KumiWindow) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        create(window, KUMI_RIGHT_ALL, NO_MEMORY, |state, rights| {
            state.context.window_with(bytes, rights)
        })
    }
}

/// Makes a window with these rights and returns its handle. With wrong arguments, or without room for a
/// handle, it still takes part and refuses, so that the other ranks do not wait for this one.
///
/// # Safety
/// `window` is null or points to memory for a handle.
unsafe fn create(
    window: *mut *mut KumiWindow,
    rights: c_uint,
    on: (*const c_void, usize),
    make: impl FnOnce(&State, Rights) -> Result<Window<'static>, Error>,
) -> c_int {
    with(|state| {
        let checked = required(window, "window").and_then(|()| not_shared(on.0, on.1, "base"));
        let checked = checked.and_then(|()| rights_of(rights));
        let checked = checked.and_then(|rights| state.windows.room().map(|()| rights));
        let rights = match checked {
            Ok(rights) => rights,
            Err(wrong) => {
                state.context.refuse_window()?;
                return Err(wrong);
            }
        };
        let handle = state.windows.give(KumiWindow { window: make(state, rights)? })?;
        // SAFETY: promised by the caller.
        unsafe { store(window, handle) }
    })
}

/// A window that is not on memory of the program's own.
const NO_MEMORY: (*const c_void, usize) = (std::ptr::null(), 0);

/// `KUMI_RIGHT_ALL` of `kumi.h`.
const KUMI_RIGHT_ALL: c_uint = 7;

/// Rights as C gives them.
fn rights_of(bits: c_uint) -> Result<Rights, Failure> {
    if bits > KUMI_RIGHT_ALL {
        return Err(Failure::new(Code::Right, format!("{bits} is no sum of KUMI_RIGHT_ numbers")));
    }
    Ok(Rights { write: bits & 1 != 0, read: bits & 2 != 0, atomic: bits & 4 != 0 })
}

/// See `kumi.h`.
///
/// # Safety
/// `window` points to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_create_with(
    bytes: usize,
    rights: c_uint,
    window: *mut *mut KumiWindow,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        create(window, rights, NO_MEMORY, |state, rights| state.context.window_with(bytes, rights))
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `window` points to memory for a handle. The `bytes` bytes at `base` stay until the window has been
/// freed, by `kumi_window_free` or `kumi_finalize`, and may be read and written by any thread until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_register(
    base: *mut c_void,
    bytes: usize,
    rights: c_uint,
    window: *mut *mut KumiWindow,
) -> c_int {
    let make = |state: &State, rights| {
        // SAFETY: promised by the caller; `state` drops the window when it is freed, at the latest before
        // `kumi_finalize` returns.
        unsafe { state.context.window_on(base.cast(), bytes, rights) }
    };
    // SAFETY: promised by the caller.
    unsafe { create(window, rights, (base, bytes), make) }
}

/// See `kumi.h`.
///
/// # Safety
/// Nothing uses the memory that `kumi_window_base` gave for the window afterwards, and no other call the window or its FIFOs
/// meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_free(window: *mut KumiWindow) -> c_int {
    with(|state| {
        if window.is_null() {
            return Ok(());
        }
        let may = |KumiWindow { window }: &KumiWindow| {
            let lent = state.context.lends(window.base(), window.len());
            if lent { Err(Error::BufferLent.into()) } else { Ok(()) }
        };
        // SAFETY: the program promises that no other call uses the window or a FIFO in it. FIFOs borrow the window, and go
        // before it.
        unsafe {
            let fifos = || state.fifos.free_those(|fifo| fifo.lies_in(window));
            state.windows.free_after(window, may, fifos)
        }
    })
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_window_base(window: *mut KumiWindow) -> *mut c_void {
    let mut base = ptr::null_mut();
    let _ = with(|state| {
        base = find(state, window)?.base().cast();
        Ok(())
    });
    base
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_put(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    data: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        with_bytes(window, to, data, length, |window, to, data| {
            Ok(window.put_shared(to, offset, data, OnPlacement::default())?)
        })
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_put_notify(
    window: *mut KumiWindow,
    to: c_int,
    offset: usize,
    data: *const c_void,
    length: usize,
    notify: c_uint,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        with_bytes(window, to, data, length, |window, to, data| {
            let after = OnPlacement { notify: Some(notify), completion: None };
            Ok(window.put_shared(to, offset, data, after)?)
        })
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `buffer` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_get(
    window: *mut KumiWindow,
    from: c_int,
    offset: usize,
    length: usize,
    buffer: *mut c_void,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        // SAFETY: promised by the caller.
        let buffer = unsafe { output(buffer, length, "buffer") }?;
        Ok(window.get_shared(rank(from)?, offset, buffer)?)
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `count` points to memory for a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_notified(
    window: *mut KumiWindow,
    notify: c_uint,
    count: *mut u64,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        required(count, "count")?;
        let seen = window.notified(notify)?;
        // SAFETY: promised by the caller.
        unsafe { store(count, seen) }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `count` is null or points to memory for a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_wait_notify(
    window: *mut KumiWindow,
    notify: c_uint,
    at_least: u64,
    count: *mut u64,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        let seen = window.wait_notify(notify, at_least)?;
        // SAFETY: promised by the caller.
        unsafe { store(count, seen) }
    })
}
