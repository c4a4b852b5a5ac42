//! Calls through a metaserver: it says which server, and the call goes there directly.
//!
//! ```no_run
//! use kumi_call::{Grid, Options};
//!
//! let grid = Grid::connect("meta:7071", &Options::default())?;
//! let (a, b, mut c) = ([1.0; 4], [2.0; 4], [0.0; 4]);
//! grid.call("dmmul", vec![2.into(), a.as_slice().into(), b.as_slice().into(), c.as_mut_slice().into()])?;
//! # Ok::<(), kumi_call::CallError>(())
//! ```

pub(crate) mod apart;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kumi_rpc::{Over, Placed};

use super::arguments::{self, Arg};
use super::errand::{Control, Errand};
use super::link::Link;
use super::{CallError, Client, Known, Options, Outcome};

/// How long a metaserver that does not answer is looked for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one may take to be connected to when there may be another.
const CONNECT: Duration = Duration::from_secs(3);
/// Reports that wait for a metaserver; more are left out.
const MOST_REPORTS: usize = 10_000;
/// How long a thread that waits for places waits at a time.
const WATCH: Duration = Duration::from_millis(250);

/// A connection to a metaserver, and to the servers that it names. Threads may share it; their calls run at
/// the same time.
#[derive(Debug, Clone)]
pub struct Grid {
    inner: Arc<Inner>,
    priority: u8,
}

/// What all calls share.
#[derive(Debug)]
pub struct Inner {
    addresses: Vec<String>,
    options: Options,
    /// The connection, and which of the addresses is tried next.
    meta: Mutex<(Option<Client>, usize)>,
    servers: Mutex<HashMap<String, Client>>,
    /// Random: who this is.
    key: u64,
    calls: AtomicU64,
    /// What could not be told yet.
    reports: Mutex<Vec<Over>>,
    waiting: Mutex<Waiting>,
}

/// A connection, by its address in memory, and a stream of it: streams of each begin anew.
type Place = (usize, u32);

/// Calls without a thread, which wait for a place.
#[derive(Debug, Default)]
struct Waiting {
    errands: HashMap<Place, Job>,
    /// A thread waits for them.
    watched: bool,
}

#[derive(Debug)]
struct Job {
    errand: Errand,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    control: Control,
    result: Mutex<Option<Result<Outcome, CallError>>>,
    over: Condvar,
    taken: Mutex<bool>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that nobody guesses.
fn random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

impl Grid {
    /// Connects to the first of these metaservers that answers: `HOST:PORT` or `unix:PATH`, separated by commas.
    ///
    /// # Errors
    /// [`CallError`]: none can be reached, or takes this client; or it is no metaserver.
    pub fn connect(addresses: &str, options: &Options) -> Result<Grid, CallError> {
        let addresses: Vec<String> = addresses
            .split(',')
            .map(str::trim)
            .filter(|address| !address.is_empty())
            .map(str::to_owned)
            .collect();
        let inner = Inner {
            addresses,
            options: options.clone(),
            meta: Mutex::new((None, 0)),
            servers: Mutex::default(),
            key: random(),
            calls: AtomicU64::new(0),
            reports: Mutex::default(),
            waiting: Mutex::default(),
        };
        inner.connect_once()?;
        Ok(Grid { inner: Arc::new(inner), priority: 0 })
    }

    /// The same connections, for calls of this priority: 0 (that of [`Grid::connect`]) to 9. It orders the calls of a user;
    /// the metaserver lowers it to what it allows the user.
    #[must_use]
    pub fn with_priority(&self, priority: u8) -> Grid {
        Grid { inner: Arc::clone(&self.inner), priority }
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
        self.inner.ask(|meta| meta.names(part))
    }

    /// A routine's description; asked for once.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn interface(&self, name: &str) -> Result<Arc<Known>, CallError> {
        self.inner.ask(|meta| meta.interface(name))
    }

