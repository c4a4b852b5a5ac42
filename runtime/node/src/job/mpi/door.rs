//! The door of a server: the socket through which a daemon brings the stream by which it talks with it.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

/// The daemon's end. The job's keeper holds it as well, so the server waits there for the next daemon.
#[derive(Debug)]
pub(in crate::job) struct Door(OwnedFd);

impl Door {
    /// A door, and the server's end.
    pub(super) fn make() -> io::Result<(Self, OwnedFd)> {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (own, other) = socketpair(family, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(own), other))
    }

    /// That of a server which a former daemon started.
    pub(super) fn adopt(held: OwnedFd) -> Self {
        Self(held)
    }

    /// The same, for the keeper.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// A stream to the server, in the place of that of a former daemon.
    ///
    /// # Errors
    /// The server is gone, or so many daemons have come that it has not let in.
    pub(super) fn enter(&self) -> io::Result<UnixStream> {
        let (own, other) = UnixStream::pair()?;
        let other = [other.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&other));
        // It may be frozen with its job.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.0, &[IoSlice::new(&[0])], &mut control, flags)?;
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_enter_while_the_server_is_there() {
        let (door, server) = Door::make().unwrap();
        let streams = [door.enter().unwrap(), door.enter().unwrap()];
        drop(streams);
        drop(server);
        let gone = door.enter().unwrap_err().kind();
        assert!(matches!(gone, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset));
    }

    #[test]
    fn a_server_that_lets_nobody_in_stops_no_daemon() {
        let (door, _server) = Door::make().unwrap();
        let kept: Vec<UnixStream> = (0..9_999).map_while(|_| door.enter().ok()).collect();
        assert!((1..9_999).contains(&kept.len()));
    }
}
