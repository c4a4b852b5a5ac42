//! Connections of tasks: to metaservers, and those that metaservers accept.

use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A connection of any kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite {}

impl<S: AsyncRead + AsyncWrite> Stream for S {}

/// A connection whose kind is of no matter.
pub(crate) type Socket = Pin<Box<dyn Stream>>;

/// Connects to `HOST:PORT` or `unix:PATH`.
pub(crate) async fn connect(address: &str) -> io::Result<Socket> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(Box::pin(UnixStream::connect(path).await?));
    }
    let bare = address.strip_prefix("kumi://").unwrap_or(address);
    let stream = TcpStream::connect(bare).await?;
    stream.set_nodelay(true)?;
    Ok(Box::pin(stream))
}
