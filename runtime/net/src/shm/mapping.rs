//! Shared mapping of the first part of a memory file.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A shared mapping that starts at offset 0 of a memory file; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping is plain address space, valid from every thread; its contents are reached only
// through atomics or raw copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes. The file must be sealed against shrinking and at least that long, so that no access raises SIGBUS.
    pub(crate) fn new(file: BorrowedFd<'_>, length: usize) -> io::Result<Mapping> {
        Mapping::with(file, length, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// As [`Mapping::new`], for reading only: writing into it ends the process.
    pub(crate) fn read_only(file: BorrowedFd<'_>, length: usize) -> io::Result<Mapping> {
        Mapping::with(file, length, libc::PROT_READ)
    }

    fn with(file: BorrowedFd<'_>, length: usize, protection: libc::c_int) -> io::Result<Mapping> {
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of this process.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast())
            .ok_or_else(|| io::Error::other("the kernel mapped a segment at address 0"))?;
        Ok(Mapping { base, length })
    }

    /// Leaves it out of core dumps of this process.
    pub(crate) fn keep_out_of_dumps(&self) -> io::Result<()> {
        let base = self.base.as_ptr().cast();
        // SAFETY: the whole of our own mapping; neither its contents nor its protection change.
        let done = unsafe { libc::madvise(base, self.length, libc::MADV_DONTDUMP) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The address of `bytes` bytes at `offset`.
    ///
    /// # Panics
    /// If they are not inside the mapping: offsets come from a checked [`crate::segment::layout::Layout`].
    #[inline]
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.length),
            "offset outside of the segment"
        );
        // SAFETY: the offset was just checked to be inside of the mapping.
        unsafe { self.base.add(offset) }
    }

    /// The structure of atomics at `offset`.
    ///
    /// # Safety
    /// `T` consists of atomics only (valid for every bit pattern, and safe to share with other processes that write it).
    ///
    /// # Panics
    /// If it is not inside the mapping or not aligned.
    #[inline]
    pub(crate) unsafe fn view<T>(&self, offset: usize) -> &T {
        let place = self.at(offset, size_of::<T>()).cast::<T>();
        assert!(place.is_aligned(), "misaligned structure in the segment");
        // SAFETY: inside of the mapping, aligned, and valid for any contents by the caller's promise; it lives as long as the mapping, which `self` borrows.
        unsafe { place.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
