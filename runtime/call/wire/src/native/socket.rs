//! Socket reads into arenas and arrays, and writes from them, without an intermediate copy.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::MsgFlags;
#[cfg(feature = "server")]
use tokio::io::unix::AsyncFd;

use super::Arena;
use super::descriptors::AncillaryData;
use crate::lent::{LentBytes, LentBytesMut};

/// Most pieces of one write.
const PIECES: usize = 64;

/// Bytes to write.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A slice.
    Bytes(&'a [u8]),
    /// A range of an arena: offset and length in bytes.
    Arena(&'a Arena, usize, usize),
    /// A range of a caller's array: offset and length in bytes.
    Lent(&'a LentBytes, usize, usize),
}

/// The destination of read bytes.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// No fixed place.
    None,
    /// A range of an arena: offset and length in bytes.
    Arena(&'a Arena, usize, usize),
    /// A range of a caller's array: offset and length in bytes.
    Lent(&'a LentBytesMut, usize, usize),
}

/// Registers a socket with the runtime.
#[cfg(feature = "server")]
pub fn watch(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open, and the same, until its owner drops it.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}

const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn message(vectors: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: a msghdr of zeros is one without address, control data and vectors.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len();
    header
}

fn counted(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Writes as much of the pieces as the socket takes now. Returns the number of bytes.
pub fn write<'a>(
    socket: BorrowedFd<'_>,
    pieces: impl Iterator<Item = Source<'a>>,
) -> io::Result<usize> {
    write_with(socket, pieces, None)
}

/// [`write`], with a descriptor beside the first byte.
pub fn write_with<'a>(
    socket: BorrowedFd<'_>,
    pieces: impl Iterator<Item = Source<'a>>,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<usize> {
    let mut vectors = [NOTHING; PIECES];
    let mut used = 0;
    for (vector, piece) in vectors.iter_mut().zip(pieces) {
        let (address, length) = match piece {
            Source::Bytes(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
            Source::Arena(arena, offset, length) => (arena.at(offset, length), length),
            Source::Lent(lent, offset, length) => (lent.at(offset, length).cast_mut(), length),
        };
        *vector = libc::iovec { iov_base: address.cast(), iov_len: length };
        used += 1;
    }
    let mut header = message(&mut vectors[..used]);
    let mut control = AncillaryData::new();
    if let Some(descriptor) = descriptor {
        control.send(&mut header, descriptor);
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the vectors are those of ranges that are borrowed for the length of the call, and are only read from.
    counted(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) })
}

/// Reads into `target`, and what is beyond it into `rest`. Returns the number of bytes, 0 at the end. With
/// `wait`, waits for the first byte.
pub fn read(
    socket: BorrowedFd<'_>,
    target: Target<'_>,
    rest: &mut [u8],
    wait: bool,
) -> io::Result<usize> {
    read_with(socket, target, rest, wait, None)
}

/// [`read`], which also returns the descriptors that arrive. Without a place for them, the system closes
/// them.
pub fn read_with(
    socket: BorrowedFd<'_>,
    target: Target<'_>,
    rest: &mut [u8],
    wait: bool,
    descriptors: Option<&mut Vec<OwnedFd>>,
) -> io::Result<usize> {
    let (address, length) = match target {
        Target::None => (std::ptr::null_mut(), 0),
        Target::Arena(arena, offset, length) => (arena.at(offset, length), length),
        Target::Lent(lent, offset, length) => (lent.at(offset, length), length),
    };
    let mut vectors = [
        libc::iovec { iov_base: address.cast(), iov_len: length },
        libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
    ];
    let mut header = message(&mut vectors);
    let flags = libc::MSG_CMSG_CLOEXEC | if wait { 0 } else { libc::MSG_DONTWAIT };
    let mut control = AncillaryData::new();
    if descriptors.is_some() {
        control.receive(&mut header);
    }
    // SAFETY: both vectors are writable ranges that are borrowed for the length of the call. So is the room for control data,
    // if there is any.
    let count = counted(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) })?;
    if let Some(descriptors) = descriptors {
        AncillaryData::take(&header, descriptors)?;
    }
    // Only a message of a packet socket can be longer.
    if header.msg_flags & libc::MSG_TRUNC != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(count)
}

/// Sends one message of a packet socket, with an optional descriptor. Does not wait.
///
/// # Errors
/// An error of the system.
pub fn send_with_descriptor(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    write_with(socket, [Source::Bytes(bytes)].into_iter(), descriptor).map(|_| ())
}

/// Receives one message of a packet socket, and its descriptor. 0 bytes mean the end.
///
/// # Errors
/// An error of the system; `InvalidData` for a message longer than the buffer.
pub fn receive_with_descriptor(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    wait: bool,
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut received = Vec::new();
    let count = read_with(socket, Target::None, buffer, wait, Some(&mut received))?;
    Ok((count, received.pop()))
}

/// Whether the first byte of the input is this one. The byte stays in the socket.
///
/// # Errors
/// `WouldBlock`: there is no input.
pub fn begins_with(socket: &OwnedFd, first: u8) -> io::Result<bool> {
    let mut byte = [0];
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    let count = nix::sys::socket::recv(socket.as_raw_fd(), &mut byte, flags)?;
    Ok(count == 1 && byte[0] == first)
}

/// A handle of the process that has connected a Unix socket. Its number alone may be another process's by now.
///
/// Before Linux 6.5 the handle is opened by the number. A process that has ended before that could have left it to
/// another.
///
/// # Errors
/// An error of the system; the process has ended.
pub fn peer_process(socket: BorrowedFd<'_>, number: libc::pid_t) -> io::Result<OwnedFd> {
    let mut raw: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the place for the descriptor and its length are this function's own.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut raw).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOPROTOOPT) {
            return Err(error);
        }
        return open_process(number);
    }
    // SAFETY: the kernel has just made this descriptor for this process, nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// A handle of the process with this number.
///
/// # Errors
/// An error of the system; there is no such process.
pub fn open_process(number: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    let raw = RawFd::try_from(raw).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for this process, nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
