//! The socket of the daemon that started this server.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use kumi_pmi::frame::{self, FrameBuffer, FrameError};
use kumi_pmi::message::{FromServer, MOST_RELAY, ToServer};
use kumi_pmi::peer::PeerMessage;

use super::ServerError;

/// Longest piece read at once, in bytes.
const PIECE: usize = 64 << 10;

/// The daemon.
pub(super) struct Daemon {
    stream: UnixStream,
    buffer: FrameBuffer,
}

impl Daemon {
    pub(super) fn new(control: OwnedFd) -> Self {
        Self { stream: UnixStream::from(control), buffer: FrameBuffer::default() }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Reads what there is, and waits for something; false at the end.
    pub(super) fn read(&mut self) -> io::Result<bool> {
        let mut piece = [0; PIECE];
        let count = self.stream.read(&mut piece)?;
        self.buffer.extend(&piece[..count]);
        Ok(count > 0)
    }

    /// The next message that is there whole.
    pub(super) fn take(&mut self) -> Result<Option<ToServer>, FrameError> {
        self.buffer.take()
    }

    pub(super) fn send(&mut self, message: &FromServer) -> Result<(), ServerError> {
        Ok(self.stream.write_all(&frame::encode(message)?)?)
    }

    /// Sends the server at a place a message, unless that is too long.
    pub(super) fn relay(&mut self, to: u32, message: &PeerMessage) -> Result<(), ServerError> {
        match message.encode() {
            Some(data) if data.len() <= MOST_RELAY => self.send(&FromServer::Relay { to, data }),
            _ => Ok(()),
        }
    }
}
