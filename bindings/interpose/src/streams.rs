//! Of `FILE`. The C library's own `read` is inside of it, out of reach from here: it gives an error of the stream.

use std::ffi::{c_int, c_void};

use libc::FILE;

use crate::buffers::{Buffer, bring_all, errno, reads, set_errno, writes};
use crate::next::next;

type Read = unsafe extern "C" fn(*mut c_void, usize, usize, *mut FILE) -> usize;
type Write = unsafe extern "C" fn(*const c_void, usize, usize, *mut FILE) -> usize;

unsafe extern "C" {
    fn ferror(stream: *mut FILE) -> c_int;
    fn clearerr(stream: *mut FILE);
}

/// Moves `count` elements of `size` bytes as bytes, so that a page that vanishes on the way divides no element.
///
/// # Safety
/// `stream` is one, and `call` keeps to its buffer.
unsafe fn elements(
    buffer: Buffer,
    size: usize,
    stream: *mut FILE,
    call: impl Fn(Buffer) -> usize,
) -> usize {
    // SAFETY: promised by the caller.
    let bad_before = unsafe { ferror(stream) } != 0;
    let mut done = 0;
    loop {
        // What cannot be had gives the stream's error.
        let _ = bring_all(std::iter::once(buffer.after(done)));
        set_errno(0);
        done += call(buffer.after(done));
        let fault = errno() == libc::EFAULT && !bad_before;
        let again = done < buffer.bytes
            && fault
            && bring_all(std::iter::once(buffer.after(done))) == Some(true);
        if !again {
            return done / size;
        }
        // SAFETY: promised by the caller.
        unsafe { clearerr(stream) };
    }
}

/// See `fread(3)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fread(
    start: *mut c_void,
    size: usize,
    count: usize,
    stream: *mut FILE,
) -> usize {
    let next = next!(c"fread": Read);
    let buffer = writes(start, size.saturating_mul(count));
    if buffer.bytes == 0 || !buffer.is_shared() {
        // SAFETY: the caller's arguments.
        return unsafe { next(start, size, count, stream) };
    }
    // SAFETY: a part of the caller's buffer.
    let call = |left: Buffer| unsafe { next(left.start.cast_mut(), 1, left.bytes, stream) };
    // SAFETY: the caller's promises.
    unsafe { elements(buffer, size, stream, call) }
}

/// See `fwrite(3)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fwrite(
    start: *const c_void,
    size: usize,
    count: usize,
    stream: *mut FILE,
) -> usize {
    let next = next!(c"fwrite": Write);
    let buffer = reads(start, size.saturating_mul(count));
    if buffer.bytes == 0 || !buffer.is_shared() {
        // SAFETY: the caller's arguments.
        return unsafe { next(start, size, count, stream) };
    }
    // SAFETY: a part of the caller's buffer.
    let call = |left: Buffer| unsafe { next(left.start, 1, left.bytes, stream) };
    // SAFETY: the caller's promises.
    unsafe { elements(buffer, size, stream, call) }
}
