//! Shared mappings: of a part of a memory file, or of several files one behind the other.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A shared mapping; unmapped on drop.
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

/// Part of a memory file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilePart<'f> {
    pub(crate) file: BorrowedFd<'f>,
    /// Where it starts, at a page.
    pub(crate) start: usize,
    pub(crate) length: usize,
}

impl Mapping {
    /// Maps the first `length` bytes. The file must be sealed against shrinking and at least that long, so that no access raises SIGBUS.
    pub(crate) fn new(file: BorrowedFd<'_>, length: usize) -> io::Result<Mapping> {
        Mapping::with(file, length, READ_WRITE)
    }

    /// As [`Mapping::new`], for reading only: writing into it ends the process.
    pub(crate) fn read_only(file: BorrowedFd<'_>, length: usize) -> io::Result<Mapping> {
        Mapping::with(file, length, libc::PROT_READ)
    }

    /// Address space in which nothing can be read or written until [`Mapping::fill`] puts files there.
    pub(crate) fn reserve(length: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of this process.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        Mapping::at_address(address, length)
    }

    /// Puts a part of a file at `offset` of a reserved range, to be read, and written if `write` is set. As for
    /// [`Mapping::new`], the file must be long enough and sealed against shrinking.
    ///
    /// # Panics
    /// If the part does not fit the range.
    pub(crate) fn fill(
        &mut self,
        offset: usize,
        part: FilePart<'_>,
        write: bool,
    ) -> io::Result<()> {
        if part.length == 0 {
            return Ok(());
        }
        let place = self.at(offset, part.length).as_ptr().cast();
        let protection = if write { READ_WRITE } else { libc::PROT_READ };
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let (file, start) = (part.file.as_raw_fd(), part.start as libc::off_t);
        // SAFETY: what is replaced is a part of our own mapping, to which nothing has been handed out: `self` is borrowed
        // mutably.
        let address = unsafe { libc::mmap(place, part.length, protection, flags, file, start) };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn with(file: BorrowedFd<'_>, length: usize, protection: libc::c_int) -> io::Result<Mapping> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of this process.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0)
        };
        Mapping::at_address(address, length)
    }

    fn at_address(address: *mut libc::c_void, length: usize) -> io::Result<Mapping> {
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
