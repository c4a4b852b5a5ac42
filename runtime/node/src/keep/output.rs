//! What the ranks of a kept job have written, in a file for each stream.
//!
//! The offset of a byte in the file is its number in the stream. The kernel moves bytes from the rank's pipe into the file, and
//! the file's position with them, in one call. The keeper holds the same open file. So a daemon that is killed at any moment
//! loses no byte and leaves none twice: its successor reads from the first byte that is there up to the position.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{Whence, lseek};
use rustix::pipe::{SpliceFlags, splice};

/// What is acknowledged is given back to the system in pieces of this size, in bytes.
const BLOCK: u64 = 64 << 10;

/// The file of a stream.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: File,
    /// Where the next byte goes.
    next: Cell<u64>,
    /// All before it was given back.
    free: Cell<u64>,
}

pub(super) fn place(file: &File, whence: Whence) -> nix::Result<u64> {
    lseek(file, 0, whence).map(i64::cast_unsigned)
}

/// The same file with a position of its own, to be read.
pub(super) fn open_again(file: &File) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl OutputFile {
    /// Nothing was written yet.
    pub(crate) fn create() -> io::Result<Self> {
        let file = File::from(memfd_create(c"kumi-output", MFdFlags::MFD_CLOEXEC)?);
        Ok(Self { file, next: Cell::new(0), free: Cell::new(0) })
    }

    /// One that a former daemon made.
    pub(crate) fn adopt(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let next = place(&file, Whence::SeekCur)?;
        Ok(Self { file, next: Cell::new(next), free: Cell::new(0) })
    }

    /// The file, for the keeper.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Adds something of the daemon's own.
    pub(crate) fn append(&self, data: &[u8]) -> io::Result<()> {
        let written = (&self.file).write_all(data);
        self.next.set(place(&self.file, Whence::SeekCur)?);
        written
    }

    /// Takes what is in a pipe, at most so many bytes, and returns it; nothing at the end of the pipe.
    ///
    /// # Errors
    /// `WouldBlock` while the pipe is empty.
    pub(crate) fn take_from(&self, pipe: BorrowedFd<'_>, most: usize) -> io::Result<Vec<u8>> {
        let at = self.next.get();
        let count = splice(pipe, None, &self.file, None, most, SpliceFlags::NONBLOCK)?;
        self.next.set(at + count as u64);
        self.read(at, count)
    }

    fn read(&self, at: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; count];
        self.file.read_exact_at(&mut data, at)?;
        Ok(data)
    }

    /// All before `next` is acknowledged.
    pub(crate) fn acknowledged(&self, next: u64) -> io::Result<()> {
        let end = next.min(self.next.get()) / BLOCK * BLOCK;
        let start = self.free.get();
        if end <= start {
            return Ok(());
        }
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&self.file, flags, start.cast_signed(), (end - start).cast_signed())?;
        self.free.set(end);
        Ok(())
    }

    /// What is there: the number of the first byte, and the bytes in pieces of at most `most`.
    pub(crate) fn rest(&self, most: usize) -> io::Result<(u64, Vec<Vec<u8>>)> {
        let next = self.next.get();
        // Opened once more: to look for something would move the position.
        let looked_at = open_again(&self.file)?;
        let base = match place(&looked_at, Whence::SeekData) {
            Ok(base) => base.min(next),
            // Nothing at all, or only the hole.
            Err(Errno::ENXIO) => next,
            Err(error) => return Err(error.into()),
        };
        let (mut at, mut pieces) = (base, Vec::new());
        while at < next {
            let count = usize::try_from(next - at).unwrap_or(usize::MAX).min(most);
            pieces.push(self.read(at, count)?);
            at += count as u64;
        }
        self.free.set(base);
        Ok((base, pieces))
    }
}

/// A pipe between a terminal, which no call moves into a file, and the file of output. What a killed daemon left in it comes
/// next.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) out: OwnedFd,
    pub(crate) into: OwnedFd,
}

impl Relay {
    pub(crate) fn create() -> io::Result<Self> {
        let (out, into) = io::pipe()?;
        Ok(Self { out: out.into(), into: into.into() })
    }

