//! Metaserver: chooses the server of each call. Clients ask it, servers register at it, and data goes
//! straight between the two. `kumi-broker` decides; this module has connections, time and stored state.
#![forbid(unsafe_code)]

mod access;
mod calls;
mod connection;
mod dispatcher;
mod http;
mod network;
mod peer;
mod servers;
mod state;
mod view;

use calls::{last_places, outcome, span_log, startup_queue};
use network::{names, paths};
use servers::{catalogue, members};
use state::{etcd, persistence, store};

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, TcpListener};
#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kumi_broker::{Broker, Event, UnknownPolicy, by_name};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

use dispatcher::Dispatcher;
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdError};
use kumi_call_access::users::{self, Users};
use kumi_call_access::{HandshakeLimit, Listener, ServeError, pass};
use kumi_call_wire::socket::{self, PlainSocket};
use kumi_call_wire::tls::Tls;
pub use store::StoreError;
pub use view::{
    CallState, CounterState, LeaderState, PathState, RoutineState, ServerCondition, ServerState,
    State, UserState,
};

/// Configuration of a metaserver.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name, shown to clients.
    pub name: String,
    /// Policy for choosing servers: `round-robin`, `least-load` or `min-completion`.
    pub policy: String,
    /// Most calls that a server gets at a time. `None`: its number of slots.
    pub limit: Option<u32>,
    /// Most waiting calls.
    pub waiting: usize,
    /// Most attempts of a call.
    pub attempts: u32,
    /// Most open calls of one connection.
    pub streams: usize,
    /// Most connections.
    pub connections: usize,
    /// How often servers report.
    pub report: Duration,
    /// How long a server may be silent before it counts as lost.
    pub silence: Duration,
    /// How long calls wait for a server to come back when all servers of their routine are gone. Then they fail.
    pub return_time: Duration,
    /// How long a client may take to come to its server before it loses the place.
    pub start: Duration,
    /// File for placed calls, times and paths, read at the next start.
    #[cfg(feature = "sqlite")]
    pub state: Option<PathBuf>,
    /// Settings of several metaservers that share this state in etcd. `state` is unused then.
    #[cfg(feature = "etcd")]
    pub etcd: Option<Etcd>,
    /// The listener of the dashboard, the state and the metrics.
    pub http: Option<Arc<TcpListener>>,
    /// The users who may call and offer routines. `None`: everybody may, and users are not distinguished.
    pub users: Option<Arc<Users>>,
    /// Certificate and key. `None`: connections are not encrypted. Unix sockets never are.
    pub tls: Option<Tls>,
    /// With users or TLS: most connections that have not identified themselves. One more evicts the oldest.
    pub unidentified: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: nix::unistd::gethostname()
                .map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned()),
            policy: "min-completion".to_owned(),
            limit: None,
            waiting: 100_000,
            attempts: 4,
            streams: 100_000,
            connections: 8192,
            report: Duration::from_millis(500),
            silence: Duration::from_secs(5),
            return_time: Duration::from_secs(60),
            start: Duration::from_secs(30),
            #[cfg(feature = "sqlite")]
            state: None,
            #[cfg(feature = "etcd")]
            etcd: None,
            http: None,
            users: None,
            tls: None,
            unidentified: 256,
        }
    }
}

/// Why a metaserver cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// The policy does not exist.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// An error of the system.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The state file cannot be used.
    #[cfg(feature = "sqlite")]
    #[error("the state in {} cannot be used: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: StoreError,
    },
    /// The state in etcd cannot be used.
    #[cfg(feature = "etcd")]
    #[error("{0}")]
    Etcd(#[from] EtcdError),
}

impl From<io::Error> for MetaError {
    fn from(error: io::Error) -> MetaError {
        MetaError::Serve(error.into())
    }
}

/// The first call number of this process. The second in which it begins is its upper half. A random number stands below, so
/// that a process of the same second, or after a clock that was set back, does not take numbers that servers still know.
fn first_call() -> io::Result<u64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let second = since.map_or(0, |since| since.as_secs());
    let below = u32::from_ne_bytes(kumi_call_wire::random::bytes()?) >> 1;
    Ok(second << 32 | u64::from(below))
}

/// Serves until `stop` is ready.
///
/// # Errors
/// [`MetaError`].
pub fn serve(
    config: Config,
    listener: Listener,
    stop: impl Future<Output = ()>,
) -> Result<(), MetaError> {
    serve_and_tell(config, listener, || {}, stop)
}

/// [`serve`] that calls `begins` when the configuration is found to be usable.
///
/// # Errors
/// [`MetaError`].
pub fn serve_and_tell(
    config: Config,
    listener: Listener,
    begins: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), MetaError> {
    let broker = broker(&config)?;
    kumi_call_access::raise_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    #[cfg(feature = "etcd")]
    if let Some(etcd) = config.etcd.clone() {
        begins();
        return state::term::serve(&runtime, &config, &etcd, &listener, stop);
    }
    let dispatcher = Dispatcher::new(config, broker, first_call()?);
    #[cfg(feature = "sqlite")]
    let dispatcher = with_file(dispatcher)?;
    begins();
    let dispatcher = Rc::new(RefCell::new(dispatcher));
    let local = LocalSet::new();
    let result = local.block_on(&runtime, async {
        tokio::select! {
            result = attend(&dispatcher, listener) => result,
            () = stop => Ok(()),
        }
    });
    drop(local);
    Ok(result?)
}

