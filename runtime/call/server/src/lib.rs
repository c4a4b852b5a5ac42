//! Server of routines: accepts connections and runs calls in slot processes.
#![forbid(unsafe_code)]

mod access;
mod connection;
mod files;
mod held;
mod load;
mod logs;
mod member;
mod memory;
mod routines;
mod slots;

use access::{local_peer, owner, tickets};
use files::{folder_removal, scratch};
use memory::{arenas, budget, fetch_connection, gather, held_results, peers};
use routines::{jobs, loadable, program, registry};
use slots::{callback_requests, process, slot_channel};

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, LocalSet};

use crate::held::Table;
use crate::tls::Tls;
use crate::users::Users;
use kumi_call_access::{HandshakeLimit, pass, raise_open_files};
use kumi_call_access::{users, voucher};
use kumi_call_slot::{confine, slot_protocol};
use kumi_call_wire::{address, callback, layout, native, nearby, random, socket, tls, values};

pub use held::Traffic;
pub use kumi_call_access::{Listener, RefusalCounters, ServeError};
pub use kumi_call_slot::confine::SANDBOX_PROCESSES;
pub use kumi_call_slot::slot_protocol::Jobs;
pub use kumi_cgroup::{ServerGroups, SlotLimits};
pub use loadable::{LibraryCheck, Unloadable};
pub use logs::LogLimits;
pub use member::Membership;
pub use peers::Peers;
pub use program::Program;
pub use registry::{Registry, RegistryError};

/// Configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name, shown to clients.
    pub name: String,
    /// The executable of a slot.
    pub slot: PathBuf,
    /// Most calls that run at the same time.
    pub slots: usize,
    /// Most idle processes that are kept for later calls.
    pub warm: usize,
    /// Most objects of classes; each is a process.
    pub objects: usize,
    /// Most calls that wait for a slot.
    pub waiting: usize,
    /// Most open calls of one connection.
    pub streams: usize,
    /// Most connections.
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
    /// Folder for files of running calls.
    pub scratch: PathBuf,
    /// Most bytes of one call's files, in either direction.
    pub file_bytes: u64,
    /// Most bytes of files of all calls together.
    pub scratch_bytes: u64,
    /// The users who may call. `None`: everybody may, and users are not distinguished.
    pub users: Option<Arc<Users>>,
    /// Most connections that have not identified themselves; one more evicts the oldest.
    pub unidentified: usize,
    /// How long a client has to identify itself.
    pub hello_time: Duration,
    /// Certificate and key of the server. `None`: connections are not encrypted. Unix sockets never are.
    pub tls: Option<Tls>,
    /// Whether routines run in a sandbox: no network, read-only files, no capabilities.
    pub sandbox: bool,
    /// How to start jobs of parallel routines. `None`: such routines cannot run.
    pub jobs: Option<Jobs>,
    /// Counters of refused connections.
    pub counters: Arc<RefusalCounters>,
    /// The metaservers to register at.
    pub membership: Option<Membership>,
    /// Most bytes of arrays held between calls.
    pub held_bytes: u64,
    /// Longest lifetime of a held array.
    pub held_time: Duration,
    /// How long arrays are held after their client's connection is lost.
    pub held_grace: Duration,
    /// Servers from which this server may fetch arrays.
    pub peers: Peers,
    /// For fetches from servers at `tls://`: a PEM file with the certificates of the only trusted
    /// authorities. `None`: the authorities that the system trusts.
    pub peer_ca: Option<PathBuf>,
    /// Counters of array bytes.
    pub traffic: Arc<Traffic>,
    /// Whether only clients with a metaserver's pass may call.
    pub only_sent: bool,
    /// Control groups of its processes, removed when the server ends. `None`: each process has limits of its own only.
    pub groups: Option<Arc<ServerGroups>>,
    /// Most that is kept of the logs of calls, for their users.
    pub logs: LogLimits,
    /// How long a connection answers questions for logs after it has shown a metaserver's pass for them.
    pub log_pass_time: Duration,
    /// How long a metaserver's pass for logs may be shown, from the report of load on that the metaserver had before it gave it.
    pub log_pass_age: Duration,
    /// Whether clients on this machine may map the memory of their calls, where that gives them no new power.
    pub share_memory: bool,
}

