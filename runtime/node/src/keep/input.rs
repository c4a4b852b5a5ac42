//! What rank 0 of a kept job is to read, in a file that was opened twice.
//!
//! One position says how much there is, the other how much the rank's pipe has got. The kernel moves the second one together
//! with the bytes. So a daemon that is killed gives nothing twice, and its successor goes on.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{Whence, lseek};
use rustix::pipe::{SpliceFlags, splice};

use super::output::{open_again, place};

/// What was given is given back to the system in pieces of this size, in bytes.
const BLOCK: u64 = 1 << 20;

/// The file.
#[derive(Debug)]
pub(crate) struct InputFile {
    end: File,
    next: File,
}

impl InputFile {
    pub(crate) fn create() -> io::Result<Self> {
        let end = File::from(memfd_create(c"kumi-input", MFdFlags::MFD_CLOEXEC)?);
        let next = open_again(&end)?;
        Ok(Self { end, next })
    }

    /// One that a former daemon made.
    pub(crate) fn adopt(end: OwnedFd, next: OwnedFd) -> Self {
        Self { end: end.into(), next: next.into() }
    }

    /// Both open files, for the keeper: at the end, and at the next byte.
    pub(crate) fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.end.as_fd(), self.next.as_fd()]
    }

    /// Bytes that the rank has not got.
    pub(crate) fn waiting(&self) -> io::Result<u64> {
        let [end, next] = [place(&self.end, Whence::SeekCur)?, place(&self.next, Whence::SeekCur)?];
        Ok(end.saturating_sub(next))
    }

    /// The same as a size in memory.
    pub(crate) fn bytes_waiting(&self) -> io::Result<usize> {
        Ok(usize::try_from(self.waiting()?).unwrap_or(usize::MAX))
    }

    /// Adds something.
    pub(crate) fn append(&self, data: &[u8]) -> io::Result<()> {
        (&self.end).write_all(data)
    }

    /// Gives a pipe what it takes.
    ///
    /// # Errors
    /// `WouldBlock` while it takes nothing; `BrokenPipe` if nobody reads it.
    pub(crate) fn give(&self, pipe: BorrowedFd<'_>) -> io::Result<()> {
        let most = usize::try_from(self.waiting()?).unwrap_or(usize::MAX).min(1 << 20);
        splice(&self.next, None, pipe, None, most, SpliceFlags::NONBLOCK)?;
        self.free()
    }

    /// The next bytes, for a terminal, which no call moves them to.
    pub(crate) fn peek(&self) -> io::Result<Vec<u8>> {
        let most = usize::try_from(self.waiting()?).unwrap_or(usize::MAX).min(4096);
        let mut data = vec![0; most];
        self.next.read_exact_at(&mut data, place(&self.next, Whence::SeekCur)?)?;
        Ok(data)
    }

    /// The terminal took so many of them.
    pub(crate) fn given(&self, count: usize) -> io::Result<()> {
        lseek(&self.next, i64::try_from(count).map_err(io::Error::other)?, Whence::SeekCur)?;
        self.free()
    }

    fn free(&self) -> io::Result<()> {
        let given = place(&self.next, Whence::SeekCur)? / BLOCK * BLOCK;
        if given == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        Ok(fallocate(&self.end, flags, 0, given.cast_signed())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_rank_gets_each_byte_once_whoever_gives_it() {
        let file = InputFile::create().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        file.append(b"one ").unwrap();
        file.give(writer.as_fd()).unwrap();
        file.append(b"two ").unwrap();
        let [end, next] = file.files().map(|file| file.try_clone_to_owned().unwrap());
        drop(file);
        let file = InputFile::adopt(end, next);
        assert_eq!(file.waiting().unwrap(), 4);
        file.give(writer.as_fd()).unwrap();
        file.append(b"three").unwrap();
        assert_eq!(file.peek().unwrap(), b"three");
        file.given(2).unwrap();
        file.give(writer.as_fd()).unwrap();
        assert_eq!(file.waiting().unwrap(), 0);
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two ree");
    }

    #[test]
    fn who_does_not_read_is_waited_for() {
        let file = InputFile::create().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let data: Vec<u8> = (0..3_000_000u32).map(|number| number as u8).collect();
        file.append(&data).unwrap();
        let mut got = Vec::new();
        let mut full = 0;
        while file.waiting().unwrap() > 0 {
            match file.give(writer.as_fd()) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    full += 1;
                    let mut piece = vec![0; 1 << 16];
                    let count = reader.read(&mut piece).unwrap();
                    got.extend_from_slice(&piece[..count]);
                }
            }
        }
        drop(writer);
        reader.read_to_end(&mut got).unwrap();
        assert!(full > 10 && got == data, "bytes are missing, doubled or out of order");
        let file = InputFile::create().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        file.append(b"x").unwrap();
        let error = file.give(writer.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
