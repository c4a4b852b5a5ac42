//! Asynchronous stream over TLS.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{TlsSession, advice};
use crate::native::{self, Source, Target};

/// A connection over TLS.
#[derive(Debug)]
pub struct TlsStream {
    socket: AsyncFd<OwnedFd>,
    session: TlsSession,
}

fn waits(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

impl TlsStream {
    /// A stream over a non-blocking socket.
    ///
    /// # Errors
    /// An error of the system.
    pub fn new(socket: OwnedFd, session: TlsSession) -> io::Result<TlsStream> {
        Ok(TlsStream { socket: native::watch(socket)?, session })
    }

    /// Writes encrypted output. Pending: the socket is full, and the woken task tries again.
    fn send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut ready = ready!(self.socket.poll_write_ready(context))?;
            if !self.session.flush(ready.get_ref().get_ref().as_fd())? {
                ready.clear_ready();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        loop {
            // Handshake messages go out whatever the read returns.
            if let Poll::Ready(sent) = stream.send(context) {
                sent?;
            }
            let room = buffer.initialize_unfilled();
            if stream.session.has_input() {
                match stream.session.read(stream.socket.get_ref().as_fd(), Target::None, room) {
                    Err(error) if waits(&error) => continue,
                    Err(error) => return Poll::Ready(Err(io::Error::other(advice(&error)))),
                    Ok(count) => buffer.advance(count),
                }
                return Poll::Ready(Ok(()));
            }
            let mut ready = ready!(stream.socket.poll_read_ready(context))?;
            match stream.session.read(ready.get_ref().get_ref().as_fd(), Target::None, room) {
                Err(error) if waits(&error) => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(io::Error::other(advice(&error)))),
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        loop {
            let mut ready = ready!(stream.socket.poll_write_ready(context))?;
            let socket = ready.get_ref().get_ref().as_fd();
            match stream.session.write(socket, [Source::Bytes(bytes)].into_iter()) {
                // The output buffer is full before the handshake is done; reading completes the handshake.
                Ok(0) if !bytes.is_empty() => return Poll::Pending,
                Err(error) if waits(&error) => ready.clear_ready(),
                other => return Poll::Ready(other),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().send(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        stream.session.close(stream.socket.get_ref().as_fd());
        stream.send(context)
    }
}
