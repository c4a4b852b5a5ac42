//! Client of a metaserver: the metaserver names a server for each call, and the call goes there directly.
//!
//! ```no_run
//! use kumi_call_client::{Grid, Options};
//!
//! let grid = Grid::connect("meta:7071", &Options::default())?;
//! let (a, b, mut c) = ([1.0; 4], [2.0; 4], [0.0; 4]);
//! grid.call("dmmul", vec![2.into(), a.as_slice().into(), b.as_slice().into(), c.as_mut_slice().into()])?;
//! # Ok::<(), kumi_call_client::CallError>(())
//! ```

pub(crate) mod held;
mod logs;
mod objects;
mod placement_queue;
pub(super) mod routed_call;
mod servers;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kumi_rpc::AttemptReport;

use super::arguments::{self, Arg};
use super::queries::ASK;
use super::routed_call::{Control, RoutedCall};
use super::{
    CallError, CallOutput, Client, KnownRoutine, Options, Outcome, Resources, context, locked,
};
pub use logs::{LogSource, LogSources, ServerIdentity, UnreachableSource};
#[cfg(feature = "transactions")]
pub(crate) use placement_queue::QueuedCall;
pub use placement_queue::{GridCall, GridCanceller};

/// How long a call waits for a metaserver that does not answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit for connecting to one of several metaservers.
const CONNECT: Duration = Duration::from_secs(3);
/// Pause before the next attempt to reach a metaserver for running calls.
const AGAIN: Duration = Duration::from_secs(1);
/// Most reports that wait for a metaserver; further ones are dropped.
const MOST_REPORTS: usize = 10_000;
/// A connection to a metaserver, and to the servers that it names. Threads may share it; their calls run at
/// the same time.
#[derive(Debug, Clone)]
pub struct Grid {
    pub(crate) inner: Arc<Inner>,
    priority: u8,
    /// Where the output of routines goes.
    output: Option<CallOutput>,
    /// What calls ask for.
    resources: Option<Resources>,
}

/// State that all calls share.
#[derive(Debug)]
pub struct Inner {
    addresses: Vec<String>,
    options: Options,
    /// The connection, and the index of the address to try next.
    meta: Mutex<(Option<Client>, usize)>,
    /// Held by the thread that connects.
    connecting: Mutex<()>,
    servers: Mutex<HashMap<String, Client>>,
    /// The servers that are being connected.
    opening: servers::Opening,
    /// Random identity of this client.
    key: u64,
    calls: AtomicU64,
    /// Reports that could not be sent yet.
    reports: Mutex<Vec<AttemptReport>>,
    waiting: Mutex<placement_queue::PlacementQueue>,
    /// Whether a thread looks for a metaserver.
    looking: AtomicBool,
}

/// A random number that nobody can guess: who knows it could claim this client's calls.
fn random_key() -> Result<u64, CallError> {
    Ok(u64::from_le_bytes(crate::random_bytes()?))
}

/// The addresses of a list that commas separate.
pub(super) fn each(addresses: &str) -> impl Iterator<Item = &str> {
    addresses.split(',').map(str::trim).filter(|address| !address.is_empty())
}

/// Connects to a metaserver, or to the leader that it names.
fn leading(address: &str, options: &Options) -> Result<Client, CallError> {
    match Client::connect(address, options) {
        Err(CallError::NotLeading { leader }) if !leader.is_empty() => {
            let scheme = address.find("://").map_or("", |at| &address[..at + 3]);
            let bare = leader.split_once("://").map_or(leader.as_str(), |(_, bare)| bare);
            // A secured connection never falls back to an open one.
            Client::connect(&format!("{scheme}{bare}"), options)
        }
        other => other,
    }
}

impl Grid {
    /// Connects to the first metaserver that answers. Addresses are `HOST:PORT`, `tls://HOST:PORT` or
    /// `unix:PATH`, separated by commas.
    ///
    /// # Errors
    /// [`CallError`]: no address can be reached, none accepts this client, or it is not a metaserver.
    pub fn connect(addresses: &str, options: &Options) -> Result<Grid, CallError> {
        let inner = Inner {
            addresses: each(addresses).map(str::to_owned).collect(),
            options: options.clone(),
            meta: Mutex::default(),
            connecting: Mutex::default(),
            servers: Mutex::default(),
            opening: servers::Opening::default(),
            key: random_key()?,
            calls: AtomicU64::new(0),
            reports: Mutex::default(),
            waiting: Mutex::default(),
            looking: AtomicBool::new(false),
        };
        match inner.connect_once() {
            // Another thread is about to.
            Err(CallError::NotLeading { .. }) => inner.metaserver(Some(options.connect_time))?,
            other => other?,
        };
        Ok(Grid { inner: Arc::new(inner), priority: 0, output: None, resources: None })
    }