impl Config {
    /// As many slots as processors, a quarter of the memory for one call, half for all calls.
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
            unidentified: 256,
            hello_time: Duration::from_secs(2),
            tls: None,
            sandbox: false,
            jobs: None,
            counters: Arc::default(),
            membership: None,
            held_bytes: memory / 4,
            held_time: Duration::from_secs(3600),
            held_grace: Duration::from_secs(30),
            peers: Peers::default(),
            peer_ca: None,
            traffic: Arc::default(),
            only_sent: false,
            groups: None,
            logs: LogLimits::default(),
            log_pass_time: Duration::from_secs(600),
            log_pass_age: Duration::from_secs(600),
            share_memory: true,
        }
    }

    /// Refuses a registration that tells or permits more than the owner has said.
    ///
    /// # Errors
    /// [`ServeError::ClearMetaserver`] and [`ServeError::Vouching`].
    pub fn check(&self) -> Result<(), ServeError> {
        let Some(membership) = &self.membership else { return Ok(()) };
        if let Some(address) = membership.in_clear().filter(|_| !membership.insecure) {
            return Err(ServeError::ClearMetaserver { address: address.to_owned() });
        }
        if self.users.is_some() && !(membership.vouches || self.only_sent) {
            return Err(ServeError::Vouching);
        }
        Ok(())
    }
}

/// State that all connections share. One thread runs everything here and only moves bytes; slots do the work.
struct Shared {
    config: Config,
    registry: Registry,
    pool: RefCell<slots::SlotPool>,
    /// What users see of their calls.
    logs: logs::LogStore,
    /// Number of connections, and of those that have identified themselves.
    connections: Cell<usize>,
    known: Cell<usize>,
    handshake_limit: Rc<HandshakeLimit>,
    tickets: Rc<tickets::Tickets>,
    scratch: RefCell<scratch::Scratch>,
    /// Passes of clients that a metaserver sends.
    passes: crate::pass::Passes,
    /// Vouchers for arrays that this server holds.
    vouchers: crate::voucher::Vouchers,
    /// Whether the server ends.
    end: watch::Sender<bool>,
    leave: Departure,
    /// The limit of open files before the server raised its own.
    files: u64,
    held: RefCell<Table<held_results::StoredArray>>,
    /// The set of held arrays has changed.
    held_changed: Notify,
    /// Permits for fetches from other servers.
    fetches: Semaphore,
    /// The servers that the metaserver knows.
    known_servers: peers::KnownServers,
    trusted_authorities: fetch_connection::TrustedAuthorities,
    /// It listens on a Unix socket.
    local: bool,
    /// Secret name of the local socket for clients on this machine.
    nearby: Option<crate::nearby::Secret>,
}

/// State of leaving the metaserver.
#[derive(Default)]
struct Departure {
    /// The server is registered.
    attends: Cell<bool>,
    /// Whether the server refuses new calls.
    begun: watch::Sender<bool>,
    /// The metaserver was told.
    reported: Notify,
}

