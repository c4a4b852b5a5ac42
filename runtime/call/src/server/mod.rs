//! The server: connections, calls, slots.

mod arenas;
mod callback_requests;
mod connection;
mod fetch_connection;
mod folder_removal;
mod gather;
mod handshake_limit;
mod held_results;
mod load;
mod local_peer;
mod member;
mod owner;
mod process;
mod program;
mod registry;
mod scratch;
mod slot_channel;
mod slots;
mod tickets;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use thiserror::Error;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::LocalSet;

use crate::held::{Table, Traffic};
use crate::tls::Tls;
use crate::users::Users;

pub use crate::cluster::Jobs;
pub use handshake_limit::RefusalCounters;
pub(crate) use handshake_limit::{HandshakeLimit, HandshakePermit, evicted};
pub use member::Membership;
pub(crate) use owner::refused;
pub use program::Program;
pub(crate) use registry::hash;
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
    /// Objects of classes, each of which is a process.
    pub objects: usize,
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
    /// Most bytes of the files that all calls together have sent.
    pub scratch_bytes: u64,
    /// Who may call; `None`: everybody, without being told apart.
    pub users: Option<Arc<Users>>,
    /// Connections that have not said who they are, at once; the oldest goes for one more.
    pub strangers: usize,
    /// How long a client has to say who it is.
    pub hello_time: Duration,
    /// With what it proves who it is; `None`: what goes over its connections is not encrypted. A Unix socket's never is.
    pub tls: Option<Tls>,
    /// Whether routines run without network, with files that they cannot write, and without capabilities.
    pub sandbox: bool,
    /// How jobs of parallel routines are started; `None`: such routines are not run.
    pub jobs: Option<Jobs>,
    /// What came to nothing.
    pub counters: Arc<RefusalCounters>,
    /// The metaservers at which it registers.
    pub membership: Option<Membership>,
    /// Most bytes of arrays that are held between calls.
    pub held_bytes: u64,
    /// Longest time for which an array is held.
    pub held_time: Duration,
    /// How long arrays are held whose client's connection is lost.
    pub held_grace: Duration,
    /// Servers from which arrays are fetched for calls; `None`: any.
    pub peers: Option<Vec<String>>,
    /// Where arrays are fetched from servers at `tls://`: a file with the certificates (PEM) of the authorities that are
    /// trusted, and no others; `None`: those that the system trusts.
    pub peer_ca: Option<PathBuf>,
    /// Counts bytes of arrays.
    pub traffic: Arc<Traffic>,
    /// Only clients may call whom the metaserver has sent.
    pub only_sent: bool,
    /// Whether clients on this machine are given the memory of their calls, where that gives them no power that they have not.
    pub share_memory: bool,
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
            objects: 64,
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
            scratch_bytes: 64 << 30,
            users: None,
            strangers: 256,
            hello_time: Duration::from_secs(2),
            tls: None,
            sandbox: false,
            jobs: None,
            counters: Arc::default(),
            membership: None,
            held_bytes: memory / 4,
            held_time: Duration::from_secs(3600),
            held_grace: Duration::from_secs(30),
            peers: None,
            peer_ca: None,
            traffic: Arc::default(),
            only_sent: false,
            share_memory: true,
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
    /// The same once more: whoever accepts first has the connection.
    pub(crate) fn again(&self) -> io::Result<Listener> {
        Ok(match self {
            Listener::Tcp(listener) => Listener::Tcp(listener.try_clone()?),
            Listener::Unix(listener) => Listener::Unix(listener.try_clone()?),
        })
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

    /// The file of a Unix socket.
    fn path(&self) -> Option<PathBuf> {
        let Listener::Unix(listener) = self else { return None };
        listener.local_addr().ok()?.as_pathname().map(Path::to_owned)
    }
}

/// What all connections share. Everything runs on one thread, which only moves bytes: the work is in the slots.
struct Shared {
    config: Config,
    registry: Registry,
    pool: RefCell<slots::SlotPool>,
    /// Connections, and those of them that have said who they are.
    connections: Cell<usize>,
    known: Cell<usize>,
    handshake_limit: Rc<handshake_limit::HandshakeLimit>,
    tickets: Rc<tickets::Tickets>,
    scratch: RefCell<scratch::Scratch>,
    /// What clients show whom the metaserver has sent.
    passes: crate::pass::Passes,
    /// What others show for whom arrays are held here.
    vouchers: crate::voucher::Vouchers,
    /// Whether the server ends.
    end: watch::Sender<bool>,
    leave: Departure,
    /// How many files a process might open before this one raised that for itself.
    files: u64,
    held: RefCell<Table<held_results::StoredArray>>,
    /// Something is held or not any more.
    held_changed: Notify,
    /// Turns of those who fetch from other servers.
    fetches: Semaphore,
    trusted_authorities: fetch_connection::TrustedAuthorities,
    /// It listens on a Unix socket.
    local: bool,
    /// By what clients on this machine find its other listener.
    nearby: Option<crate::nearby::Secret>,
}

/// How the server leaves its metaserver.
#[derive(Default)]
struct Departure {
    /// A metaserver has it registered.
    attends: Cell<bool>,
    /// Whether it takes no new calls.
    begun: watch::Sender<bool>,
    /// The metaserver was told.
    told: Notify,
}

