//! Shared memory as a buffer of system calls. The kernel takes no page faults: it returns `EFAULT` for pages that are not
//! visible, a short count, or throws a datagram away. So pages come first.
//!
//! All functions are for any thread, also in handlers of signals, and find the memory by its address.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::view::{self, FaultRefusal};

/// What the kernel does to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It reads it, as `write` does.
    Reads,
    /// It writes it, as `read` does.
    Writes,
}

/// Whether some byte of a buffer is in shared memory of this process.
#[must_use]
pub fn is_shared(start: *const u8, bytes: usize) -> bool {
    view::any_inside(start.addr()..start.addr().saturating_add(bytes))
}

/// Makes a buffer ready for a system call; whether it was not. What is not in shared memory is left alone. Another thread's lock
/// or barrier may take pages away again at any time.
///
/// # Errors
/// Pages that were not allocated, a broken channel, or a child made by `fork`.
pub fn bring(start: *const u8, bytes: usize, usage: Use) -> Result<bool, FaultRefusal> {
    if !is_shared(start, bytes) {
        return Ok(false);
    }
    view::prepare(start.addr()..start.addr().saturating_add(bytes), usage == Use::Writes)
}

/// Reaches for each page of a buffer in shared memory, as the program would. The kernel may have reclaimed some, which
/// [`bring`] cannot know.
///
/// # Safety
/// [`bring`] has found no error in this buffer.
pub unsafe fn touch(start: *const u8, bytes: usize, usage: Use) {
    const PAGE: usize = 4096;
    let places = (0..bytes).step_by(PAGE).chain(bytes.checked_sub(1));
    for place in places.map(|at| start.wrapping_add(at)).filter(|place| is_shared(*place, 1)) {
        match usage {
            // SAFETY: allocated shared memory, by the caller's promise. Others change it as another process would.
            Use::Reads => drop(unsafe { place.read_volatile() }),
            Use::Writes => {
                // SAFETY: as above. The byte keeps its value, whoever else writes it.
                unsafe { AtomicU8::from_ptr(place.cast_mut()) }.fetch_or(0, Ordering::Relaxed);
            }
        }
    }
}
