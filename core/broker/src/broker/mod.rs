//! The broker's state, and the dispatch of events: `servers` handles those of servers, `calls` those of calls, and `placement`
//! chooses servers.

mod calls;
mod placement;
mod servers;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;

use crate::fair_queue::{Entry, FairQueue};
use crate::history::History;
use crate::model::{
    Action, CallId, ClientId, Event, HeldInput, Outcome, ServerId, SiteId, Time, UserId,
};
use crate::network::Network;
use crate::policy::Policy;
use crate::server::{Routines, Server};

/// Limits of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most waiting calls; further ones are rejected.
    pub most_waiting: usize,
    /// Most waiting calls of a user.
    pub most_waiting_of_user: usize,
    /// Most attempts of a call; 0 counts as 1.
    pub most_attempts: u32,
    /// Nanoseconds for which calls wait when the last server of their routine is gone.
    pub patience: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            most_waiting: 100_000,
            most_waiting_of_user: 10_000,
            most_attempts: 4,
            patience: 60 * Time::SECOND,
        }
    }
}

/// Counters of the broker's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Decisions: searches for the server of a call.
    pub decisions: u64,
    /// Servers examined in all decisions.
    pub examined: u64,
    /// Most servers examined for one event.
    pub most_examined: u64,
    /// Attempts started.
    pub started: u64,
    /// Attempts after the first.
    pub retried: u64,
    /// Events about attempts and calls that were over already.
    pub stale: u64,
}

/// A call that is not over.
#[derive(Debug)]
struct Call {
    routine: u32,
    client: ClientId,
    user: UserId,
    site: SiteId,
    bytes_out: u64,
    bytes_back: u64,
    operations: Option<f64>,
    idempotent: bool,
    deadline: Option<Time>,
    held: Box<[HeldInput]>,
    /// The only server at which it may run.
    bound: Option<ServerId>,
    entry: Entry,
    attempts: u32,
    /// The next attempt costs a turn of its user, as the first does.
    costs_turn: bool,
    /// Its server; `None`: the call waits.
    server: Option<ServerId>,
    /// The server of its last failure. It goes there again only if no other server offers the routine.
    avoid: Option<ServerId>,
}

impl Call {
    /// The size on which its run time depends.
    fn size(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let bytes = self.bytes_out.saturating_add(self.bytes_back) as f64;
        self.operations.unwrap_or(bytes)
    }
}

#[derive(Debug)]
struct Routine {
    name: String,
    servers: BTreeSet<ServerId>,
    /// When its calls are rejected, if it has no server.
    given_up: Option<Time>,
}

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Deadline(CallId),
    /// No server has joined for this routine.
    GiveUp(u32),
    /// A call waits for a busy server although this group has a free one.
    Recheck(u32),
}

/// The scheduler of a metaserver.
///
/// Invariants:
/// - A server never has more calls than its limit, including calls that are over here but not yet there.
/// - A call starts again only if its server has reported that it did not begin, or if it is idempotent.
/// - Every submitted call gets exactly one [`Action::Done`].
#[derive(Debug)]
pub struct Broker {
    config: Config,
    policy: Box<dyn Policy>,
    now: Time,
    servers: BTreeMap<ServerId, Server>,
    names: BTreeMap<String, u32>,
    routines: BTreeMap<u32, Routine>,
    /// The servers of each group, which offer the same routines.
    groups: BTreeMap<u32, BTreeSet<ServerId>>,
    by_offer: BTreeMap<Routines, u32>,
    calls: BTreeMap<CallId, Call>,
    clients: BTreeMap<ClientId, BTreeSet<CallId>>,
    /// The server of every attempt that occupies a slot.
    attempts: BTreeMap<(CallId, u32), ServerId>,
    queue: FairQueue,
    /// Groups with free servers whose calls wait for busy ones, and when to check them again.
    holding: BTreeMap<u32, Time>,
    network: Network,
    history: History,
    timers: BTreeSet<(Time, Timer)>,
    actions: VecDeque<Action>,
    counters: Counters,
    /// The next numbers of routines, groups and queue entries.
    numbers: (u32, u32, u64),
}

