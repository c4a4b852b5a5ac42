//! The node's daemon: the one that started this server, and each that comes after it.
//!
//! A daemon brings its stream through the door, a socket that the job's keeper holds as well. So the door outlives a daemon,
//! and the server waits there for the next one. Half a message ends with the stream that it came by.

use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use kumi_pmi::frame::{self, FrameBuffer, FrameError};
use kumi_pmi::journal::Journal;
use kumi_pmi::message::{Exchange, FromServer, MOST_RELAY, ServerReport, ToServer};
use kumi_pmi::peer::PeerMessage;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use super::ServerError;

/// Longest piece read at once, in bytes.
const PIECE: usize = 64 << 10;

/// The daemon.
pub(super) struct Daemon {
    door: OwnedFd,
    /// None while no daemon is there.
    stream: Option<UnixStream>,
    /// It has said where it begins. What is told before would come in the wrong order.
    greeted: bool,
    buffer: FrameBuffer,
    journal: Journal,
}

/// Whether an error says that the other end is gone.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// The stream that a daemon brings through the door; none once nobody can come any more.
fn stream_at(door: &OwnedFd) -> io::Result<Option<UnixStream>> {
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([i32; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let got = recvmsg::<()>(door.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    if got.bytes == 0 {
        return Ok(None);
    }
    let given = got.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmRights(files) => files.first().copied(),
        _ => None,
    });
    let given = given.ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for this process, and nothing else knows its number.
    Ok(Some(UnixStream::from(unsafe { OwnedFd::from_raw_fd(given) })))
}

impl Daemon {
    pub(super) fn new(door: OwnedFd) -> Self {
        let (buffer, journal) = (FrameBuffer::default(), Journal::default());
        Self { door, stream: None, greeted: false, buffer, journal }
    }

    pub(super) fn door(&self) -> BorrowedFd<'_> {
        self.door.as_fd()
    }

    /// The stream of the daemon that is there.
    pub(super) fn stream(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    /// Waits for a daemon at the door, which takes the place of the one before. False once nobody can come any more.
    pub(super) fn let_in(&mut self) -> io::Result<bool> {
        let Some(stream) = stream_at(&self.door)? else { return Ok(false) };
        self.lose();
        self.stream = Some(stream);
        Ok(true)
    }

    /// The daemon is gone, and half a message with it.
    fn lose(&mut self) {
        self.stream = None;
        self.greeted = false;
        self.buffer = FrameBuffer::default();
    }

    /// The daemon has said that it is the first.
    pub(super) fn greet(&mut self) {
        self.greeted = true;
    }

    /// Reads what the daemon has written, and waits for something.
    pub(super) fn read(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let mut piece = [0; PIECE];
        match stream.read(&mut piece) {
            Ok(0) => self.lose(),
            Ok(count) => self.buffer.extend(&piece[..count]),
            Err(error) if is_gone(&error) => self.lose(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The next message that is there whole.
    pub(super) fn take(&mut self) -> Result<Option<ToServer>, FrameError> {
        self.buffer.take()
    }

    /// Says what may be lost.
    pub(super) fn send(&mut self, message: &FromServer) -> Result<(), ServerError> {
        let bytes = frame::encode(message)?;
        let Some(stream) = self.stream.as_mut().filter(|_| self.greeted) else { return Ok(()) };
        match stream.write_all(&bytes) {
            Ok(()) => Ok(()),
            Err(error) if is_gone(&error) => {
                self.lose();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Says what this daemon or a later one has to hear.
    pub(super) fn tell(&mut self, what: ServerReport) -> Result<(), ServerError> {
        let message = self.journal.tell(what);
        self.send(&message)
    }

    /// A daemon has heard what was told up to this number.
    pub(super) fn heard(&mut self, number: u64) {
        self.journal.heard(number);
    }

    /// Whether a daemon has to hear something before ranks are served again.
    pub(super) fn is_behind(&self) -> bool {
        self.journal.is_full()
    }

    /// This node contributes to an exchange.
    pub(super) fn contribute(
        &mut self,
        exchange: Exchange,
        places: Vec<u32>,
        data: Vec<u8>,
    ) -> Result<(), ServerError> {
        let message = self.journal.contribute(exchange, places, data);
        self.send(&message)
    }

    /// All have contributed. Returns whether that was not known yet.
    pub(super) fn exchanged(&mut self, exchange: Exchange) -> bool {
        self.journal.exchanged(exchange)
    }

    /// Says again what a later daemon has to hear.
    pub(super) fn resume(
        &mut self,
        heard: u64,
        without_pmix: Option<String>,
    ) -> Result<(), ServerError> {
        self.greet();
        for message in self.journal.resume(heard) {
            self.send(&message)?;
        }
        self.send(&FromServer::Resumed { without_pmix })
    }

    /// Sends the server at a place a message, unless that is too long.
    pub(super) fn relay(&mut self, to: u32, message: &PeerMessage) -> Result<(), ServerError> {
        match message.encode() {
            Some(data) if data.len() <= MOST_RELAY => self.send(&FromServer::Relay { to, data }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{
        AddressFamily, ControlMessage, SockFlag, SockType, sendmsg, socketpair,
    };
    use std::io::IoSlice;

    fn door() -> (OwnedFd, Daemon) {
        let (family, flags) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
        let (own, other) = socketpair(family, SockType::SeqPacket, None, flags).unwrap();
        (own, Daemon::new(other))
    }

    /// A daemon comes; its end of the stream.
    fn come(door: &OwnedFd) -> UnixStream {
        let (own, other) = UnixStream::pair().unwrap();
        let files = [other.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&files)];
        let bytes = [IoSlice::new(&[0])];
        sendmsg::<()>(door.as_raw_fd(), &bytes, &rights, MsgFlags::empty(), None).unwrap();
        own
    }

    fn hear(stream: &mut UnixStream, buffer: &mut FrameBuffer) -> FromServer {
        loop {
            if let Some(message) = buffer.take().unwrap() {
                return message;
            }
            let mut byte = [0];
            assert_eq!(stream.read(&mut byte).unwrap(), 1, "its end");
            buffer.extend(&byte);
        }
    }

    #[test]
    fn half_a_message_ends_with_its_daemon_and_the_next_one_hears_the_rest() {
        let (own, mut daemon) = door();
        let mut first = come(&own);
        assert!(daemon.let_in().unwrap());
        let whole = frame::encode(&ToServer::Ended { rank: 3 }).unwrap();
        first.write_all(&whole[..whole.len() - 1]).unwrap();
        daemon.read().unwrap();
        assert_eq!(daemon.take().unwrap(), None);
        drop(first);
        daemon.read().unwrap();
        assert!(daemon.stream().is_none());
        // Nobody is there.
        daemon.tell(ServerReport::Joined { rank: 1 }).unwrap();
        daemon.send(&FromServer::Ended { rank: 1 }).unwrap();
        let mut second = come(&own);
        assert!(daemon.let_in().unwrap());
        daemon.tell(ServerReport::Joined { rank: 2 }).unwrap();
        second.write_all(&whole).unwrap();
        daemon.read().unwrap();
        assert_eq!(daemon.take().unwrap(), Some(ToServer::Ended { rank: 3 }));
        daemon.resume(0, None).unwrap();
        let mut buffer = FrameBuffer::default();
        for (number, rank) in [(1, 1), (2, 2)] {
            let joined = FromServer::Report { number, what: ServerReport::Joined { rank } };
            assert_eq!(hear(&mut second, &mut buffer), joined, "in this order");
        }
        let resumed = FromServer::Resumed { without_pmix: None };
        assert_eq!(hear(&mut second, &mut buffer), resumed);
    }

    #[test]
    fn what_is_said_to_a_daemon_that_is_gone_is_kept() {
        let (own, mut daemon) = door();
        drop(come(&own));
        assert!(daemon.let_in().unwrap());
        daemon.greet();
        daemon.tell(ServerReport::Joined { rank: 1 }).unwrap();
        daemon.tell(ServerReport::Joined { rank: 2 }).unwrap();
        assert!(daemon.stream().is_none());
        assert_eq!(daemon.journal.resume(0).len(), 2);
    }

    #[test]
    fn nobody_comes_through_a_door_that_nobody_holds() {
        let (own, mut daemon) = door();
        drop(own);
        assert!(!daemon.let_in().unwrap());
        let (own, mut daemon) = door();
        nix::unistd::write(&own, &[0]).unwrap();
        assert!(daemon.let_in().is_err(), "without a stream");
    }
}
