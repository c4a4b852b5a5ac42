//! The memory files: made, sealed, and opened by their numbers in another process.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{MemoryError, failed};

/// The length stays, and so do these seals.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Names that `/proc` shows, in the order of [`File`].
pub(super) const NAMES: [&CStr; 3] = [c"kumi-dsm-copy", c"kumi-dsm-twin", c"kumi-dsm-table"];

/// Which file of a node's memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum File {
    Copy,
    Twin,
    Table,
}

impl File {
    fn name(self) -> &'static CStr {
        NAMES[self as usize]
    }

    fn word(self) -> &'static str {
        ["copy", "twin", "table"][self as usize]
    }
}

fn check(what: &'static str, result: libc::c_int) -> Result<libc::c_int, MemoryError> {
    if result < 0 { Err(failed(what)(io::Error::last_os_error())) } else { Ok(result) }
}

/// A sparse file of zeros, whose length never changes, for its user only.
pub(super) fn create(file: File, bytes: u64) -> Result<OwnedFd, MemoryError> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string, and the call has no other pointer.
    let raw = check("memfd_create", unsafe { libc::memfd_create(file.name().as_ptr(), flags) })?;
    // SAFETY: a new descriptor that nobody else owns.
    let made = unsafe { OwnedFd::from_raw_fd(raw) };
    let too_long = |_| failed("ftruncate")(io::ErrorKind::FileTooLarge.into());
    let length = libc::off_t::try_from(bytes).map_err(too_long)?;
    // SAFETY: no pointers.
    check("ftruncate", unsafe { libc::ftruncate(raw, length) })?;
    // SAFETY: no pointers.
    check("fchmod", unsafe { libc::fchmod(raw, 0o600) })?;
    // SAFETY: no pointers.
    check("F_ADD_SEALS", unsafe { libc::fcntl(raw, libc::F_ADD_SEALS, SEALS) })?;
    Ok(made)
}

/// The file that process `pid` has as `descriptor`, if it is the one that is meant.
pub(super) fn open(
    file: File,
    pid: u32,
    descriptor: i32,
    bytes: u64,
) -> Result<OwnedFd, MemoryError> {
    let wrong = |reason| MemoryError::NotOffered { file: file.word(), pid, descriptor, reason };
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        // What is not a memory file must not make this process wait, nor become its terminal.
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/{pid}/fd/{descriptor}"))
        .map_err(failed("open of an offered descriptor"))?;
    let length = opened.metadata().map_err(failed("fstat"))?.len();
    let opened = OwnedFd::from(opened);
    // SAFETY: no pointers.
    let seals = unsafe { libc::fcntl(opened.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 {
        return Err(wrong("it is no memory file"));
    }
    if seals & SEALS != SEALS {
        return Err(wrong("its length is not sealed"));
    }
    if seals & (libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE) != 0 {
        return Err(wrong("it cannot be written"));
    }
    if length != bytes {
        return Err(wrong("it has another length"));
    }
    if !has_name(&opened, file).map_err(failed("readlink"))? {
        return Err(wrong("it has another name"));
    }
    Ok(opened)
}

/// Whether a memory file was made with the name of `file`.
fn has_name(opened: &OwnedFd, file: File) -> io::Result<bool> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))?;
    let name = file.name().to_string_lossy();
    Ok(link == Path::new(&format!("/memfd:{name} (deleted)")))
}

/// Writes bytes into a file, whatever the kernel takes at a time.
pub(super) fn write(
    file: BorrowedFd<'_>,
    mut start: u64,
    mut bytes: &[u8],
) -> Result<(), MemoryError> {
    while !bytes.is_empty() {
        let offset = libc::off_t::try_from(start);
        let offset = offset.map_err(|_| failed("pwrite")(io::ErrorKind::FileTooLarge.into()))?;
        // SAFETY: the kernel reads no more than the slice.
        let written =
            unsafe { libc::pwrite(file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), offset) };
        match usize::try_from(written) {
            Ok(0) => return Err(failed("pwrite")(io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                bytes = &bytes[written..];
                start += written as u64;
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(failed("pwrite")(error));
                }
            }
        }
    }
    Ok(())
}