    /// Takes what a terminal shows.
    ///
    /// # Errors
    /// `WouldBlock` while it shows nothing new.
    pub(crate) fn take(
        &self,
        terminal: BorrowedFd<'_>,
        file: &OutputFile,
        most: usize,
    ) -> io::Result<Vec<u8>> {
        if let Some(left) = self.left(file, most)? {
            return Ok(left);
        }
        let count = splice(terminal, None, &self.into, None, most, SpliceFlags::NONBLOCK)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        Ok(self.left(file, most)?.unwrap_or_default())
    }

    /// Puts what a killed daemon left in the pipe into the file.
    pub(crate) fn empty_into(&self, file: &OutputFile, most: usize) -> io::Result<()> {
        while self.left(file, most)?.is_some() {}
        Ok(())
    }

    /// What is in the pipe.
    fn left(&self, file: &OutputFile, most: usize) -> io::Result<Option<Vec<u8>>> {
        match file.take_from(self.out.as_fd(), most) {
            Ok(data) => Ok(Some(data)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_their_numbers_as_offsets_and_outlive_whoever_read_them() {
        let file = OutputFile::create().unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"one two").unwrap();
        assert_eq!(file.take_from(reader.as_fd(), 3).unwrap(), b"one");
        file.append(b"[said]").unwrap();
        let held = file.as_fd().try_clone_to_owned().unwrap();
        assert_eq!(file.take_from(reader.as_fd(), 100).unwrap(), b" two");
        let empty = file.take_from(reader.as_fd(), 100).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        // As after a kill: only what the keeper holds is left.
        drop(file);
        let file = OutputFile::adopt(held).unwrap();
        let pieces = [b"one[said".to_vec(), b"] two".to_vec()];
        assert_eq!(file.rest(8).unwrap(), (0, pieces.to_vec()));
        writer.write_all(b"!").unwrap();
        assert_eq!(file.take_from(reader.as_fd(), 100).unwrap(), b"!");
        drop(writer);
        assert_eq!(file.take_from(reader.as_fd(), 100).unwrap(), b"");
        assert_eq!(file.rest(100).unwrap(), (0, vec![b"one[said] two!".to_vec()]));
    }

    #[test]
    fn what_is_acknowledged_takes_no_memory_and_does_not_come_again() {
        use std::os::unix::fs::MetadataExt;
        let file = OutputFile::create().unwrap();
        let data: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
        file.append(&data).unwrap();
        let blocks = || file.file.metadata().unwrap().blocks();
        let before = blocks();
        file.acknowledged(200_000).unwrap();
        assert!(blocks() < before / 2 + 64, "{} of {before}", blocks());
        let (base, pieces) = file.rest(1 << 20).unwrap();
        assert!((200_000 - BLOCK..=200_000).contains(&base), "{base}");
        assert_eq!(pieces.concat(), data[base as usize..]);
        file.append(b"x").unwrap();
        // More than there is, and nothing new.
        file.acknowledged(u64::MAX).unwrap();
        file.acknowledged(5).unwrap();
        let rest = file.rest(1 << 20).unwrap().1.concat();
        assert!(rest.len() < 2 * BLOCK as usize && rest.last() == Some(&b'x'));
        let file = OutputFile::create().unwrap();
        assert_eq!(file.rest(9).unwrap(), (0, vec![]));
    }

    #[test]
    fn what_a_terminal_shows_is_in_a_pipe_or_in_the_file_at_any_time() {
        let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
        let master = rustix::pty::openpt(flags).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        let (relay, file) = (Relay::create().unwrap(), OutputFile::create().unwrap());
        let take = || relay.take(master.as_fd(), &file, 1 << 16);
        assert_eq!(take().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        File::from(slave.try_clone().unwrap()).write_all(b"shown\n").unwrap();
        assert_eq!(take().unwrap(), b"shown\r\n");
        // A daemon was killed between the two.
        File::from(relay.into.try_clone().unwrap()).write_all(b"left").unwrap();
        assert_eq!(take().unwrap(), b"left");
        assert_eq!(file.rest(99).unwrap().1.concat(), b"shown\r\nleft");
        drop(slave);
        assert_eq!(take().unwrap_err().raw_os_error(), Some(Errno::EIO as i32));
    }
}
