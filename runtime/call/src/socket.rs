//! Connections of tasks: to metaservers, and those that metaservers accept.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A connection of any kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite {}

impl<S: AsyncRead + AsyncWrite> Stream for S {}

/// A connection whose kind is of no matter.
pub(crate) type Socket = Pin<Box<dyn Stream>>;

/// A connection that is not encrypted.
pub(crate) enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Plain {
    /// Connects to `HOST:PORT` or `unix:PATH`.
    pub async fn open(address: &str) -> io::Result<Plain> {
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok(Plain::Unix(UnixStream::connect(path).await?));
        }
        let bare = address.strip_prefix("kumi://").unwrap_or(address);
        let stream = TcpStream::connect(bare).await?;
        crate::tcp::prepare(&stream)?;
        Ok(Plain::Tcp(stream))
    }

    /// The system's own.
    pub fn into_descriptor(self) -> io::Result<OwnedFd> {
        Ok(match self {
            Plain::Tcp(stream) => stream.into_std()?.into(),
            Plain::Unix(stream) => stream.into_std()?.into(),
        })
    }
}

/// Connects to `HOST:PORT` or `unix:PATH`.
pub(crate) async fn connect(address: &str) -> io::Result<Socket> {
    Ok(match Plain::open(address).await? {
        Plain::Tcp(stream) => Box::pin(stream),
        Plain::Unix(stream) => Box::pin(stream),
    })
}
