//! Metaserver state in etcd. The part that is read again is in memory too. One task writes all pending
//! changes in batches.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::pending;
use std::rc::Rc;
use std::time::{Duration, Instant};

use kumi_etcd::api::{self, Change};
use kumi_etcd::{EtcdError, Gateway, Leadership, OrderedWrites, Session};
use lru::LruCache;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until, timeout};

use crate::paths::Estimate;
use crate::store::{MOST_WINDOWS, PlacedCall, Store, StoreError, WINDOW};

/// Most changes in a transaction; etcd's own limit is 128.
const MOST_CHANGES: usize = 100;
/// How long times and paths may wait for the write.
const SOON: Duration = Duration::from_secs(1);
/// Pause before a failed write is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

type Changes = BTreeMap<String, Option<Vec<u8>>>;

/// State that the store and its writer share.
#[derive(Debug, Default)]
struct Shared {
    /// Calls and owners of servers: written at once.
    calls: RefCell<Changes>,
    /// Times and paths: written soon.
    others: RefCell<Changes>,
    noted: Cell<u64>,
    kept: Cell<u64>,
    /// Something was noted, or everything is to be written now.
    wake: Notify,
    /// Something was written.
    news: Notify,
    ending: Cell<bool>,
    drained: Cell<bool>,
}

/// The latest times of a routine on a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredWindow {
    identity: String,
    routine: String,
    /// Sizes and seconds.
    times: VecDeque<(f64, f64)>,
}

/// A path.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredPath {
    from: String,
    to: String,
    #[serde(flatten)]
    estimate: Estimate,
}

/// The owner of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredOwner {
    identity: String,
    user: String,
}

/// The state.
#[derive(Debug)]
pub struct EtcdStore {
    shared: Rc<Shared>,
    leadership: Rc<Leadership>,
    prefix: String,
    calls: Vec<PlacedCall>,
    /// Those that were added to the longest ago are forgotten first.
    windows: LruCache<String, StoredWindow>,
    /// In the order in which they were measured.
    paths: LruCache<String, StoredPath>,
    owners: HashMap<String, StoredOwner>,
}

/// The task that writes.
pub struct Writer {
    shared: Rc<Shared>,
    leadership: Rc<Leadership>,
    gateway: Gateway,
    writes: OrderedWrites,
}

/// Waits for writes.
#[derive(Debug, Clone)]
pub struct WriteWatch(Rc<Shared>);

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    // Numbers and texts always serialise.
    serde_json::to_vec(value).unwrap_or_default()
}

/// A short key for names of any content.
fn named(one: &str, other: &str) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(&(one.len() as u64).to_le_bytes()).update(one.as_bytes()).update(other.as_bytes());
    hash.finalize().to_hex()[..32].to_owned()
}

/// The values below a prefix in the order in which they were written, with their keys. Those that are not `what` are left out.
async fn in_order<T: DeserializeOwned>(
    gateway: &mut Gateway,
    prefix: &str,
    what: &str,
) -> Result<Vec<(String, T)>, EtcdError> {
    let mut pairs = api::all(gateway, prefix).await?;
    pairs.sort_by_key(|pair| pair.changed);
    let value = |pair: api::Pair| match serde_json::from_slice(&pair.value) {
        Ok(value) => Some((pair.key, value)),
        Err(error) => {
            tracing::warn!(key = pair.key, %error, "not {what}");
            None
        }
    };
    Ok(pairs.into_iter().filter_map(value).collect())
}

