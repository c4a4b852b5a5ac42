//! Memory of a call: a sealed memfd that the server and the slot's process map.
//!
//! No Rust reference ever points into it, since another process may write there at any time. Bytes are copied
//! by address, or by the kernel.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;

use crate::lent::{LentBytes, LentBytesMut};

/// Shared memory of a fixed length.
#[derive(Debug)]
pub struct Arena {
    file: OwnedFd,
    address: NonNull<c_void>,
    length: NonZeroUsize,
}

// SAFETY: this value alone owns the mapping at the address, and only copies access it.
unsafe impl Send for Arena {}
// SAFETY: as above; racing copies read arbitrary bytes, which memory shared with another process may hold
// anyway.
unsafe impl Sync for Arena {}

impl Arena {
    /// New zeroed memory of `length` bytes, rounded up to pages. Its length is sealed.
    ///
    /// # Errors
    /// An error of the system.
    pub fn new(length: usize) -> io::Result<Arena> {
        Arena::named("kumi-call", length)
    }

    /// New memory with this name in the system's lists.
    ///
    /// # Errors
    /// An error of the system.
    pub fn named(name: &str, length: usize) -> io::Result<Arena> {
        let length = length.max(1).checked_next_multiple_of(4096);
        let length = length.ok_or(io::ErrorKind::OutOfMemory)?;
        let file = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&file, i64::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?)?;
        let seals = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        Arena::map(file, length)
    }

    /// Maps memory that another process has made. Its length must be sealed, because access to shrunk memory
    /// kills a process.
    ///
    /// # Errors
    /// An error of the system; `InvalidData` for a file of another length or without the seals.
    pub fn of(file: OwnedFd, length: usize) -> io::Result<Arena> {
        let is = nix::sys::stat::fstat(&file)?.st_size;
        let seals = SealFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GET_SEALS)?);
        let needed = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK;
        if usize::try_from(is).ok() != Some(length) || !seals.contains(needed) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Arena::map(file, length)
    }

    fn map(file: OwnedFd, length: usize) -> io::Result<Arena> {
        let length = NonZeroUsize::new(length).ok_or(io::ErrorKind::InvalidData)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let address = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &file, 0)? };
        Ok(Arena { file, address, length })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length.get()
    }

    /// Its address. The caller keeps the arena alive, and accesses the memory only in a routine's process.
    #[must_use]
    pub fn begin(&self) -> *mut u8 {
        self.address.as_ptr().cast()
    }

    /// The file, to be passed to the slot.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The address of a range. Panics if the range is not inside, which no input can cause: ranges come from
    /// the plan that the arena was made for.
    pub fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length.get()), "a range outside of the arena");
        self.address.as_ptr().cast::<u8>().wrapping_add(offset)
    }

    /// Copies bytes into it.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: the range is inside of the mapping, and no Rust reference leads there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies bytes out of it.
    #[must_use]
    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        let from = self.at(offset, length);
        let mut bytes = vec![0; length];
        // SAFETY: as in `write`; the vector has that many bytes.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length) };
        bytes
    }

    /// Returns its pages to the system, whoever else maps them. From then on it holds zeros.
    ///
    /// # Errors
    /// An error of the system.
    pub fn discard(&self) -> io::Result<()> {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let length = i64::try_from(self.length.get()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(fallocate(&self.file, flags, 0, length)?)
    }

    /// Copies bytes of a caller's array into it.
    pub fn put(&self, offset: usize, from: &LentBytes) {
        let to = self.at(offset, from.length());
        let from = (from.at(0, from.length()), from.length());
        // SAFETY: the range is inside of the mapping, to which no Rust reference leads; what is lent can be read.
        unsafe { super::nontemporal::copy(from.0, to, from.1) };
    }

    /// Copies bytes out of it to a caller's array.
    pub fn get(&self, offset: usize, to: &LentBytesMut) {
        let from = self.at(offset, to.length());
        let to = (to.at(0, to.length()), to.length());
        // SAFETY: as above; what is lent can be written, and is nobody else's meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(from, to.0, to.1) };
    }

    /// Copies bytes of another arena into it.
    pub fn copy_from(&self, other: &Arena, from: usize, to: usize, length: usize) {
        let (from, to) = (other.at(from, length), self.at(to, length));
        // SAFETY: each range is inside of its mapping, no Rust reference leads there, and `copy` allows that they overlap.
        unsafe { std::ptr::copy(from, to, length) };
    }

    /// Makes a range zeros.
    pub fn clear(&self, offset: usize, length: usize) {
        let to = self.at(offset, length);
        // SAFETY: as in `write`.
        unsafe { std::ptr::write_bytes(to, 0, length) };
    }

    /// Copies bytes within it; the ranges may overlap.
    pub fn copy(&self, from: usize, to: usize, length: usize) {
        let (from, to) = (self.at(from, length), self.at(to, length));
        // SAFETY: both ranges are inside of the mapping, and no Rust reference leads there.
        unsafe { std::ptr::copy(from, to, length) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and addresses of it are not kept by anybody.
        let unmapped = unsafe { munmap(self.address, self.length.get()) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours cannot be unmapped");
    }
}
