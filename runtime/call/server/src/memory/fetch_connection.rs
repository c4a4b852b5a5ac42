//! Non-blocking connection to another server that holds arrays, with or without TLS.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::super::Shared;
use crate::native::{self, Source, Target};
use crate::socket::PlainSocket;
use crate::tls::{self, Authorities, TlsSession};

/// The option that names the trusted authorities.
const OPTION: &str = "--peer-ca FILE, at the server that fetches";

/// Authorities that this server trusts, loaded on first use because that takes a while.
#[derive(Debug, Default)]
pub struct TrustedAuthorities(OnceCell<Authorities>);

impl TrustedAuthorities {
    async fn get(&self, shared: &Shared) -> io::Result<&Authorities> {
        let find = async || {
            let file = shared.config.peer_ca.clone();
            let loaded = tokio::task::spawn_blocking(move || Authorities::load(file.as_deref()));
            loaded.await.map_err(io::Error::other)?.map_err(io::Error::other)
        };
        self.0.get_or_try_init(find).await
    }
}

/// A connection over which arrays come.
pub struct FetchConnection {
    socket: AsyncFd<OwnedFd>,
    secured: Option<Box<TlsSession>>,
    /// How long the other server may be silent.
    patience: Duration,
}

fn waits(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

impl FetchConnection {
    /// Connects to `HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`. Afterwards the server's identity is proved.
    pub async fn open(
        shared: &Shared,
        address: &str,
        patience: Duration,
    ) -> io::Result<FetchConnection> {
        let (bare, secured) = match address.strip_prefix("tls://") {
            None => (address, None),
            Some(bare) => {
                let authorities = shared.trusted_authorities.get(shared).await?;
                let session = authorities.begin(tls::host(bare)).map_err(io::Error::other)?;
                (bare, Some(Box::new(session)))
            }
        };
        let socket = native::watch(PlainSocket::open(bare).await?.into_descriptor()?)?;
        let mut fetch_connection = FetchConnection { socket, secured, patience };
        let agreed = fetch_connection.agree().await;
        agreed.map_err(|error| io::Error::new(error.kind(), tls::advice_with(&error, OPTION)))?;
        Ok(fetch_connection)
    }

    async fn agree(&mut self) -> io::Result<()> {
        let FetchConnection { socket, secured, .. } = self;
        let Some(secured) = secured else { return Ok(()) };
        loop {
            match secured.agree(socket.get_ref().as_fd()) {
                // Tried again after each clearing, so no input is missed.
                Err(error) if waits(&error) => socket.readable().await?.clear_ready(),
                other => return other,
            }
        }
    }

    /// Writes all bytes to the socket.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let FetchConnection { socket, secured, patience } = self;
        loop {
            let to = socket.get_ref().as_fd();
            let pieces = std::iter::once(Source::Bytes(bytes));
            let written = match secured {
                None if bytes.is_empty() => return Ok(()),
                None => native::write(to, pieces),
                Some(secured) if bytes.is_empty() => match secured.flush(to)? {
                    true => return Ok(()),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                },
                Some(secured) => secured.write(to, pieces),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if waits(&error) => {
                    timeout(*patience, socket.writable()).await??.clear_ready();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads into `target`, and what is beyond it into `rest`. Returns the number of bytes, 0 at the end.
    ///
    /// # Errors
    /// `TimedOut`: nothing has arrived for too long.
    pub async fn read(&mut self, target: Target<'_>, rest: &mut [u8]) -> io::Result<usize> {
        let FetchConnection { socket, secured, patience } = self;
        loop {
            // The socket does not report decrypted input that is waiting.
            if let Some(secured) = secured
                && secured.has_input()
            {
                match secured.read(socket.get_ref().as_fd(), target, rest) {
                    Err(error) if waits(&error) => {}
                    other => return other,
                }
            }
            let mut ready = timeout(*patience, socket.readable()).await??;
            let read = ready.try_io(|socket| {
                let socket = socket.get_ref().as_fd();
                let Some(secured) = secured.as_mut() else {
                    return native::read(socket, target, rest, false);
                };
                let read = secured.read(socket, target, rest);
                // TLS acknowledges new keys. What the socket does not take now goes later, or never has to.
                secured.flush(socket)?;
                read
            });
            match read {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => return read,
                Err(_would_block) => {}
            }
        }
    }

    /// Tells the other side that nothing more comes.
    pub fn close(&mut self) {
        if let Some(secured) = &mut self.secured {
            secured.close(self.socket.get_ref().as_fd());
        }
    }
}