    /// The same connections with this priority for calls, 0 (as [`Grid::connect`] gives) to 9. The priority
    /// orders the calls of one user. The metaserver lowers it to the user's maximum.
    #[must_use]
    pub fn with_priority(&self, priority: u8) -> Grid {
        Grid { priority, ..self.clone() }
    }

    /// The same connections, whose calls send what their routines print to this receiver. It gets the output of each
    /// attempt. Objects do not, and nothing comes from servers of earlier versions.
    #[must_use]
    pub fn with_output(&self, output: &CallOutput) -> Grid {
        Grid { output: Some(output.clone()), ..self.clone() }
    }

    /// The same connections, whose calls and objects ask for these resources, as [`Client::with_resources`] has it. A call that a
    /// server refuses for them goes to the next one.
    #[must_use]
    pub fn with_resources(&self, resources: Resources) -> Grid {
        Grid { resources: Some(resources), ..self.clone() }
    }

    /// The metaserver's name.
    #[must_use]
    pub fn server(&self) -> String {
        locked(&self.inner.meta).0.as_ref().map_or_else(String::new, |it| it.server().to_owned())
    }

    /// Names of routines that contain `part`.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn names(&self, part: &str) -> Result<Vec<String>, CallError> {
        self.inner.ask(|meta, until| meta.names_until(part, until))
    }

    /// The description of a routine. The client asks for it once.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn interface(&self, name: &str) -> Result<Arc<KnownRoutine>, CallError> {
        self.inner.ask(|meta, until| meta.interface_until(name, until))
    }

    /// The metaserver's state.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn status(&self) -> Result<crate::state::State, CallError> {
        let json = self.inner.ask(Client::status_until)?;
        serde_json::from_str(&json).map_err(|error| CallError::Server(error.to_string()))
    }

    /// [`super::Client::call`] on the server that the metaserver chooses. This thread runs the callbacks.
    /// After a callback has run, the call moves to no other server, unless its routine is idempotent.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Attempts`] if the call failed on several servers.
    pub fn call(&self, routine: &str, args: Vec<Arg<'_>>) -> Result<Outcome, CallError> {
        self.call_within(routine, args, None)
    }

    /// [`Grid::call`] with a time limit that includes waiting.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call_within(
        &self,
        routine: &str,
        args: Vec<Arg<'_>>,
        time: Option<Duration>,
    ) -> Result<Outcome, CallError> {
        self.routed_call(routine, args, time)?.run(&Control::default(), &|| false)
    }

    /// Begins a call. The arrays of its arguments and results are lent until the call or its handle ends,
    /// because they are sent when a server is found. The thread that waits for the call runs its callbacks.
    ///
    /// # Errors
    /// [`CallError`]. Nothing is sent if the arguments do not fit.
    pub fn call_async(
        &self,
        routine: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
    ) -> Result<GridCall, CallError> {
        self.inner.wait_for_place(self.routed_call(routine, args, time)?)
    }

    fn routed_call<'a>(
        &self,
        routine: &str,
        mut args: Vec<Arg<'a>>,
        time: Option<Duration>,
    ) -> Result<RoutedCall<'a>, CallError> {
        let time = context::limit(time, routine)?;
        let known = self.interface(routine)?;
        let (bound, kept) = held::resolve(self.inner.key, &known, &mut args)?;
        let most = i64::MAX.unsigned_abs();
        let (checked, functions) = arguments::check(&known.interface, args, most)?;
        let files =
            checked.files.sent.iter().fold(0_u64, |sum, (.., bytes)| sum.saturating_add(*bytes));
        let bytes = (checked.plan.sent.saturating_add(files), checked.plan.returned);
        let mut routed_call = self.route(&known, bytes, checked.plan.operations);
        routed_call.checked = Some(checked);
        routed_call.functions = functions;
        routed_call.hold(bound, kept);
        routed_call.output.clone_from(&self.output);
        routed_call.deadline = time.and_then(|time| Instant::now().checked_add(time));
        Ok(routed_call)
    }
}

impl Inner {
    /// The connection to the metaserver, renewed within this time if it was lost.
    pub fn metaserver(&self, left: Option<Duration>) -> Result<Client, CallError> {
        let until = Instant::now() + left.map_or(PATIENCE, |left| left.min(PATIENCE));
        let mut pause = Duration::from_millis(20);
        loop {
            match self.connect_once() {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() + pause >= until => return Err(error),
                Err(error) if Inner::is_final(&error) => return Err(error),
                Err(_) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            }
        }
    }

