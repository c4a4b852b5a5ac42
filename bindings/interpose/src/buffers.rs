//! Shared buffers around a call.

use std::ffi::{c_int, c_void};

use kumi_dsm::system_calls::{self, Use};

/// Bytes that a call reads or writes.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) start: *const c_void,
    pub(crate) bytes: usize,
    pub(crate) usage: Use,
}

/// What the kernel reads.
pub(crate) fn reads(start: *const c_void, bytes: usize) -> Buffer {
    Buffer { start, bytes, usage: Use::Reads }
}

/// What the kernel writes.
pub(crate) fn writes(start: *const c_void, bytes: usize) -> Buffer {
    Buffer { start, bytes, usage: Use::Writes }
}

impl Buffer {
    pub(crate) fn is_shared(&self) -> bool {
        system_calls::is_shared(self.start.cast(), self.bytes)
    }

    /// What is behind the first bytes.
    pub(crate) fn after(&self, done: usize) -> Buffer {
        Buffer {
            start: self.start.wrapping_byte_add(done),
            bytes: self.bytes - done,
            usage: self.usage,
        }
    }

    /// Brings its pages; whether some were not there. Nothing if they cannot be had: then the kernel's error stays.
    fn bring(&self) -> Option<bool> {
        system_calls::bring(self.start.cast(), self.bytes, self.usage).ok()
    }

    fn touch(&self) {
        // SAFETY: `bring` has found no error before.
        unsafe { system_calls::touch(self.start.cast(), self.bytes, self.usage) };
    }
}

/// Brings the pages of all buffers; whether some were not there. Keeps `errno`.
pub(crate) fn bring_all(buffers: impl Iterator<Item = Buffer>) -> Option<bool> {
    let before = errno();
    let mut changed = Some(false);
    for buffer in buffers {
        match buffer.bring() {
            Some(more) => changed = changed.map(|changed| changed | more),
            None => changed = None,
        }
    }
    set_errno(before);
    changed
}

/// Calls that fail although all pages are there are tried again so often: the kernel may have reclaimed pages.
const TRIES: u32 = 3;

/// Does a call that returns -1 with `errno` on failure, with pages of shared buffers there.
pub(crate) fn with_pages<B: Iterator<Item = Buffer>>(
    buffers: impl Fn() -> B,
    call: impl Fn() -> isize,
) -> isize {
    if !buffers().any(|buffer| buffer.is_shared()) {
        return call();
    }
    // First, since a datagram is lost with an EFAULT, and a file gives less than was asked for.
    let mut usable = bring_all(buffers()).is_some();
    let mut tries = 0;
    loop {
        let done = call();
        if done != -1 || errno() != libc::EFAULT || !usable {
            return done;
        }
        // Another thread's lock or barrier has taken pages away. Or the EFAULT is not ours.
        match bring_all(buffers()) {
            Some(true) => tries = 0,
            Some(false) if tries < TRIES => {
                tries += 1;
                buffers().for_each(|buffer| buffer.touch());
            }
            Some(false) => usable = false,
            None => usable = false,
        }
        set_errno(libc::EFAULT);
        if !usable {
            return done;
        }
    }
}

/// As [`with_pages`], for one buffer that a file or stream reads or writes from its first byte on: `call` gets what is left and
/// how many bytes are done. A regular file goes on where a page was missing, as it would without shared memory.
pub(crate) fn whole(
    descriptor: c_int,
    buffer: Buffer,
    call: impl Fn(Buffer, usize) -> isize,
) -> isize {
    if !buffer.is_shared() {
        return call(buffer, 0);
    }
    let mut done = 0;
    loop {
        let left = buffer.after(done);
        let more = with_pages(|| std::iter::once(left), || call(left, done));
        let Ok(more_bytes) = usize::try_from(more) else {
            return if done > 0 { done as isize } else { more };
        };
        done += more_bytes;
        let over = more_bytes == 0 || done >= buffer.bytes;
        // Short, and the page that comes next is not there: that may be why.
        let missing = || bring_all(std::iter::once(buffer.after(done))) == Some(true);
        if over || !missing() || !is_regular(descriptor) {
            return done as isize;
        }
    }
}

fn is_regular(descriptor: c_int) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: room for what the kernel writes.
    if unsafe { libc::fstat(descriptor, status.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: zeros are valid, and the kernel has filled it in.
    unsafe { status.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFREG
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the place of this thread's errno, which always exists.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}