impl EtcdStore {
    /// Reads the state. Earlier leaders can no longer write.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn open(session: &Session) -> Result<(EtcdStore, Writer), EtcdError> {
        let mut gateway = session.gateway()?;
        let prefix = session.prefix().to_owned();
        let mut calls = Vec::new();
        for pair in api::all(&mut gateway, &format!("{prefix}/calls/")).await? {
            let call = serde_json::from_slice(&pair.value);
            // Without this call's record, the call might run twice.
            calls.push(call.map_err(|_| EtcdError::Content(pair.key))?);
        }
        let (shared, leadership) = (Rc::<Shared>::default(), Rc::clone(session.leadership()));
        let mut kept = EtcdStore {
            shared: Rc::clone(&shared),
            leadership: Rc::clone(&leadership),
            prefix,
            calls,
            windows: LruCache::unbounded(),
            paths: LruCache::unbounded(),
            owners: HashMap::new(),
        };
        kept.read_rest(&mut gateway).await?;
        let writes = OrderedWrites::new(session.guard.clone())?;
        Ok((kept, Writer { shared, leadership, gateway, writes }))
    }

    async fn read_rest(&mut self, gateway: &mut Gateway) -> Result<(), EtcdError> {
        let prefix = format!("{}/times/", self.prefix);
        for (key, window) in in_order(gateway, &prefix, "a routine's times").await? {
            self.windows.put(key, window);
        }
        let prefix = format!("{}/paths/", self.prefix);
        for (key, path) in in_order(gateway, &prefix, "a path").await? {
            self.paths.put(key, path);
        }
        for pair in api::all(gateway, &format!("{}/owners/", self.prefix)).await? {
            // Without the owner, another user's server might get the calls.
            let owner = serde_json::from_slice(&pair.value);
            let owner = owner.map_err(|_| EtcdError::Content(pair.key.clone()))?;
            self.owners.insert(pair.key, owner);
        }
        Ok(())
    }

    /// For the task that tells clients their places.
    pub fn watch(&self) -> WriteWatch {
        WriteWatch(Rc::clone(&self.shared))
    }

    fn note_call(&self, call: u64, value: Option<Vec<u8>>) {
        self.note_now(format!("{}/calls/{call:016x}", self.prefix), value);
    }

    fn note_now(&self, key: String, value: Option<Vec<u8>>) {
        let shared = &self.shared;
        // Replaces an earlier change of the same key.
        shared.calls.borrow_mut().insert(key, value);
        shared.noted.set(shared.noted.get() + 1);
        shared.wake.notify_one();
    }

    fn note(&self, key: &str, value: Option<Vec<u8>>) {
        self.shared.others.borrow_mut().insert(key.to_owned(), value);
        self.shared.wake.notify_one();
    }
}

impl Store for EtcdStore {
    fn placed(&mut self, call: &PlacedCall) {
        self.note_call(call.ticket.call, Some(json(call)));
    }

    fn over(&mut self, call: u64) {
        self.note_call(call, None);
    }

    fn took(&mut self, identity: &str, routine: &str, size: f64, seconds: f64) {
        if !size.is_finite() || !seconds.is_finite() {
            return;
        }
        let key = format!("{}/times/{}", self.prefix, named(identity, routine));
        let new = || StoredWindow {
            identity: identity.to_owned(),
            routine: routine.to_owned(),
            times: VecDeque::new(),
        };
        let window = self.windows.get_or_insert_mut(key.clone(), new);
        window.times.push_back((size, seconds));
        while window.times.len() > WINDOW {
            window.times.pop_front();
        }
        let value = json(window);
        self.note(&key, Some(value));
        if self.windows.len() > MOST_WINDOWS
            && let Some((oldest, _)) = self.windows.pop_lru()
        {
            self.note(&oldest, None);
        }
    }

    fn path(&mut self, from: &str, to: &str, estimate: Option<&Estimate>) {
        let key = format!("{}/paths/{}", self.prefix, named(from, to));
        let Some(&estimate) = estimate else {
            self.note(&key, None);
            self.paths.pop(&key);
            return;
        };
        if !estimate.is_finite() {
            return;
        }
        let path = StoredPath { from: from.to_owned(), to: to.to_owned(), estimate };
        self.note(&key, Some(json(&path)));
        self.paths.put(key, path);
    }

    fn owner(&mut self, identity: &str, user: Option<&str>) {
        let key = format!("{}/owners/{}", self.prefix, named(identity, ""));
        let owner =
            user.map(|user| StoredOwner { identity: identity.to_owned(), user: user.to_owned() });
        self.note_now(key.clone(), owner.as_ref().map(json));
        match owner {
            Some(owner) => drop(self.owners.insert(key, owner)),
            None => drop(self.owners.remove(&key)),
        }
    }