    /// Whether another attempt to connect would be useless.
    fn is_final(error: &CallError) -> bool {
        use CallError::{Address, Expired, NotMetaserver, NotPermitted};
        matches!(error, NotPermitted(_) | Expired(_) | Address(_) | NotMetaserver(_))
    }

    fn connect_once(&self) -> Result<Client, CallError> {
        let turn = locked(&self.connecting);
        let (client, first) = locked(&self.meta).clone();
        if let Some(client) = client {
            return Ok(client);
        }
        let mut options = self.options.clone();
        if self.addresses.len() > 1 {
            options.connect_time = options.connect_time.min(CONNECT);
        }
        let mut last = CallError::Address(self.addresses.join(","));
        for next in 0..self.addresses.len() {
            let at = (first + next) % self.addresses.len();
            let address = &self.addresses[at];
            match leading(address, &options) {
                Ok(client) if client.is_metaserver() => {
                    *locked(&self.meta) = (Some(client.clone()), at);
                    drop(turn);
                    self.catch_up(&client);
                    return Ok(client);
                }
                Ok(_) => {
                    last = CallError::NotMetaserver(address.clone());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends the reports that could not be sent before.
    fn catch_up(&self, client: &Client) {
        for over in std::mem::take(&mut *locked(&self.reports)) {
            // If this connection is lost too, the metaserver learns it from the server.
            let _lost = client.link.over(0, &over);
        }
    }

    /// Keeps a report that no metaserver could receive.
    pub fn report_later(inner: &Arc<Inner>, over: AttemptReport) {
        let mut reports = locked(&inner.reports);
        if reports.len() >= MOST_REPORTS {
            return;
        }
        reports.push(over);
        if reports.len() == 1 {
            // The caller gets its result without waiting for a metaserver.
            let inner = Arc::clone(inner);
            std::thread::spawn(move || {
                if let Ok(meta) = inner.metaserver(None) {
                    inner.catch_up(&meta);
                }
            });
        }
    }

    /// The connection to the metaserver if there is one. Otherwise a thread begins to look for one.
    pub fn at_hand(inner: &Arc<Inner>) -> Option<Client> {
        let meta = locked(&inner.meta).0.clone();
        if meta.is_none() && !inner.looking.swap(true, Ordering::AcqRel) {
            let inner = Arc::clone(inner);
            std::thread::spawn(move || {
                // The next attempt waits: some metaservers refuse at once.
                if inner.metaserver(None).is_err() {
                    std::thread::sleep(AGAIN);
                }
                inner.looking.store(false, Ordering::Release);
            });
        }
        meta
    }

    /// Drops a broken connection to a metaserver, for all calls that asked on it.
    pub fn lost(&self, client: &Client) {
        client.link.end("another metaserver is asked");
        let mut meta = locked(&self.meta);
        if meta.0.as_ref().is_some_and(|now| Arc::ptr_eq(&now.link, &client.link)) {
            meta.0 = None;
            meta.1 = (meta.1 + 1) % self.addresses.len().max(1);
        }
    }

    /// Asks the metaserver, or the next one if the connection is lost or the question fails.
    fn ask<T>(
        &self,
        ask: impl Fn(&Client, Option<Instant>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let until = Instant::now() + ASK;
        let mut tries = 0;
        loop {
            let meta = self.metaserver(Some(until.saturating_duration_since(Instant::now())))?;
            let error = match ask(&meta, Some(until)) {
                Err(error @ (CallError::Lost(_) | CallError::TimedOut(_))) => error,
                other => return other,
            };
            self.lost(&meta);
            tries += 1;
            if tries > 3 || Instant::now() >= until {
                return Err(error);
            }
        }
    }

    /// Whether there is a connection to this server.
    #[cfg(feature = "transactions")]
    pub fn is_connected(&self, address: &str) -> bool {
        locked(&self.servers).contains_key(address)
    }

    /// Drops a connection to a server if this error says that it is broken.
    pub fn forget_server(&self, address: &str, client: &Client, error: &CallError) {
        // A connection that was opened with an expired pass is opened again with the next pass.
        let of_no_use = matches!(error, CallError::Lost(_) | CallError::NoServer { .. });
        if of_no_use || client.link.is_broken() {
            self.remove_server(address, client);
        }
    }

    /// Drops a connection to a server, for the calls that follow.
    pub fn remove_server(&self, address: &str, client: &Client) {
        let mut servers = locked(&self.servers);
        if servers.get(address).is_some_and(|now| Arc::ptr_eq(&now.link, &client.link)) {
            servers.remove(address);
        }
    }
}