impl Broker {
    /// A broker without servers and calls.
    #[must_use]
    pub fn new(policy: Box<dyn Policy>, config: Config) -> Self {
        Self {
            config,
            policy,
            now: Time::default(),
            servers: BTreeMap::new(),
            names: BTreeMap::new(),
            routines: BTreeMap::new(),
            groups: BTreeMap::new(),
            by_offer: BTreeMap::new(),
            calls: BTreeMap::new(),
            clients: BTreeMap::new(),
            attempts: BTreeMap::new(),
            queue: FairQueue::default(),
            holding: BTreeMap::new(),
            network: Network::default(),
            history: History::default(),
            timers: BTreeSet::new(),
            actions: VecDeque::new(),
            counters: Counters::default(),
            numbers: (0, 0, 0),
        }
    }

    /// Handles an event. [`Broker::poll`] then gives the actions.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        let examined = self.counters.examined;
        self.run_timers();
        match event {
            Event::Joined(server, offer) => self.joined(server, &offer),
            Event::Left(server) => self.left(server),
            Event::Away(server) => self.away(server),
            Event::ServerLost(server) => self.server_lost(server),
            Event::Load(server, load, speed) => {
                if let Some(server) = self.servers.get_mut(&server) {
                    server.loaded(load, speed);
                }
            }
            Event::Network(from, to, link) => self.network.measured(from, to, link),
            Event::Forgotten(from, to) => self.network.forget(from, to),
            Event::Weight(user, weight) => self.queue.set_weight(user, weight),
            Event::Submit(call, request) => self.submit(call, request),
            Event::Started(call, attempt) => self.started(call, attempt),
            Event::Ended(call, attempt, seconds) => self.ended(call, attempt, seconds),
            Event::Failed(call, attempt, failure) => self.failed(call, attempt, failure),
            Event::Cancel(call) => self.cancel(call, Outcome::Cancelled),
            Event::Cancelled(call, attempt) => self.stopped(call, attempt),
            Event::ClientLost(client) => {
                for call in self.clients.get(&client).cloned().unwrap_or_default() {
                    self.cancel(call, Outcome::Cancelled);
                }
            }
            Event::Tick => {}
            Event::Rejoined(server, offer) => self.rejoined(server, &offer),
            Event::Restored(call, request, server, attempt) => {
                self.restored(call, request, server, attempt);
            }
            Event::Learned(server, routine, size, seconds) => {
                let number = self.names.get(&routine).copied();
                if let (Some(number), Some(at)) = (number, self.servers.get(&server)) {
                    self.history.add(number, server, size, seconds, at.speed);
                }
            }
        }
        let examined = self.counters.examined - examined;
        self.counters.most_examined = self.counters.most_examined.max(examined);
    }

    /// Takes the next action.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Event::Tick`] is due, unless another event comes first.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        self.timers.first().map(|&(time, _)| time)
    }

    /// Number of waiting calls.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Number of open calls.
    #[must_use]
    pub fn open(&self) -> usize {
        self.calls.len()
    }

    /// Whether a call is open.
    #[must_use]
    pub fn is_open(&self, call: CallId) -> bool {
        self.calls.contains_key(&call)
    }

    /// Number of slots that this broker occupies at a server.
    #[must_use]
    pub fn in_flight(&self, server: ServerId) -> u32 {
        self.servers.get(&server).map_or(0, Server::in_flight)
    }

    /// The sites of servers and calls, and both ends of paths that are measured or in use.
    #[must_use]
    pub fn sites(&self) -> BTreeSet<SiteId> {
        let servers = self.servers.values().map(|server| server.site);
        let calls = self.calls.values().map(|call| call.site);
        servers.chain(calls).chain(self.network.sites()).collect()
    }

    /// Number of remembered users: those with calls, and those who recently had more than their share.
    #[must_use]
    pub fn users(&self) -> usize {
        self.queue.users()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Names of the routines that servers offer or offered recently.
    pub fn routines(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    fn run_timers(&mut self) {
        while let Some(&(time, timer)) = self.timers.first() {
            if time > self.now {
                return;
            }
            self.timers.remove(&(time, timer));
            match timer {
                Timer::Deadline(call) => self.cancel(call, Outcome::Expired),
                Timer::GiveUp(routine) => self.give_up(routine, time),
                Timer::Recheck(group) => {
                    self.holding.remove(&group);
                    self.dispatch(group);
                }
            }
        }
    }
}
