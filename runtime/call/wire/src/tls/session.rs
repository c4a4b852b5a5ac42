//! TLS session of one connection over a non-blocking socket.

use std::io::{self, BufRead, IoSlice, Write};
use std::os::fd::BorrowedFd;

use rustls::Connection;

use crate::native::{self, Source, Target};

/// Bytes read from the socket at once.
const INPUT: usize = 256 << 10;
/// Most encrypted bytes that wait for the socket.
const AHEAD: usize = 256 << 10;
/// Bytes encrypted at once: those of a record.
const RECORD: usize = 16 << 10;
/// Most pieces of one write.
const PIECES: usize = 32;

/// A session, with input that is not decrypted yet.
#[derive(Debug)]
pub struct TlsSession {
    session: Connection,
    /// The encrypted input is `begin..end` of the buffer.
    input: Vec<u8>,
    begin: usize,
    end: usize,
    /// The plain text of one record.
    record: Vec<u8>,
}

/// The socket as a writer of encrypted bytes.
struct SocketWriter<'a>(BorrowedFd<'a>);

impl Write for SocketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        native::write(self.0, [Source::Bytes(bytes)].into_iter())
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        native::write(self.0, pieces.iter().take(PIECES).map(|piece| Source::Bytes(piece)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsSession {
    /// A new session.
    pub fn new(mut session: Connection) -> TlsSession {
        session.set_buffer_limit(Some(AHEAD));
        TlsSession { session, input: Vec::new(), begin: 0, end: 0, record: Vec::new() }
    }

    /// Whether nothing has arrived yet.
    pub fn is_untouched(&self) -> bool {
        self.input.is_empty()
    }

    /// Whether encrypted output waits for the socket.
    pub fn wants_write(&self) -> bool {
        self.session.wants_write()
    }

    /// Whether a read would return bytes although the socket is not ready.
    pub fn has_input(&mut self) -> bool {
        let waits = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        self.begin < self.end || !self.session.reader().fill_buf().is_err_and(waits)
    }

    /// Reads into `target`, and what is beyond it into `rest`. Returns the number of bytes, 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock`: no input, so wait for the socket. `InvalidData`: the input is not TLS, or the peer's
    /// identity is wrong.
    pub fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        target: Target<'_>,
        rest: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            match self.take(target, rest) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            self.feed(socket)?;
        }
    }

    /// Takes decrypted bytes.
    fn take(&mut self, target: Target<'_>, rest: &mut [u8]) -> io::Result<usize> {
        let straight = native::room_of(target);
        let room = straight + rest.len();
        let mut count = 0;
        while count < room {
            let mut reader = self.session.reader();
            let chunk = match reader.fill_buf() {
                Ok([]) => return Ok(count),
                Ok(chunk) => chunk,
                Err(_) if count > 0 => return Ok(count),
                // A connection cut without a closing message counts as an end, which the protocol above
                // handles.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            };
            let length = if count < straight {
                let length = chunk.len().min(straight - count);
                native::put(target, count, &chunk[..length]);
                length
            } else {
                let room = &mut rest[count - straight..];
                let length = chunk.len().min(room.len());
                room[..length].copy_from_slice(&chunk[..length]);
                length
            };
            reader.consume(length);
            count += length;
        }
        Ok(count)
    }

    /// Decrypts input, and reads more from the socket if no record is complete.
    fn feed(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        if self.begin == self.end {
            if self.input.is_empty() {
                self.input.resize(INPUT, 0);
            }
            (self.begin, self.end) = (0, 0);
            self.end = native::read(socket, Target::None, &mut self.input, false)?;
        }
        let mut encrypted = &self.input[self.begin..self.end];
        // Zero bytes tell the session that the connection has ended.
        self.begin += self.session.read_tls(&mut encrypted)?;
        if let Err(error) = self.session.process_new_packets() {
            // The alert is sent to the peer; an error means that the peer is gone already.
            let _told = self.flush(socket);
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(())
    }

    /// Encrypts as much of the pieces as fits, and writes what the socket takes. Returns the number of bytes
    /// taken.
    ///
    /// # Errors
    /// `WouldBlock`: nothing was taken until the socket is writable.
    pub fn write<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        pieces: impl Iterator<Item = Source<'a>>,
    ) -> io::Result<usize> {
        if !self.flush(socket)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut taken = 0;
        'pieces: for piece in pieces {
            let mut offset = 0;
            let length = native::length_of(piece);
            while offset < length {
                let count = (length - offset).min(RECORD - self.record.len());
                native::append(piece, offset, count, &mut self.record);
                offset += count;
                if self.record.len() == RECORD && !self.seal(&mut taken)? {
                    break 'pieces;
                }
            }
        }
        if !self.record.is_empty() {
            self.seal(&mut taken)?;
        }
        self.flush(socket)?;
        Ok(taken)
    }

    /// Encrypts the record. False: the output buffer is full.
    fn seal(&mut self, taken: &mut usize) -> io::Result<bool> {
        let count = self.session.writer().write(&self.record)?;
        *taken += count;
        let all = count == self.record.len();
        self.record.clear();
        Ok(all)
    }

    /// Writes encrypted output. False: the socket is full.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut SocketWriter(socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Continues the handshake as far as the input allows.
    ///
    /// # Errors
    /// `WouldBlock`: more input is needed. Other errors: the handshake has failed.
    pub fn agree(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while self.session.is_handshaking() {
            self.flush(socket)?;
            self.feed(socket)?;
            let ended = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
            match self.session.reader().fill_buf() {
                Err(error) if ended(&error) => {
                    let text = "the other side closed the connection during the handshake";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                }
                _ => {}
            }
        }
        self.flush(socket).map(|_| ())
    }

    /// Sends a closing message.
    pub fn close(&mut self, socket: BorrowedFd<'_>) {
        self.session.send_close_notify();
        // A courtesy, so an error does not matter.
        let _told = self.flush(socket);
    }
}
