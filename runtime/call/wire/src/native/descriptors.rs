//! File descriptors as ancillary data of messages on Unix sockets.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Most descriptors in one message.
const MOST: usize = 16;
/// Aligned words with room for the control data of that many descriptors.
const ROOM: usize = 16;

/// Control data of a message.
pub(super) struct AncillaryData {
    words: [u64; ROOM],
}

const DESCRIPTOR: u32 = size_of::<RawFd>() as u32;

impl AncillaryData {
    pub(super) fn new() -> AncillaryData {
        AncillaryData { words: [0; ROOM] }
    }

    /// Sends a descriptor with a message. The borrow keeps it open until then.
    pub(super) fn send<'a>(&'a mut self, header: &mut libc::msghdr, descriptor: BorrowedFd<'a>) {
        header.msg_control = self.words.as_mut_ptr().cast();
        // SAFETY: a computation of numbers.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(DESCRIPTOR) } as usize;
        // SAFETY: the control data of the header are the words, which have room for one header and one descriptor, and are
        // aligned for both; nobody else has them.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(DESCRIPTOR) as usize;
            libc::CMSG_DATA(control).cast::<RawFd>().write_unaligned(descriptor.as_raw_fd());
        }
    }

    /// Makes room for the descriptors of a message.
    pub(super) fn receive(&mut self, header: &mut libc::msghdr) {
        header.msg_control = self.words.as_mut_ptr().cast();
        // SAFETY: a computation of numbers.
        let most = unsafe { libc::CMSG_SPACE(MOST as u32 * DESCRIPTOR) } as usize;
        header.msg_controllen = most.min(size_of_val(&self.words));
    }

    /// Takes the descriptors of a received message. Descriptors that are not taken are closed.
    ///
    /// # Errors
    /// More arrived than there is room for, or than this process may have open.
    pub(super) fn take(header: &libc::msghdr, to: &mut Vec<OwnedFd>) -> io::Result<()> {
        // SAFETY: the kernel has written the control data to which the header points, and their length.
        let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !control.is_null() {
            // SAFETY: as above; the macros stay inside of that length.
            let (kind, length, data) = unsafe {
                let kind = ((*control).cmsg_level, (*control).cmsg_type);
                (kind, (*control).cmsg_len, libc::CMSG_DATA(control))
            };
            // SAFETY: a computation of numbers.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            if kind == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                for index in 0..length.saturating_sub(head) / size_of::<RawFd>() {
                    // SAFETY: so many descriptors are there, which the kernel has just made for this process and nobody
                    // else knows.
                    to.push(unsafe {
                        OwnedFd::from_raw_fd(data.cast::<RawFd>().add(index).read_unaligned())
                    });
                }
            }
            // SAFETY: as for the first.
            control = unsafe { libc::CMSG_NXTHDR(header, control) };
        }
        if header.msg_flags & libc::MSG_CTRUNC != 0 {
            let text = "descriptors of memory did not come: too many were sent, or this process has as \
                        many open as it may";
            return Err(io::Error::other(text));
        }
        Ok(())
    }
}

const _: () = assert!(16 + MOST * size_of::<RawFd>() <= ROOM * size_of::<u64>());
