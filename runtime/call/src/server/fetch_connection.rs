//! A connection to a server that holds arrays, encrypted or not, over a socket that does not wait.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::Shared;
use crate::native::{self, Source, Target};
use crate::socket::PlainSocket;
use crate::tls::{self, Authorities, TlsSession};

/// How an owner of a server says whom it trusts.
const OPTION: &str = "--peer-ca FILE, at the server that fetches";

/// Whom this server believes who others are: found out when it is first needed, since it takes a while.
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
    /// How long the other side may do nothing.
    patience: Duration,
}

fn waits(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

impl FetchConnection {
    /// Connects to `HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`. Who is there is who it should be when this is done.
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
                // Tried again whenever this was cleared, so nothing that has come is missed.
                Err(error) if waits(&error) => socket.readable().await?.clear_ready(),
                other => return other,
            }
        }
    }

    /// Writes it all; it is on its way when this returns.
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

    /// Reads what has come into the target, and what is beyond it into `rest`; the number of bytes, 0 at the end.
    ///
    /// # Errors
    /// `TimedOut`: nothing has come for too long.
    pub async fn read(&mut self, target: Target<'_>, rest: &mut [u8]) -> io::Result<usize> {
        let FetchConnection { socket, secured, patience } = self;
        loop {
            // What is there already the socket does not tell of.
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
                // New keys are acknowledged; what the socket does not take now goes later, or never has to.
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
