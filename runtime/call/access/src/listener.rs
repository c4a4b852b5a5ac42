//! Listening for connections, and the limits of the system on them.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kumi_call_wire::socket::PlainSocket;
use kumi_call_wire::tcp;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use thiserror::Error;

/// The socket on which a server listens.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix stream socket.
    Unix(UnixListener),
}

/// Why a server cannot start or go on.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The server cannot listen.
    #[error("cannot listen at {at}: {source}")]
    Listen {
        /// The address.
        at: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The key of passes would cross a network in clear.
    #[error(
        "--meta {address}: token and key of this server would cross the network in clear, and whoever reads the key \
         can call as any user; give the metaserver as tls://HOST:PORT, or give --insecure as well"
    )]
    ClearMetaserver {
        /// The metaserver's address.
        address: String,
    },
    /// A metaserver would say who of the server's own users calls, and nobody has permitted that.
    #[error(
        "--tokens with --meta: the metaserver says who calls, so whoever holds it can call as each user of the file; \
         give --trust-meta or --meta-only as well if it may"
    )]
    Vouching,
    /// A metaserver at which this server has never registered refuses it, and will do so again.
    #[error("--meta {address} refuses this server: {reason}")]
    Refused {
        /// The metaserver's address.
        address: String,
        /// What it says, or which option is missing.
        reason: String,
    },
    /// There is a server of routines where a metaserver was to be.
    #[error("--meta {0}: this is a server, not a metaserver; give the address of `kumi call meta`")]
    NotMetaserver(String),
    /// The runtime or a listener failed.
    #[error("the server cannot go on: {0}")]
    System(#[from] io::Error),
}

impl Listener {
    /// A second handle of the socket. The first to accept gets a connection.
    pub fn again(&self) -> io::Result<Listener> {
        Ok(match self {
            Listener::Tcp(listener) => Listener::Tcp(listener.try_clone()?),
            Listener::Unix(listener) => Listener::Unix(listener.try_clone()?),
        })
    }

    /// Gives each connection to `take`, with the address from which it comes over TCP.
    ///
    /// # Errors
    /// The socket cannot be used. Connections that fail are passed over.
    pub async fn attend(self, mut take: impl FnMut(PlainSocket, Option<IpAddr>)) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                loop {
                    match listener.accept().await {
                        Ok((stream, from)) => match tcp::prepare(&stream) {
                            Ok(()) => take(PlainSocket::Tcp(stream), Some(from.ip())),
                            Err(error) => {
                                tracing::debug!(%error, "a client went before it was served");
                            }
                        },
                        Err(error) => pause(&error).await,
                    }
                }
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::UnixListener::from_std(listener)?;
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => take(PlainSocket::Unix(stream), None),
                        Err(error) => pause(&error).await,
                    }
                }
            }
        }
    }

    /// Listens on a TCP address.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub fn tcp(address: SocketAddr) -> Result<Listener, ServeError> {
        TcpListener::bind(address)
            .map(Listener::Tcp)
            .map_err(|source| ServeError::Listen { at: address.to_string(), source })
    }

    /// Listens on a Unix socket. Replaces a socket file on which nobody listens.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub fn unix(path: &Path) -> Result<Listener, ServeError> {
        let listen = || match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                match std::os::unix::net::UnixStream::connect(path) {
                    Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)
                    }
                    _ => Err(error),
                }
            }
            other => other,
        };
        listen()
            .map(Listener::Unix)
            .map_err(|source| ServeError::Listen { at: path.display().to_string(), source })
    }

    /// The TCP address, if it has one.
    ///
    /// # Errors
    /// An error of the system.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(Some),
            Listener::Unix(_) => Ok(None),
        }
    }

    /// The file of a Unix socket.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        let Listener::Unix(listener) = self else { return None };
        listener.local_addr().ok()?.as_pathname().map(Path::to_owned)
    }
}

/// Raises the limit of open files as far as permitted, since each connection, process and arena needs one.
/// Returns the old limit.
pub fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1_024 };
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        tracing::warn!(%error, soft, "the limit of open files is not raised");
    }
    soft
}

/// An error such as too few descriptors, too little memory or a vanished client. The server pauses and goes
/// on.
async fn pause(error: &io::Error) {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    if !matches!(errno, Some(Errno::ECONNABORTED | Errno::EINTR | Errno::EPROTO)) {
        tracing::warn!(%error, "no connection can be taken");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
