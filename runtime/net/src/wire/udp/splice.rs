//! Runs whose pages the kernel takes from the send ring, instead of copying them: `vmsplice` and `splice`.
//!
//! The datagrams then share their bytes with the ring, until the receiver (on this machine) or the network card has read
//! them. Three things follow:
//!
//! - *Later writes show.* A slot is written again only when its packet is acked, so the packet has been read once. A second
//!   copy of it, made by the network, may still wait somewhere and show what the slot holds next. That is never taken for
//!   something else: the slot's frame is written first and its header last, while readers read the header first. So
//!   the copy has the old header, whose number the receiver takes as a duplicate; or a torn one, whose checksum is wrong; or
//!   the new one, and then it is the new packet. What is sent again is copied, since its first copy may still wait.
//! - *An error leaves the bytes in the pipe.* They are read out, and the run is sent by a copy.
//! - *Kernels before 6.5* send each page of a pipe as a datagram of its own. There nothing is tried.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::sys;

/// Pages that a pipe must hold: those of the longest run, which begins and ends anywhere.
const PIPE_BYTES: libc::c_int = 32 * 4096;
/// First version of Linux that sends a spliced run as one.
const SINCE: (u32, u32) = (6, 5);
/// So many failures one after the other, and no more is tried.
const FAILURES: u32 = 8;

/// The pipe through which pages go from the ring to a connected socket.
#[derive(Debug)]
pub(super) struct PageSender {
    from: OwnedFd,
    to: OwnedFd,
    /// What the socket's UDP_SEGMENT says; 0: nothing.
    segment: u16,
    failures: u32,
}

impl PageSender {
    /// None where the kernel cannot do it, or grants no such pipe.
    pub(super) fn new() -> Option<PageSender> {
        if kernel()? < SINCE {
            return None;
        }
        let mut ends = [-1; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return None;
        }
        // SAFETY: just made, and owned once.
        let [from, to] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // SAFETY: no pointers.
        let room = unsafe { libc::fcntl(to.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
        (room >= PIPE_BYTES).then_some(PageSender { from, to, segment: 0, failures: 0 })
    }

    /// Sends packets of `segment` bytes that lie end to end and stay as they are until they are acked. False: nothing was
    /// sent, and the caller is to copy them.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, run: &[u8], segment: usize) -> bool {
        if self.failures >= FAILURES || self.set_segment(socket, segment as u16).is_err() {
            return false;
        }
        let sent = self.push(socket, run);
        self.failures = if sent { 0 } else { self.failures + 1 };
        if !sent {
            self.drain();
        }
        sent
    }

    /// Has the socket cut what it sends into packets of so many bytes; 0: not at all. What the kernel copies says it
    /// for itself.
    pub(super) fn set_segment(&mut self, socket: BorrowedFd<'_>, segment: u16) -> io::Result<()> {
        if self.segment != segment {
            sys::set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, segment.into())?;
            self.segment = segment;
        }
        Ok(())
    }

    /// A datagram of so many bytes would be cut.
    pub(super) fn cuts(&self, bytes: usize) -> bool {
        self.segment != 0 && bytes > usize::from(self.segment)
    }

    fn push(&self, socket: BorrowedFd<'_>, run: &[u8]) -> bool {
        let part = libc::iovec { iov_base: run.as_ptr().cast_mut().cast(), iov_len: run.len() };
        let whole = run.len() as isize;
        let (from, to) = (self.from.as_raw_fd(), self.to.as_raw_fd());
        // SAFETY: the vector describes the run, which the kernel only reads. It keeps the pages, not the addresses.
        if unsafe { libc::vmsplice(to, &raw const part, 1, libc::SPLICE_F_NONBLOCK) } != whole {
            return false;
        }
        let none = std::ptr::null_mut();
        // SAFETY: descriptors and a length; no offsets.
        let sent = unsafe { libc::splice(from, none, socket.as_raw_fd(), none, run.len(), 0) };
        sent == whole
    }

    /// Takes out what a failure has left in the pipe.
    fn drain(&self) {
        let mut room = [0u8; 4096];
        // SAFETY: pointer and length describe our own room; the pipe does not block.
        while unsafe { libc::read(self.from.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) } > 0
        {}
    }
}

/// The version of Linux.
fn kernel() -> Option<(u32, u32)> {
    // SAFETY: all-zero is a valid value, which the kernel fills in.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: a structure of our own.
    if unsafe { libc::uname(&raw mut name) } != 0 {
        return None;
    }
    let release: Vec<u8> =
        name.release.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    version(std::str::from_utf8(&release).ok()?)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|one: char| !one.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