    /// The metaserver's state.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn status(&self) -> Result<crate::meta::State, CallError> {
        let json = self.inner.ask(Client::status_json)?;
        serde_json::from_str(&json).map_err(|error| CallError::Server(error.to_string()))
    }

    /// [`super::Client::call`], on the server that the metaserver chooses.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Attempts`] if it failed on several.
    pub fn call(&self, routine: &str, args: Vec<Arg<'_>>) -> Result<Outcome, CallError> {
        self.call_within(routine, args, None)
    }

    /// [`Grid::call`], in at most so much time, waiting included.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call_within(
        &self,
        routine: &str,
        args: Vec<Arg<'_>>,
        time: Option<Duration>,
    ) -> Result<Outcome, CallError> {
        self.errand(routine, args, time)?.run(&Control::default(), &|| false)
    }

    /// Begins a call. The arrays of its arguments and results are lent until the call's end or that of the
    /// handle: they are sent when a server has been found.
    ///
    /// # Errors
    /// [`CallError`]; of arguments that do not fit nothing is sent.
    pub fn call_async(
        &self,
        routine: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
    ) -> Result<GridCall, CallError> {
        let mut errand = self.errand(routine, args, time)?;
        let shared = Arc::new(Shared::default());
        let handle = GridCall { shared: Arc::clone(&shared), grid: Arc::clone(&self.inner) };
        let mut waiting = locked(&self.inner.waiting);
        errand.seek(true)?;
        waiting.insert(Job { errand, shared });
        if !std::mem::replace(&mut waiting.watched, true) {
            let inner = Arc::clone(&self.inner);
            std::thread::spawn(move || inner.watch());
        }
        Ok(handle)
    }

    fn errand(
        &self,
        routine: &str,
        args: Vec<Arg<'_>>,
        time: Option<Duration>,
    ) -> Result<Errand, CallError> {
        let known = self.interface(routine)?;
        let most = i64::MAX.unsigned_abs();
        let (checked, functions) = arguments::check(&known.interface, args, most)?;
        if !functions.is_empty() {
            // It would be called by a routine on one server after it was by another, and who waits may be another thread.
            let text = "takes functions, which only a connection to a server (`Client`) can call";
            return Err(CallError::Argument { routine: routine.to_owned(), text: text.to_owned() });
        }
        let files =
            checked.files.sent.iter().fold(0_u64, |sum, (.., bytes)| sum.saturating_add(*bytes));
        let bytes = (checked.plan.sent.saturating_add(files), checked.plan.returned);
        let placing = self.placing(&known, bytes, checked.plan.operations.unwrap_or(f64::NAN));
        Ok(Errand {
            inner: Arc::clone(&self.inner),
            known,
            placing,
            checked: Some(checked),
            deadline: time.and_then(|time| Instant::now().checked_add(time)),
            seeking: None,
            tried: Vec::new(),
            last: None,
            has_run: false,
        })
    }
}

impl Inner {
    /// The connection to the metaserver, made anew if it was lost, within so much time.
    pub fn metaserver(&self, left: Option<Duration>) -> Result<Client, CallError> {
        let until = Instant::now() + left.map_or(PATIENCE, |left| left.min(PATIENCE));
        let mut pause = Duration::from_millis(20);
        loop {
            match self.connect_once() {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() + pause >= until => return Err(error),
                Err(
                    error @ (CallError::NotPermitted(_)
                    | CallError::Expired(_)
                    | CallError::Address(_)),
                ) => {
                    return Err(error);
                }
                Err(_) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            }
        }
    }

