//! The metaserver: which server a call goes to. Clients ask it, servers register at it, and data goes straight
//! between the two. The decisions are `kumi-broker`'s; here are connections, time, and what is kept.

mod access;
mod attempt_end;
mod catalogue;
mod connection;
mod dispatcher;
mod etcd;
mod held_arguments;
mod http;
mod members;
mod names;
mod orphans;
mod outcome;
mod paths;
mod peer;
mod persistence;
mod sites;
mod startup_queue;
mod store;
mod term;
mod view;

use std::cell::RefCell;
use std::future::ready;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kumi_broker::{Broker, Event, UnknownPolicy, by_name};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

use crate::server::{HandshakeLimit, Listener, ServeError};
use crate::socket;
use crate::tls::Tls;
use crate::users::Users;
use dispatcher::Dispatcher;
pub use etcd::{Etcd, EtcdError};
use store::SqliteStore;
pub use store::StoreError;
pub use view::{
    CallState, CounterState, LeaderState, PathState, RoutineState, ServerState, State, UserState,
};

/// What a metaserver does and allows.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name, for clients.
    pub name: String,
    /// How servers are chosen: `round-robin`, `least-load` or `min-completion`.
    pub policy: String,
    /// Most calls that a server is given at a time; `None`: as many as it has slots.
    pub limit: Option<u32>,
    /// Calls that may wait.
    pub waiting: usize,
    /// Times that a call is started at most.
    pub attempts: u32,
    /// Calls that one connection may have open.
    pub streams: usize,
    /// Connections.
    pub connections: usize,
    /// How often servers report.
    pub report: Duration,
    /// How long a server may be silent until it is taken for lost.
    pub silence: Duration,
    /// How long a client may take to come to the server that it was sent to until its place is another's.
    pub start: Duration,
    /// Where calls that are placed, times and paths are kept for the next start.
    pub state: Option<PathBuf>,
    /// Where several metaservers keep that, of which one leads; then `state` is of no use.
    pub etcd: Option<Etcd>,
    /// Where the dashboard, the state and figures are shown.
    pub http: Option<Arc<TcpListener>>,
    /// Who may call and who may offer routines; `None`: everybody, without being told apart.
    pub users: Option<Arc<Users>>,
    /// With what it proves who it is; `None`: what goes over its connections is not encrypted. A Unix socket's never is.
    pub tls: Option<Tls>,
    /// Where there are users or TLS: connections that have not said who they are, at once; the oldest goes for one more.
    pub strangers: usize,
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
            start: Duration::from_secs(30),
            state: None,
            etcd: None,
            http: None,
            users: None,
            tls: None,
            strangers: 256,
        }
    }
}

/// Why a metaserver cannot be.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// No policy is called that.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// The system fails.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The state cannot be kept.
    #[error("the state in {} cannot be used: {source}", path.display())]
    State {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: StoreError,
    },
    /// The state cannot be kept in etcd.
    #[error("{0}")]
    Etcd(#[from] EtcdError),
}

impl From<io::Error> for MetaError {
    fn from(error: io::Error) -> MetaError {
        MetaError::Serve(error.into())
    }
}

/// The first number for calls of this process: no other process of the same state begins with it, as long as each
/// lives for a second.
fn first_call() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs()) << 32
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
    let broker = broker(&config)?;
    crate::server::raise_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(etcd) = config.etcd.clone() {
        return term::serve(&runtime, &config, &etcd, &listener, stop);
    }
    let mut dispatcher = Dispatcher::new(config, broker, first_call());
    if let Some(path) = dispatcher.config.state.clone() {
        let restored =
            SqliteStore::open(&path).and_then(|store| dispatcher.restore(Box::new(store)));
        restored.map_err(|source| MetaError::State { path, source })?;
    }
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

impl Config {
    /// Calls of one user that may wait.
    fn waiting_of_user(&self) -> usize {
        // Where users are not told apart all are one.
        match &self.users {
            Some(_) => (self.waiting / 10).max(1),
            None => self.waiting,
        }
    }
}

/// What decides.
fn broker(config: &Config) -> Result<Broker, UnknownPolicy> {
    let policy = by_name(&config.policy)?;
    let limits = kumi_broker::Config {
        most_waiting: config.waiting,
        most_waiting_of_user: config.waiting_of_user(),
        most_attempts: config.attempts,
        ..kumi_broker::Config::default()
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

/// Looks at the clock for the broker, and at servers.
async fn keep_time(dispatcher: &Rc<RefCell<Dispatcher>>) {
    let mut next = Instant::now();
    loop {
        let due = dispatcher.borrow().due().map(Instant::from_std);
        // A call that comes may bring an earlier time; then that is a little late.
        let soon = Instant::now() + Duration::from_millis(20);
        sleep_until(due.unwrap_or(next).min(next).min(soon)).await;
        let now = Instant::now();
        if due.is_some_and(|due| due <= now) {
            dispatcher.borrow_mut().tell(Event::Tick);
        }
        if next <= now {
            let mut dispatcher = dispatcher.borrow_mut();
            next = now + dispatcher.config.report;
            dispatcher.look_around();
            dispatcher.check_users();
        }
    }
}

async fn accept(dispatcher: &Rc<RefCell<Dispatcher>>, listener: Listener) -> io::Result<()> {
    let (strangers, tls) = {
        let config = &dispatcher.borrow().config;
        let watched = config.users.is_some() || config.tls.is_some();
        (watched.then_some(config.strangers), config.tls.clone())
    };
    let handshake_limit = strangers.map(|most| HandshakeLimit::new(most, Arc::default()));
    match listener {
        Listener::Tcp(listener) => {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            loop {
                match listener.accept().await {
                    Ok((stream, from)) => match crate::tcp::prepare(&stream) {
                        Ok(()) => {
                            let socket = socket::accept(stream, tls.clone());
                            take(dispatcher, socket, Some(from.ip()), handshake_limit.as_ref());
                        }
                        Err(error) => tracing::debug!(%error, "a client went before it was served"),
                    },
                    Err(error) => crate::server::pause(&error).await,
                }
            }
        }
        Listener::Unix(listener) => {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::UnixListener::from_std(listener)?;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let socket: socket::Socket = Box::pin(stream);
                        take(
                            dispatcher,
                            ready(Ok((socket, false))),
                            None,
                            handshake_limit.as_ref(),
                        );
                    }
                    Err(error) => crate::server::pause(&error).await,
                }
            }
        }
    }
}

/// Serves a connection, once it is known what is spoken on it.
fn take(
    dispatcher: &Rc<RefCell<Dispatcher>>,
    socket: impl Future<Output = io::Result<(socket::Socket, bool)>> + 'static,
    from: Option<IpAddr>,
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
            socket = socket => socket,
            () = crate::server::evicted(handshake_permit.as_ref()) => return,
        };
        match socket {
            Ok(socket) => connection::run(dispatcher, socket, from, handshake_permit).await,
            Err(error) => tracing::debug!(%error, "a connection came to nothing"),
        }
    });
}
