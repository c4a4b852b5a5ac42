//! By descriptor.

use std::ffi::{c_int, c_void};

use kumi_dsm::system_calls::Use;
use libc::{iovec, off_t};

use crate::buffers::{Buffer, reads, whole, with_pages, writes};
use crate::next::next;

type Read = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;
type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
type ReadAt = unsafe extern "C" fn(c_int, *mut c_void, usize, off_t) -> isize;
type WriteAt = unsafe extern "C" fn(c_int, *const c_void, usize, off_t) -> isize;
type Vector = unsafe extern "C" fn(c_int, *const iovec, c_int) -> isize;

/// See `read(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(descriptor: c_int, buffer: *mut c_void, bytes: usize) -> isize {
    let next = next!(c"read": Read);
    // SAFETY: the caller's arguments, or a part of its buffer.
    let call = |left: Buffer, _| unsafe { next(descriptor, left.start.cast_mut(), left.bytes) };
    whole(descriptor, writes(buffer, bytes), call)
}

/// See `write(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(descriptor: c_int, buffer: *const c_void, bytes: usize) -> isize {
    let next = next!(c"write": Write);
    // SAFETY: as in `read`.
    let call = |left: Buffer, _| unsafe { next(descriptor, left.start, left.bytes) };
    whole(descriptor, reads(buffer, bytes), call)
}

/// `pread` and `pread64`.
///
/// # Safety
/// As of `pread`.
unsafe fn read_at(
    next: ReadAt,
    descriptor: c_int,
    buffer: *mut c_void,
    bytes: usize,
    offset: off_t,
) -> isize {
    let call = |left: Buffer, done| {
        // SAFETY: as in `read`.
        unsafe { next(descriptor, left.start.cast_mut(), left.bytes, later(offset, done)) }
    };
    whole(descriptor, writes(buffer, bytes), call)
}

/// `pwrite` and `pwrite64`.
///
/// # Safety
/// As of `pwrite`.
unsafe fn write_at(
    next: WriteAt,
    descriptor: c_int,
    buffer: *const c_void,
    bytes: usize,
    offset: off_t,
) -> isize {
    let call = |left: Buffer, done| {
        // SAFETY: as in `read`.
        unsafe { next(descriptor, left.start, left.bytes, later(offset, done)) }
    };
    whole(descriptor, reads(buffer, bytes), call)
}

/// Where a file goes on. No file is longer than offsets can say.
fn later(offset: off_t, done: usize) -> off_t {
    offset.saturating_add(off_t::try_from(done).unwrap_or(off_t::MAX))
}

macro_rules! at_offsets {
    ($($name:ident = $text:literal: $type:ty, $pointer:ty, $by:ident;)*) => {$(
        /// See `pread(2)`.
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            descriptor: c_int,
            buffer: $pointer,
            bytes: usize,
            offset: off_t,
        ) -> isize {
            let next = next!($text: $type);
            // SAFETY: the caller's promises.
            unsafe { $by(next, descriptor, buffer, bytes, offset) }
        }
    )*};
}

at_offsets! {
    pread = c"pread": ReadAt, *mut c_void, read_at;
    pread64 = c"pread64": ReadAt, *mut c_void, read_at;
    pwrite = c"pwrite": WriteAt, *const c_void, write_at;
    pwrite64 = c"pwrite64": WriteAt, *const c_void, write_at;
}

/// The buffers of a vector; none if there are more than the kernel takes, or fewer than none.
///
/// # Safety
/// `vector` points to `count` elements.
pub(crate) unsafe fn of_vector(
    vector: *const iovec,
    count: usize,
    usage: Use,
) -> impl Iterator<Item = Buffer> {
    const MOST: usize = 1024;
    let count = if vector.is_null() || count > MOST { 0 } else { count };
    (0..count).map(move |at| {
        // SAFETY: promised by the caller.
        let iovec { iov_base, iov_len } = unsafe { vector.add(at).read_unaligned() };
        Buffer { start: iov_base, bytes: iov_len, usage }
    })
}

/// `readv` and `writev`.
///
/// # Safety
/// As of `readv`.
unsafe fn vector_call(
    next: Vector,
    descriptor: c_int,
    vector: *const iovec,
    count: c_int,
    usage: Use,
) -> isize {
    let counted = usize::try_from(count).unwrap_or(0);
    let list = || std::iter::once(reads(vector.cast(), counted * size_of::<iovec>()));
    // SAFETY: the caller's promises.
    let buffers = || list().chain(unsafe { of_vector(vector, counted, usage) });
    // SAFETY: as above.
    with_pages(buffers, || unsafe { next(descriptor, vector, count) })
}

/// See `readv(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(descriptor: c_int, vector: *const iovec, count: c_int) -> isize {
    let next = next!(c"readv": Vector);
    // SAFETY: the caller's promises.
    unsafe { vector_call(next, descriptor, vector, count, Use::Writes) }
}

/// See `writev(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(descriptor: c_int, vector: *const iovec, count: c_int) -> isize {
    let next = next!(c"writev": Vector);
    // SAFETY: the caller's promises.
    unsafe { vector_call(next, descriptor, vector, count, Use::Reads) }
}