/// The dispatcher with the state of its file, if it has one.
#[cfg(feature = "sqlite")]
fn with_file(mut dispatcher: Dispatcher) -> Result<Dispatcher, MetaError> {
    if let Some(path) = dispatcher.config.state.clone() {
        dispatcher.succeeds = path.exists();
        let restored =
            store::SqliteStore::open(&path).and_then(|store| dispatcher.restore(Box::new(store)));
        restored.map_err(|source| MetaError::State { path, source })?;
    }
    Ok(dispatcher)
}

impl Config {
    /// Most waiting calls of one user.
    fn waiting_of_user(&self) -> usize {
        // If users are not distinguished, all are one.
        match &self.users {
            Some(_) => (self.waiting / 10).max(1),
            None => self.waiting,
        }
    }
}

/// The broker that decides.
fn broker(config: &Config) -> Result<Broker, UnknownPolicy> {
    let policy = by_name(&config.policy)?;
    let limits = kumi_broker::Config {
        most_waiting: config.waiting,
        most_waiting_of_user: config.waiting_of_user(),
        most_attempts: config.attempts,
        patience: u64::try_from(config.return_time.as_nanos()).unwrap_or(u64::MAX),
    };
    Ok(Broker::new(policy, limits))
}

/// Serves for ever.
async fn attend(dispatcher: &Rc<RefCell<Dispatcher>>, listener: Listener) -> io::Result<()> {
    tokio::select! {
        result = accept(dispatcher, listener) => result,
        () = keep_time(dispatcher) => Ok(()),
        result = http::serve(dispatcher) => result,
    }
}

/// Drives the broker's clock, and checks the servers.
async fn keep_time(dispatcher: &Rc<RefCell<Dispatcher>>) {
    let mut next = Instant::now();
    loop {
        let due = dispatcher.borrow().due().map(Instant::from_std);
        // A new call may have an earlier deadline, which is then noticed a little late.
        let soon = Instant::now() + Duration::from_millis(20);
        sleep_until(due.unwrap_or(next).min(next).min(soon)).await;
        let now = Instant::now();
        if due.is_some_and(|due| due <= now) {
            dispatcher.borrow_mut().tell(Event::Tick);
        }
        if next <= now {
            let mut dispatcher = dispatcher.borrow_mut();
            next = now + dispatcher.config.report;
            dispatcher.check_silence();
            dispatcher.check_users();
        }
    }
}

async fn accept(dispatcher: &Rc<RefCell<Dispatcher>>, listener: Listener) -> io::Result<()> {
    let (unidentified, tls) = {
        let config = &dispatcher.borrow().config;
        let watched = config.users.is_some() || config.tls.is_some();
        (watched.then_some(config.unidentified), config.tls.clone())
    };
    let handshake_limit = unidentified.map(|most| HandshakeLimit::new(most, Arc::default()));
    let take = |socket, from| take(dispatcher, socket, from, tls.clone(), handshake_limit.as_ref());
    listener.attend(take).await
}

/// Serves a connection.
fn take(
    dispatcher: &Rc<RefCell<Dispatcher>>,
    socket: PlainSocket,
    from: Option<IpAddr>,
    tls: Option<Tls>,
    handshake_limit: Option<&Rc<HandshakeLimit>>,
) {
    {
        let dispatcher = dispatcher.borrow();
        if dispatcher.connections >= dispatcher.config.connections {
            tracing::warn!("a connection more than allowed was closed");
            return;
        }
    }
    let handshake_permit = handshake_limit.map(HandshakeLimit::arrive);
    let dispatcher = Rc::clone(dispatcher);
    tokio::task::spawn_local(async move {
        let socket = tokio::select! {
            socket = socket::accept(socket, tls) => socket,
            () = kumi_call_access::evicted(handshake_permit.as_ref()) => return,
        };
        match socket {
            Ok(socket) => connection::run(dispatcher, socket, from, handshake_permit).await,
            Err(error) => tracing::debug!(%error, "a connection failed"),
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::first_call;

    /// Two processes of one second would otherwise give different calls one number, and a server would take the second
    /// for the first.
    #[test]
    fn processes_of_one_second_do_not_share_call_numbers() {
        let firsts: Vec<u64> = (0..8).map(|_| first_call().expect("random bytes")).collect();
        let apart = firsts.iter().map(|first| first & u64::from(u32::MAX)).collect::<BTreeSet<_>>();
        assert_eq!(apart.len(), 8, "{firsts:?}");
        assert!(
            apart.iter().all(|below| *below < 1 << 31),
            "there is room for the calls of a process"
        );
    }
}