/// Most connections to other servers at a time.
const FETCHES: usize = 64;
/// How long clients have to read that the server ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// How the server belongs to a metaserver, with the address that clients are to be told.
fn membership(config: &Config, listener: &Listener) -> io::Result<Option<Membership>> {
    let Some(mut membership) = config.membership.clone() else { return Ok(None) };
    if membership.address.is_empty()
        && let Some(address) = listener.address()?
    {
        membership.address = address.to_string();
    }
    let has_scheme = ["tls://", "unix:"].iter().any(|it| membership.address.starts_with(it));
    if config.tls.is_some() && !has_scheme {
        membership.address.insert_str(0, "tls://");
    }
    Ok(Some(membership))
}

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
    let pool = RefCell::new(slots::SlotPool::new(&config));
    let held = RefCell::new(Table::new(config.held_bytes, config.held_time, config.held_grace));
    let handshake_limit =
        handshake_limit::HandshakeLimit::new(config.strangers, Arc::clone(&config.counters));
    let (files, path) = (raise_open_files(), listener.path());
    let nearby = local_peer::listen(&config, &listener);
    let membership = membership(&config, &listener)?;
    let scratch =
        RefCell::new(scratch::Scratch::new(&config.scratch, config.scratch_bytes, config.sandbox));
    let shared = Rc::new(Shared {
        config,
        registry,
        pool,
        connections: Cell::new(0),
        known: Cell::new(0),
        handshake_limit,
        tickets: Rc::default(),
        scratch,
        passes: crate::pass::Passes::default(),
        vouchers: crate::voucher::Vouchers::new(std::time::Instant::now())?,
        end: watch::channel(false).0,
        leave: Departure::default(),
        files,
        held,
        held_changed: Notify::new(),
        fetches: Semaphore::new(FETCHES),
        trusted_authorities: fetch_connection::TrustedAuthorities::default(),
        local: matches!(listener, Listener::Unix(_)),
        nearby: nearby.as_ref().map(|(secret, _)| *secret),
    });
    let local = LocalSet::new();
    if let Some(membership) = membership {
        local.spawn_local(member::run(Rc::clone(&shared), membership));
    }
    let result = local.block_on(&runtime, async {
        let result = tokio::select! {
            result = accept(&shared, listener) => result,
            result = local_peer::accept(&shared, nearby) => result,
            () = stop => Ok(()),
            () = held_results::sweep(&shared) => Ok(()),
        };
        take_leave(&shared).await;
        shared.end.send_replace(true);
        // Who has not read it by then is told nothing.
        let _late = tokio::time::timeout(FAREWELL, gone(&shared)).await;
        result
    });
    shared.pool.borrow_mut().end();
    drop(local);
    path.iter().for_each(|path| remove_socket(path));
    Ok(result?)
}

fn remove_socket(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(%error, path = %path.display(), "the socket has gone already");
    }
}

/// Tells the metaserver, before the clients are told: their calls would come back here otherwise.
async fn take_leave(shared: &Rc<Shared>) {
    shared.leave.begun.send_replace(true);
    if shared.leave.attends.get() {
        // One that does not read notices when the connection ends.
        let _unread = tokio::time::timeout(FAREWELL, shared.leave.told.notified()).await;
    }
}

/// Waits until all clients are gone.
async fn gone(shared: &Rc<Shared>) {
    while shared.connections.get() > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Raises the limit of open files as far as permitted: each connection, process and arena is one. What it was.
pub(crate) fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1_024 };
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        tracing::warn!(%error, soft, "the limit of open files stays");
    }
    soft
}

async fn accept(shared: &Rc<Shared>, listener: Listener) -> io::Result<()> {
    match listener {
        Listener::Tcp(listener) => {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let ready = crate::tcp::prepare(&stream).and_then(|()| stream.into_std());
                        begin(shared, ready.map(Into::into), shared.config.tls.as_ref(), false);
                    }
                    Err(error) => pause(&error).await,
                }
            }
        }
        Listener::Unix(listener) => accept_unix(shared, listener, false).await,
    }
}

/// Takes those who come over a Unix socket: with `nearby` those who have come over TCP before.
async fn accept_unix(shared: &Rc<Shared>, listener: UnixListener, nearby: bool) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => begin(shared, stream.into_std().map(Into::into), None, nearby),
            Err(error) => pause(&error).await,
        }
    }
}

/// Out of descriptors or memory, or a client that has gone while it was accepted: the server goes on.
pub(crate) async fn pause(error: &io::Error) {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    if !matches!(errno, Some(Errno::ECONNABORTED | Errno::EINTR | Errno::EPROTO)) {
        tracing::warn!(%error, "no connection can be taken");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Serves a connection, unless its client has gone meanwhile.
fn begin(shared: &Rc<Shared>, socket: io::Result<OwnedFd>, tls: Option<&Tls>, nearby: bool) {
    match socket {
        Ok(socket) => take(shared, socket, tls, nearby),
        Err(error) => tracing::debug!(%error, "a client went before it was served"),
    }
}

fn take(shared: &Rc<Shared>, socket: OwnedFd, tls: Option<&Tls>, nearby: bool) {
    let secured = match tls.map(Tls::accept).transpose() {
        Ok(secured) => secured,
        Err(error) => return tracing::error!(%error, "a connection cannot be secured"),
    };
    let (counted, handshake_permit) =
        (ConnectionCount::new(shared), shared.handshake_limit.arrive());
    // Before it can say anything, and who it was be somebody else.
    let origin = (local_peer::at(&socket), nearby);
    let shared = Rc::clone(shared);
    tokio::task::spawn_local(async move {
        let _counted = counted;
        if let Err(error) =
            connection::run(&shared, socket, secured, handshake_permit, origin).await
        {
            tracing::debug!(%error, "a connection ended");
        }
    });
}

/// A connection that is counted, however it ends.
struct ConnectionCount(Rc<Shared>);

impl ConnectionCount {
    fn new(shared: &Rc<Shared>) -> ConnectionCount {
        shared.connections.set(shared.connections.get() + 1);
        ConnectionCount(Rc::clone(shared))
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
    }
}
