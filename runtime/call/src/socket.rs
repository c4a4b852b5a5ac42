//! Connections of tasks: to metaservers, and those that metaservers accept.

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
pub(crate) trait Stream: AsyncRead + AsyncWrite {}

impl<S: AsyncRead + AsyncWrite> Stream for S {}

/// A connection whose kind is of no matter.
pub(crate) type Socket = Pin<Box<dyn Stream>>;

/// How long a stranger may say nothing at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// With what one begins who does not speak TLS.
const FIRST: u8 = b'k';

/// A connection that is not encrypted.
pub(crate) enum PlainSocket {
    Tcp(TcpStream),
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

    /// The system's own.
    pub fn into_descriptor(self) -> io::Result<OwnedFd> {
        Ok(match self {
            PlainSocket::Tcp(stream) => stream.into_std()?.into(),
            PlainSocket::Unix(stream) => stream.into_std()?.into(),
        })
    }
}

/// Connects to `HOST:PORT`, `tls://HOST:PORT`, trusting these authorities, or `unix:PATH`.
pub(crate) async fn connect(address: &str, ca: Option<&Path>) -> io::Result<Socket> {
    if let Some(bare) = address.strip_prefix("tls://") {
        let session = tls::begin(tls::host(bare), ca).map_err(io::Error::other)?;
        let socket = PlainSocket::open(bare).await?.into_descriptor()?;
        return Ok(Box::pin(TlsStream::new(socket, session)?));
    }
    Ok(match PlainSocket::open(address).await? {
        PlainSocket::Tcp(stream) => Box::pin(stream),
        PlainSocket::Unix(stream) => Box::pin(stream),
    })
}

/// A connection that has come, and whether it does not begin with TLS though it should: then who is there is told so in
/// the only way that it understands.
pub(crate) async fn accept(stream: TcpStream, tls: Option<Tls>) -> io::Result<(Socket, bool)> {
    let Some(tls) = tls else { return Ok((Box::pin(stream), false)) };
    let mut first = [0];
    let count = timeout(PATIENCE, stream.peek(&mut first)).await??;
    if count == 1 && first[0] == FIRST {
        return Ok((Box::pin(stream), true));
    }
    let secured = TlsStream::new(stream.into_std()?.into(), tls.accept()?)?;
    Ok((Box::pin(secured), false))
}
