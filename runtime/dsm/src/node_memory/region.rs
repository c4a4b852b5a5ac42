//! A mapping of a memory file, through which the library reaches its bytes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use kumi_net::{ForkCheck, SharedBytesMut};

use super::{MemoryError, failed};

/// A whole memory file, mapped for reading and writing. Children of the process do not have it, and it is in no core dump,
/// which would give memory to every page that was never touched.
#[derive(Debug)]
pub(super) struct Region {
    base: NonNull<u8>,
    length: usize,
    forks: ForkCheck,
}

// SAFETY: a mapping is address space that is valid in every thread; its bytes are reached by `SharedBytesMut` only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a file, which must be sealed against another length than `bytes`.
    pub(super) fn new(
        file: BorrowedFd<'_>,
        bytes: u64,
        forks: ForkCheck,
    ) -> Result<Region, MemoryError> {
        let too_long = |_| failed("mmap")(io::ErrorKind::OutOfMemory.into());
        let length = usize::try_from(bytes).map_err(too_long)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel finds room changes no memory of this process.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(failed("mmap")(io::Error::last_os_error()));
        }
        let base =
            NonNull::new(address.cast()).expect("the kernel maps nothing at address 0 unless told");
        let region = Region { base, length, forks };
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            region.advise(0, length, advice).map_err(failed("madvise"))?;
        }
        Ok(region)
    }

    /// Bytes of it.
    ///
    /// # Panics
    /// If they are not there.
    pub(super) fn bytes(&self, start: u64, length: usize) -> SharedBytesMut<'_> {
        // SAFETY: the whole mapping can be read and written, and starts as zeros. It lasts as long as `self`, and its file
        // cannot shrink. No references to its bytes exist but atomics that come from this value. Programs write the same
        // memory at other addresses, as another process would.
        let all = unsafe { SharedBytesMut::new(self.base, self.length) };
        all.slice(usize::try_from(start).unwrap_or(usize::MAX), length)
    }

    /// Gives memory to bytes that have none, for reading.
    pub(super) fn populate(&self, start: u64, bytes: u64) -> io::Result<()> {
        let outside = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let (start, bytes) =
            (usize::try_from(start).map_err(outside)?, usize::try_from(bytes).map_err(outside)?);
        self.advise(start, bytes, libc::MADV_POPULATE_READ)
    }

    /// Gives memory to bytes that have none, for writing.
    pub(super) fn make(&self, start: u64, bytes: u64) -> io::Result<()> {
        let outside = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let (start, bytes) =
            (usize::try_from(start).map_err(outside)?, usize::try_from(bytes).map_err(outside)?);
        self.advise(start, bytes, libc::MADV_POPULATE_WRITE)
    }

    fn advise(&self, start: usize, length: usize, advice: libc::c_int) -> io::Result<()> {
        let place = self.bytes(start as u64, length).as_ptr();
        // SAFETY: a part of this mapping, by the check of `bytes`; none of the kinds of advice above takes contents away.
        let done = unsafe { libc::madvise(place.cast(), length, advice) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // A child does not have the mapping, and something else may be at its addresses there.
        if self.forks.is_child() {
            return;
        }
        // SAFETY: the mapping made in `new`; what was borrowed from it has ended with `self`'s borrow.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