    fn noted(&self) -> u64 {
        self.shared.noted.get()
    }

    fn kept(&self) -> u64 {
        self.shared.kept.get()
    }

    fn trouble(&self) -> Option<String> {
        self.leadership.figures.long_trouble()
    }

    fn calls(&self) -> Result<Vec<PlacedCall>, StoreError> {
        Ok(self.calls.clone())
    }

    fn owners(&self) -> Result<Vec<(String, String)>, StoreError> {
        let owner = |owner: &StoredOwner| (owner.identity.clone(), owner.user.clone());
        Ok(self.owners.values().map(owner).collect())
    }

    fn times(&self, identity: &str) -> Result<Vec<(String, f64, f64)>, StoreError> {
        let of_server = self.windows.iter().filter(|(_, window)| window.identity == identity);
        let times = of_server.flat_map(|(_, window)| {
            window.times.iter().map(|(size, seconds)| (window.routine.clone(), *size, *seconds))
        });
        Ok(times.collect())
    }

    fn paths(&self) -> Result<Vec<(String, String, Estimate)>, StoreError> {
        let path =
            |(_, path): (&String, &StoredPath)| (path.from.clone(), path.to.clone(), path.estimate);
        // The first are those that were measured last.
        Ok(self.paths.iter().rev().map(path).collect())
    }
}

impl WriteWatch {
    /// Waits until something was written.
    pub async fn news(&self) {
        self.0.news.notified().await;
    }

    /// Waits until all notes are written, or for this long.
    pub async fn drain(&self, most: Duration) {
        self.0.ending.set(true);
        self.0.wake.notify_one();
        let drained = async {
            while !self.0.drained.get() {
                self.0.news.notified().await;
            }
        };
        if timeout(most, drained).await.is_err() {
            tracing::warn!("not all of the state is in etcd");
        }
    }
}

impl Writer {
    /// Writes what is noted until another leads.
    pub async fn run(mut self) {
        loop {
            let (kept, changes) = self.next().await;
            for some in changes.chunks(MOST_CHANGES) {
                if self.write(some).await.is_err() {
                    return;
                }
            }
            self.shared.kept.set(kept);
            self.shared.news.notify_one();
        }
    }

    /// Waits for changes. Returns them and the number of the last note in them.
    async fn next(&mut self) -> (u64, Vec<Change>) {
        let mut since = None;
        loop {
            let shared = &self.shared;
            let others = !shared.others.borrow().is_empty();
            let due = others.then(|| *since.get_or_insert_with(Instant::now) + SOON);
            let now = shared.ending.get() || due.is_some_and(|due| due <= Instant::now());
            let mut changes = std::mem::take(&mut *shared.calls.borrow_mut());
            if now {
                changes.append(&mut shared.others.borrow_mut());
            }
            if !changes.is_empty() {
                return (shared.noted.get(), changes.into_iter().collect());
            }
            if shared.ending.get() {
                shared.drained.set(true);
                shared.news.notify_one();
            }
            let soon = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = shared.wake.notified() => {}
                () = soon => {}
            }
        }
    }

    /// Writes until it succeeds.
    async fn write(&mut self, changes: &[Change]) -> Result<(), EtcdError> {
        let mut pause = AGAIN.0;
        loop {
            match self.writes.write(&mut self.gateway, changes).await {
                Ok(()) => {
                    self.leadership.figures.runs();
                    return Ok(());
                }
                Err(EtcdError::Deposed) => return Err(EtcdError::Deposed),
                Err(error) => {
                    if self.leadership.figures.trouble().is_none() {
                        tracing::error!(%error, "the state cannot be written; calls wait for it");
                    }
                    self.leadership.figures.stuck(error.to_string());
                    sleep(pause).await;
                    pause = (pause * 2).min(AGAIN.1);
                }
            }
        }
    }
}