/// Most connections to other servers at a time.
const FETCHES: usize = 64;
/// How long clients have to read that the server ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// The registration settings, with the address for clients.
fn membership(config: &Config, listener: &Listener) -> Result<Option<Membership>, ServeError> {
    config.check()?;
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
/// The registration is unsafe, or the runtime or a listener fails.
pub fn serve(
    config: Config,
    registry: Registry,
    listener: Listener,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pool = RefCell::new(slots::SlotPool::new(&config));
    let held = RefCell::new(Table::new(config.held_bytes, config.held_time, config.held_grace));
    let handshake_limit = HandshakeLimit::new(config.unidentified, Arc::clone(&config.counters));
    let (files, path) = (raise_open_files(), listener.path());
    let nearby = local_peer::listen(&config, &listener);
    let membership = membership(&config, &listener)?;
    let scratch = scratch::Scratch::new(&config.scratch, config.scratch_bytes, config.sandbox);
    let shared = Rc::new(Shared {
        logs: logs::LogStore::new(config.logs),
        config,
        registry,
        pool,
        connections: Cell::new(0),
        known: Cell::new(0),
        handshake_limit,
        tickets: Rc::default(),
        scratch: RefCell::new(scratch),
        passes: crate::pass::Passes::default(),
        vouchers: crate::voucher::Vouchers::new(std::time::Instant::now())?,
        end: watch::channel(false).0,
        leave: Departure::default(),
        files,
        held,
        held_changed: Notify::new(),
        fetches: Semaphore::new(FETCHES),
        known_servers: peers::KnownServers::default(),
        trusted_authorities: fetch_connection::TrustedAuthorities::default(),
        local: matches!(listener, Listener::Unix(_)),
        nearby: nearby.as_ref().map(|(secret, _)| *secret),
    });
    let local = LocalSet::new();
    let registration =
        membership.map(|membership| local.spawn_local(member::run(Rc::clone(&shared), membership)));
    let result = local.block_on(&runtime, async {
        let result = tokio::select! {
            result = accept(&shared, listener, false) => result.map_err(ServeError::from),
            result = local_peer::accept(&shared, nearby) => result.map_err(ServeError::from),
            error = refusal(registration) => Err(error),
            () = stop => Ok(()),
            () = held_results::sweep(&shared) => Ok(()),
        };
        leave_metaserver(&shared).await;
        shared.end.send_replace(true);
        // A client that has not read it by now is not told.
        let _late = tokio::time::timeout(FAREWELL, gone(&shared)).await;
        result
    });
    shared.pool.borrow_mut().end();
    drop(local);
    remove_groups(&shared.config);
    path.iter().for_each(|path| remove_socket(path));
    result
}

/// Waits until the metaservers have refused this server for good.
async fn refusal(registration: Option<JoinHandle<ServeError>>) -> ServeError {
    match registration {
        Some(registration) => {
            registration.await.unwrap_or_else(|error| ServeError::System(error.into()))
        }
        None => std::future::pending().await,
    }
}

/// How long processes may take to leave the server's control groups.
const EMPTYING: Duration = Duration::from_secs(5);

/// Ends what is left in the server's control groups, and removes these.
fn remove_groups(config: &Config) {
    if let Some(groups) = &config.groups
        && let Err(error) = groups.destroy(EMPTYING)
    {
        tracing::error!(%error, "the server's control groups stay; the next server here removes them");
    }
}

fn remove_socket(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(%error, path = %path.display(), "the socket has gone already");
    }
}

/// Tells the metaserver before the clients: otherwise their calls would come back here.
async fn leave_metaserver(shared: &Rc<Shared>) {
    shared.leave.begun.send_replace(true);
    if shared.leave.attends.get() {
        // A metaserver that does not read notices the end of the connection.
        let _unread = tokio::time::timeout(FAREWELL, shared.leave.reported.notified()).await;
    }
}

/// Waits until all clients are gone.
async fn gone(shared: &Rc<Shared>) {
    while shared.connections.get() > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Accepts connections. With `nearby`, these clients connected over TCP before.
async fn accept(shared: &Rc<Shared>, listener: Listener, nearby: bool) -> io::Result<()> {
    let tls = shared.config.tls.as_ref().filter(|_| matches!(listener, Listener::Tcp(_)));
    listener
        .attend(|socket, _| match socket.into_descriptor() {
            Ok(socket) => take(shared, socket, tls, nearby),
            Err(error) => tracing::debug!(%error, "a client went before it was served"),
        })
        .await
}

fn take(shared: &Rc<Shared>, socket: OwnedFd, tls: Option<&Tls>, nearby: bool) {
    let secured = match tls.map(Tls::accept).transpose() {
        Ok(secured) => secured,
        Err(error) => return tracing::error!(%error, "a connection cannot be secured"),
    };
    let (counted, handshake_permit) =
        (ConnectionCount::new(shared), shared.handshake_limit.arrive());
    // Before the peer can send anything, or its process can be replaced.
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

/// Counts a connection until this is dropped.
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