    fn connect_once(&self) -> Result<Client, CallError> {
        let mut meta = locked(&self.meta);
        if let Some(client) = &meta.0 {
            return Ok(client.clone());
        }
        let mut options = self.options.clone();
        if self.addresses.len() > 1 {
            options.connect_time = options.connect_time.min(CONNECT);
        }
        let mut last = CallError::Address(self.addresses.join(","));
        for turn in 0..self.addresses.len() {
            let at = (meta.1 + turn) % self.addresses.len();
            let address = &self.addresses[at];
            match Client::connect(address, &options) {
                Ok(client) if client.is_metaserver() => {
                    meta.1 = at;
                    meta.0 = Some(client.clone());
                    drop(meta);
                    self.catch_up(&client);
                    return Ok(client);
                }
                Ok(_) => last = CallError::Address(format!("{address} (a server, no metaserver)")),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Reports what could not be reported before.
    fn catch_up(&self, client: &Client) {
        for over in std::mem::take(&mut *locked(&self.reports)) {
            // If it is lost again the metaserver finds out from the server.
            let _lost = client.link.over(0, &over);
        }
    }

    /// How an attempt went, which no metaserver could be told.
    pub fn report_later(inner: &Arc<Inner>, over: Over) {
        let mut reports = locked(&inner.reports);
        if reports.len() >= MOST_REPORTS {
            return;
        }
        reports.push(over);
        if reports.len() == 1 {
            // Whoever waits for the call's result need not wait for a metaserver.
            let inner = Arc::clone(inner);
            std::thread::spawn(move || {
                if let Ok(meta) = inner.metaserver(None) {
                    inner.catch_up(&meta);
                }
            });
        }
    }

    /// A connection to a metaserver is of no use any more.
    pub fn lost(&self, client: &Client) {
        let mut meta = locked(&self.meta);
        if meta.0.as_ref().is_some_and(|now| Arc::ptr_eq(&now.link, &client.link)) {
            meta.0 = None;
            meta.1 = (meta.1 + 1) % self.addresses.len().max(1);
        }
    }

    /// Asks the metaserver, and the next one if the connection is lost.
    fn ask<T>(&self, ask: impl Fn(&Client) -> Result<T, CallError>) -> Result<T, CallError> {
        let mut tries = 0;
        loop {
            let meta = self.metaserver(None)?;
            match ask(&meta) {
                Err(CallError::Lost(why)) => {
                    self.lost(&meta);
                    tries += 1;
                    if tries > 3 {
                        return Err(CallError::Lost(why));
                    }
                }
                other => return other,
            }
        }
    }

    /// A connection to a server, which others may have made.
    pub fn server(&self, placed: &Placed) -> Result<Client, CallError> {
        let address = placed.address.as_str();
        if let Some(client) = locked(&self.servers).get(address) {
            return Ok(client.clone());
        }
        // Without the lock: one that does not answer is no other's business.
        let client = self.connect_server(placed)?;
        let mut servers = locked(&self.servers);
        Ok(servers.entry(address.to_owned()).or_insert(client).clone())
    }

    /// A connection to a server is of no use any more, if this error says so.
    pub fn forget_server(&self, address: &str, client: &Client, error: &CallError) {
        // One that was opened with a pass which is not good any more is opened anew with the next.
        let of_no_use = matches!(error, CallError::Lost(_) | CallError::NoServer { .. });
        if !of_no_use && !client.link.is_broken() {
            return;
        }
        let mut servers = locked(&self.servers);
        if servers.get(address).is_some_and(|now| Arc::ptr_eq(&now.link, &client.link)) {
            servers.remove(address);
        }
    }

    /// Waits for places, as long as calls without a thread do; each that has one gets a thread.
    fn watch(self: Arc<Inner>) {
        loop {
            // Not waited for with the lock: others need it to ask.
            let meta = locked(&self.meta).0.clone();
            let ready = match &meta {
                Some(meta) => meta.link.next_ready(Instant::now() + WATCH),
                None => Err(CallError::Lost(String::new())),
            };
            let mut waiting = locked(&self.waiting);
            let mut begin = Vec::new();
            if let (Some(meta), Ok(Some(stream))) = (&meta, &ready) {
                begin.extend(waiting.errands.remove(&place(&meta.link, *stream)));
            }
            // Each asks again whose connection was lost; another may have made the present one.
            if ready.is_err() || waiting.errands.values().any(Job::is_lost) {
                self.seek_again(&mut waiting, &mut begin);
            }
            if waiting.errands.is_empty() {
                waiting.watched = false;
            }
            let over = !waiting.watched;
            drop(waiting);
            for job in begin {
                std::thread::spawn(move || job.run());
            }
            if over {
                return;
            }
        }
    }

    /// The connection was lost: what waits is asked for on the next.
    fn seek_again(&self, waiting: &mut Waiting, failed: &mut Vec<Job>) {
        let mut unreachable = None;
        for (at, mut job) in std::mem::take(&mut waiting.errands) {
            if !job.is_lost() {
                waiting.errands.insert(at, job);
                continue;
            }
            if let Some(why) = &unreachable {
                job.end(Err(CallError::Lost(String::clone(why))));
                continue;
            }
            if let Some((meta, _)) = job.errand.seeking.take() {
                self.lost(&meta);
            }
            match job.errand.seek(true) {
                Ok(()) => waiting.insert(job),
                Err(error @ CallError::Connect { .. }) => {
                    let why = error.to_string();
                    job.end(Err(error));
                    unreachable = Some(why);
                }
                // Its thread finds out why.
                Err(_) => failed.push(job),
            }
        }
    }
}

fn place(link: &Arc<Link>, stream: u32) -> Place {
    (Arc::as_ptr(link).addr(), stream)
}

impl Waiting {
    /// A job that has asked where to go.
    fn insert(&mut self, job: Job) {
        let at = job
            .errand
            .seeking
            .as_ref()
            .map_or((0, 0), |(meta, ticket)| place(&meta.link, ticket.stream));
        self.errands.insert(at, job);
    }
}

impl Job {
    /// Whether the connection is of no use any more on which it has asked.
    fn is_lost(&self) -> bool {
        self.errand.seeking.as_ref().is_none_or(|(meta, _)| meta.link.is_broken())
    }

    /// Tells the result, when nothing of the call is used any more.
    fn end(self, result: Result<Outcome, CallError>) {
        let Job { errand, shared } = self;
        drop(errand);
        *locked(&shared.result) = Some(result);
        shared.over.notify_all();
    }

    fn run(mut self) {
        let result = self.errand.run(&self.shared.control, &|| false);
        self.end(result);
    }
}

/// A call that is under way. When it is dropped before its end it is cancelled.
#[derive(Debug)]
pub struct GridCall {
    shared: Arc<Shared>,
    grid: Arc<Inner>,
}

/// Ends a call from wherever; it may outlive the call.
#[derive(Debug, Clone)]
pub struct GridCanceller {
    shared: Arc<Shared>,
    grid: Arc<Inner>,
}

impl GridCanceller {
    /// Asks for the end of the call, which is waited for as ever.
    pub fn cancel(&self) {
        self.shared.control.cancel();
        let waiting = &mut locked(&self.grid.waiting).errands;
        let mine = waiting
            .iter()
            .find(|(_, job)| Arc::ptr_eq(&job.shared, &self.shared))
            .map(|(at, _)| *at);
        let Some(job) = mine.and_then(|at| waiting.remove(&at)) else { return };
        let name = job.errand.known.interface.name.clone();
        let text = format!("the call of `{name}` was cancelled");
        // With its stream goes its place in the queue.
        job.end(Err(CallError::Cancelled(text)));
    }
}

impl GridCall {
    /// Waits for its end; `interrupted` is asked now and then.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Outcome, CallError> {
        loop {
            if let Some(outcome) = self.wait_for(Duration::from_secs(3600), interrupted)? {
                return Ok(outcome);
            }
        }
    }

    /// Waits for at most so long; `None`: it is not over, and may be waited for again.
    ///
    /// # Errors
    /// [`CallError`]. The end is told once; later it was told already.
    pub fn wait_for(
        &mut self,
        time: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Outcome>, CallError> {
        let until = Instant::now().checked_add(time);
        let mut result = locked(&self.shared.result);
        loop {
            if let Some(result) = result.take() {
                *locked(&self.shared.taken) = true;
                return result.map(Some);
            }
            if *locked(&self.shared.taken) {
                let text = "the end of this call was told already".to_owned();
                return Err(CallError::Server(text));
            }
            if interrupted() {
                return Err(CallError::Interrupted);
            }
            let left =
                until.map_or(Duration::MAX, |it| it.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            let slice = left.min(Duration::from_millis(100));
            let waited = self.shared.over.wait_timeout(result, slice);
            result = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether its end has come; does not wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        locked(&self.shared.result).is_some() || *locked(&self.shared.taken)
    }

    /// Asks for its end, which is waited for as ever.
    pub fn cancel(&self) {
        self.canceller().cancel();
    }

    /// What ends it while another thread waits for it.
    #[must_use]
    pub fn canceller(&self) -> GridCanceller {
        GridCanceller { shared: Arc::clone(&self.shared), grid: Arc::clone(&self.grid) }
    }
}

impl Drop for GridCall {
    fn drop(&mut self) {
        if self.is_over() {
            return;
        }
        self.cancel();
        // Whoever reads or writes the caller's memory is done then, and nobody begins.
        drop(locked(&self.shared.control.lent));
    }
}
