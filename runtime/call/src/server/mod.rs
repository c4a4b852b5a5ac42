//! The server: connections, calls, slots.

mod arenas;
mod asks;
mod connection;
mod process;
mod registry;
mod scratch;
mod slots;

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::LocalSet;

pub use registry::{Registry, RegistryError};

/// What a server offers and allows.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name, for clients.
    pub name: String,
    /// The executable of a slot.
    pub slot: PathBuf,
    /// Calls that run at the same time.
    pub slots: usize,
    /// Processes that are kept warm beyond those that run.
    pub warm: usize,
    /// Calls that may wait for a slot.
    pub waiting: usize,
    /// Calls that one connection may have open.
    pub streams: usize,
    /// Connections.
    pub connections: usize,
    /// Most bytes of one call's arguments.
    pub call_bytes: u64,
    /// Most bytes of all calls' arguments.
    pub bytes: u64,
    /// Most bytes of address space of a slot's process; 0: no limit.
    pub process_bytes: u64,
    /// Longest time of a call, waiting included.
    pub call_time: Option<Duration>,
    /// Threads that a routine's libraries may use.
    pub threads: usize,
    /// Where files of calls are kept while they run.
    pub scratch: PathBuf,
    /// Most bytes of one call's files, in either direction.
    pub file_bytes: u64,
}

impl Config {
    /// As many slots as processors, a quarter of the memory for one call, half for all.
    #[must_use]
    pub fn new(slot: PathBuf) -> Config {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = nix::sys::sysinfo::sysinfo().map_or(4 << 30, |info| info.ram_total());
        Config {
            name: nix::unistd::gethostname()
                .map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned()),
            slot,
            slots: processors,
            warm: 2 * processors + 14,
            waiting: 10_000,
            streams: 1_024,
            connections: 1_024,
            call_bytes: memory / 4,
            bytes: memory / 2,
            process_bytes: 0,
            call_time: None,
            threads: 1,
            scratch: std::env::temp_dir(),
            file_bytes: 16 << 30,
        }
    }
}

/// Where a server listens.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix stream socket.
    Unix(UnixListener),
}

/// Why a server cannot be.
#[derive(Debug, Error)]
pub enum ServeError {
    /// It cannot listen.
    #[error("cannot listen at {at}: {source}")]
    Listen {
        /// Where.
        at: String,
        /// What the system says.
        source: io::Error,
    },
    /// Its runtime or a listener failed.
    #[error("the server cannot go on: {0}")]
    System(#[from] io::Error),
}

impl Listener {
    /// Listens on a TCP address.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub fn tcp(address: SocketAddr) -> Result<Listener, ServeError> {
        TcpListener::bind(address)
            .map(Listener::Tcp)
            .map_err(|source| ServeError::Listen { at: address.to_string(), source })
    }

    /// Listens on a Unix socket. One that is there already and on which nobody listens is replaced.
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

    /// The address, if it is TCP.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(Some),
            Listener::Unix(_) => Ok(None),
        }
    }
}

/// What all connections share. Everything runs on one thread, which only moves bytes: the work is in the slots.
struct Shared {
    config: Config,
    registry: Registry,
    pool: RefCell<slots::Pool>,
    connections: RefCell<usize>,
    scratch: RefCell<scratch::Scratch>,
    /// Whether the server ends.
    end: watch::Sender<bool>,
}

/// How long clients have to read that the server ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves until `stop` is ready. Slots and connections are gone when it returns.
///
/// # Errors
/// The system fails.
pub fn serve(
    config: Config,
    registry: Registry,
    listener: Listener,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pool = RefCell::new(slots::Pool::new(&config));
    let end = watch::channel(false).0;
    let scratch = RefCell::new(scratch::Scratch::new(&config.scratch));
    let connections = RefCell::new(0);
    let shared = Rc::new(Shared { config, registry, pool, connections, scratch, end });
    let local = LocalSet::new();
    let result = local.block_on(&runtime, async {
        let result = tokio::select! {
            result = accept(&shared, listener) => result,
            () = stop => Ok(()),
        };
        shared.end.send_replace(true);
        // Who has not read it by then is told nothing.
        let _late = tokio::time::timeout(FAREWELL, gone(&shared)).await;
        result
    });
    shared.pool.borrow_mut().end();
    drop(local);
    Ok(result?)
}

/// Waits until all clients are gone.
async fn gone(shared: &Rc<Shared>) {
    while *shared.connections.borrow() > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn accept(shared: &Rc<Shared>, listener: Listener) -> io::Result<()> {
    match listener {
        Listener::Tcp(listener) => {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            loop {
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        pause(&error).await?;
                        continue;
                    }
                };
                stream.set_nodelay(true)?;
                take(shared, stream.into_std()?.into());
            }
        }
        Listener::Unix(listener) => {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::UnixListener::from_std(listener)?;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => take(shared, stream.into_std()?.into()),
                    Err(error) => pause(&error).await?,
                }
            }
        }
    }
}

/// Out of descriptors, or a client that has gone while it was accepted: the server goes on.
async fn pause(error: &io::Error) -> io::Result<()> {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    match errno {
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
            tracing::warn!(%error, "no connection can be taken");
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(())
        }
        Some(Errno::ECONNABORTED | Errno::EINTR | Errno::EPROTO) => Ok(()),
        _ => Err(io::Error::from(error.kind())),
    }
}

fn take(shared: &Rc<Shared>, socket: OwnedFd) {
    if *shared.connections.borrow() >= shared.config.connections {
        tracing::warn!("a connection more than allowed was closed");
        return;
    }
    *shared.connections.borrow_mut() += 1;
    let shared = Rc::clone(shared);
    tokio::task::spawn_local(async move {
        if let Err(error) = connection::run(&shared, socket).await {
            tracing::debug!(%error, "a connection ended");
        }
        *shared.connections.borrow_mut() -= 1;
    });
}
