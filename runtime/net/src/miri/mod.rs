//! Under Miri: what Linux gives otherwise. Miri knows no shared mappings, timers and datagrams. Ranks are threads of one
//! process there, memory files are heap memory, and packets lie in queues. All that is made of these is the product's own.
//!
//! | kernel | here |
//! |---|---|
//! | memory file | heap memory, found by a number that its descriptor keeps: an eventfd, so copies have it too |
//! | mapping | the files' own addresses, `mapping` |
//! | UDP socket | a queue by address, `wire` |
//! | timer, epoll, poll | sleeps, `wait_set` and `blocking_wait` |

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::segment::SegmentError;
use crate::segment::layout::PAGE;
use crate::sys;

pub(crate) mod wire;

/// How long a thread sleeps that could be woken. Miri's clock is its own, so it costs nothing where all sleep. While others
/// compute, the clock runs by 5 µs a basic block: after a short nap, a thread without work would take as much time as they.
pub(crate) const NAP: Duration = Duration::from_millis(100);

/// How much slower the product's clock is than Miri's, which passes 5 µs in a basic block. By that clock a packet would take longer
/// than it is waited for before it is sent again, and counters would be published all the time.
pub(crate) const CLOCK_RATIO: u64 = 100;

/// Memory of a file, all zeros at first.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    pub(crate) start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory, reached only through atomics, raw copies and a region that one value owns.
unsafe impl Send for MemoryFile {}
// SAFETY: as above.
unsafe impl Sync for MemoryFile {}

impl MemoryFile {
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        // SAFETY: made in `create` with this layout; nobody has the file or a mapping of it any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

type Files = BTreeMap<u64, Arc<MemoryFile>>;

fn files() -> MutexGuard<'static, Files> {
    static FILES: Mutex<Files> = Mutex::new(BTreeMap::new());
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets all files and packets: memory that is mapped stays as long as it is.
pub fn forget_all() {
    files().clear();
    wire::forget_all();
}

/// Makes a memory file, whose length stays.
pub(crate) fn memory_file(_: &CStr, length: usize) -> Result<OwnedFd, SegmentError> {
    let failed = |source| SegmentError::Io { what: "memory", source };
    let descriptor = sys::doorbell().map_err(failed)?;
    let layout = Layout::from_size_align(length.max(1), PAGE).map_err(io::Error::other);
    let layout = layout.map_err(failed)?;
    // SAFETY: not of size 0.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
    let mut files = files();
    let number = files.last_key_value().map_or(1, |(last, _)| last + 1);
    files.insert(number, Arc::new(MemoryFile { start, layout }));
    write(descriptor.as_raw_fd(), number);
    Ok(descriptor)
}

/// Another descriptor of the file. Rights are not kept.
pub(crate) fn read_only(file: &OwnedFd) -> Result<OwnedFd, SegmentError> {
    file.try_clone().map_err(|source| SegmentError::Io { what: "dup", source })
}

pub(crate) fn add_seals(_: BorrowedFd<'_>, _: libc::c_int) -> io::Result<()> {
    Ok(())
}

/// Only those of the length.
pub(crate) fn seals(_: BorrowedFd<'_>) -> libc::c_int {
    libc::F_SEAL_SHRINK | libc::F_SEAL_GROW
}

pub(crate) fn length(file: &OwnedFd) -> io::Result<u64> {
    Ok(memory_of(file.as_fd())?.bytes() as u64)
}

fn write(descriptor: i32, number: u64) {
    // SAFETY: eight bytes are read from the number.
    let written = unsafe { libc::write(descriptor, (&raw const number).cast(), 8) };
    assert_eq!(written, 8, "an eventfd takes a number");
}

/// The memory of a file.
pub(crate) fn memory_of(descriptor: BorrowedFd<'_>) -> io::Result<Arc<MemoryFile>> {
    let files = files();
    let mut number = 0u64;
    // SAFETY: eight bytes are written to the number.
    let read = unsafe { libc::read(descriptor.as_raw_fd(), (&raw mut number).cast(), 8) };
    if read != 8 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Reading takes it away; the lock is held meanwhile.
    write(descriptor.as_raw_fd(), number);
    files.get(&number).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
}
