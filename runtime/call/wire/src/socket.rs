//! Asynchronous connections: to metaservers, and those that metaservers accept.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::tls::{self, Tls, TlsStream};

/// A connection of any kind.
pub trait Stream: AsyncRead + AsyncWrite {}

impl<S: AsyncRead + AsyncWrite> Stream for S {}

/// A connection of any transport.
pub type Socket = Pin<Box<dyn Stream>>;

/// How long a new connection may stay silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// First byte of a client that does not speak TLS.
const FIRST: u8 = b'k';

/// An unencrypted connection.
pub enum PlainSocket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl PlainSocket {
    /// Connects to `HOST:PORT` or `unix:PATH`.
    pub async fn open(address: &str) -> io::Result<PlainSocket> {
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok(PlainSocket::Unix(UnixStream::connect(path).await?));
        }
        let bare = address.strip_prefix("kumi://").unwrap_or(address);
        let stream = TcpStream::connect(bare).await?;
        crate::tcp::prepare(&stream)?;
        Ok(PlainSocket::Tcp(stream))
    }

    /// The file descriptor.
    pub fn into_descriptor(self) -> io::Result<OwnedFd> {
        Ok(match self {
            PlainSocket::Tcp(stream) => stream.into_std()?.into(),
            PlainSocket::Unix(stream) => stream.into_std()?.into(),
        })
    }
}

impl From<PlainSocket> for Socket {
    fn from(socket: PlainSocket) -> Socket {
        match socket {
            PlainSocket::Tcp(stream) => Box::pin(stream),
            PlainSocket::Unix(stream) => Box::pin(stream),
        }
    }
}

/// Connects to `HOST:PORT`, to `tls://HOST:PORT` with these trusted authorities, or to `unix:PATH`.
pub async fn connect(address: &str, ca: Option<&Path>) -> io::Result<Socket> {
    if let Some(bare) = address.strip_prefix("tls://") {
        let session = tls::begin(tls::host(bare), ca).map_err(io::Error::other)?;
        let socket = PlainSocket::open(bare).await?.into_descriptor()?;
        return Ok(Box::pin(TlsStream::new(socket, session)?));
    }
    Ok(PlainSocket::open(address).await?.into())
}

/// Begins TLS on an accepted connection; Unix sockets do without. The flag is true if the peer does not begin with TLS though it should; it is then
/// told so in plain text.
pub async fn accept(socket: PlainSocket, tls: Option<Tls>) -> io::Result<(Socket, bool)> {
    let (stream, tls) = match (socket, tls) {
        (PlainSocket::Tcp(stream), Some(tls)) => (stream, tls),
        (socket, _) => return Ok((socket.into(), false)),
    };
    let mut first = [0];
    let count = timeout(PATIENCE, stream.peek(&mut first)).await??;
    if count == 1 && first[0] == FIRST {
        return Ok((Box::pin(stream), true));
    }
    let secured = TlsStream::new(stream.into_std()?.into(), tls.accept()?)?;
    Ok((Box::pin(secured), false))
}
