//! Shared mappings, under Miri: parts of memory files, each at the address that it has anyway. Rights are not kept.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::miri::{MemoryFile, memory_of};

/// Part of a memory file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilePart<'f> {
    pub(crate) file: BorrowedFd<'f>,
    pub(crate) start: usize,
    pub(crate) length: usize,
}

#[derive(Debug)]
struct Part {
    offset: usize,
    start: usize,
    length: usize,
    file: Arc<MemoryFile>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Mapping {
    parts: Vec<Part>,
    length: usize,
}

impl Mapping {
    pub(crate) fn new(file: BorrowedFd<'_>, length: usize) -> io::Result<Mapping> {
        let mut map = Mapping::reserve(length)?;
        map.fill(0, FilePart { file, start: 0, length }, true)?;
        Ok(map)
    }

    pub(crate) fn read_only(file: BorrowedFd<'_>, length: usize) -> io::Result<Mapping> {
        Mapping::new(file, length)
    }

    pub(crate) fn reserve(length: usize) -> io::Result<Mapping> {
        Ok(Mapping { parts: Vec::new(), length })
    }

    pub(crate) fn fill(
        &mut self,
        offset: usize,
        part: FilePart<'_>,
        _write: bool,
    ) -> io::Result<()> {
        let FilePart { file, start, length } = part;
        let file = memory_of(file)?;
        assert!(start + length <= file.bytes() && offset + length <= self.length);
        self.parts.push(Part { offset, start, length, file });
        Ok(())
    }

    pub(crate) fn keep_out_of_dumps(&self) -> io::Result<()> {
        Ok(())
    }

    /// # Panics
    /// If the bytes are not inside of one part.
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let end = offset.checked_add(bytes).expect("an offset in the segment");
        let fits = |part: &&Part| part.offset <= offset && end <= part.offset + part.length;
        let part = self.parts.iter().find(fits).expect("offset outside of the segment");
        // SAFETY: inside of the file, checked when it was mapped and just now.
        unsafe { part.file.start.add(part.start + offset - part.offset) }
    }

    /// # Safety
    /// `T` consists of atomics only.
    ///
    /// # Panics
    /// If it is not inside the mapping or not aligned.
    pub(crate) unsafe fn view<T>(&self, offset: usize) -> &T {
        let place = self.at(offset, size_of::<T>()).cast::<T>();
        assert!(place.is_aligned(), "misaligned structure in the segment");
        // SAFETY: inside of the file, aligned, and valid for any contents by the caller's promise; the part keeps the file.
        unsafe { place.as_ref() }
    }
}
