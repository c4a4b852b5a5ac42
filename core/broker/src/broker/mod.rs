//! The state machine. Here is what is kept and who is told of an event; `servers` has what servers do, `calls` how
//! calls come and end, `place` where they go.

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

/// Limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most calls that wait; one more is rejected.
    pub most_waiting: usize,
    /// Most calls of a user that wait.
    pub most_waiting_of_user: usize,
    /// Most times that a call is started; 0 counts as 1.
    pub most_attempts: u32,
    /// Nanoseconds that calls wait for a server when the last that offered their routine is gone.
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

/// What the broker has done, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times that a server was looked for for a call.
    pub decisions: u64,
    /// Servers looked at in these.
    pub examined: u64,
    /// Most servers looked at for one event.
    pub most_examined: u64,
    /// Attempts started.
    pub started: u64,
    /// Attempts started for calls that had been started before.
    pub retried: u64,
    /// Events about attempts and calls that were over.
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
    entry: Entry,
    attempts: u32,
    /// The next attempt is one of its user's turns, as the first is.
    pays: bool,
    /// Where it runs; `None`: it waits.
    server: Option<ServerId>,
    /// Where it failed last; it goes there again only if no other offers the routine.
    avoid: Option<ServerId>,
}

impl Call {
    /// What its time grows with.
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
    /// Until when its calls wait for a server, if there is none.
    given_up: Option<Time>,
}

/// What is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Deadline(CallId),
    /// Nobody has come for this routine.
    GiveUp(u32),
    /// A call waits for a busy server, although this group has a free one.
    LookAgain(u32),
}

/// The decisions of a metaserver.
///
/// Invariants: a server has never more calls than its limit, whatever became of them here; a call is started
/// again only after its server said that it did not begin, or if it is idempotent; every call that was submitted
/// is [`Action::Done`] once.
#[derive(Debug)]
pub struct Broker {
    config: Config,
    policy: Box<dyn Policy>,
    now: Time,
    servers: BTreeMap<ServerId, Server>,
    names: BTreeMap<String, u32>,
    routines: BTreeMap<u32, Routine>,
    /// Servers of a group, which offer the same.
    groups: BTreeMap<u32, BTreeSet<ServerId>>,
    by_offer: BTreeMap<Routines, u32>,
    calls: BTreeMap<CallId, Call>,
    clients: BTreeMap<ClientId, BTreeSet<CallId>>,
    /// The server of every attempt whose slot was not given back.
    attempts: BTreeMap<(CallId, u32), ServerId>,
    line: FairQueue,
    /// Groups with free servers whose calls wait for others, and when to look again.
    holding: BTreeMap<u32, Time>,
    network: Network,
    history: History,
    timers: BTreeSet<(Time, Timer)>,
    actions: VecDeque<Action>,
    counters: Counters,
    /// Numbers for routines, groups and calls in the line.
    numbers: (u32, u32, u64),
}

impl Broker {
    /// Without servers and calls.
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
            line: FairQueue::default(),
            holding: BTreeMap::new(),
            network: Network::default(),
            history: History::default(),
            timers: BTreeSet::new(),
            actions: VecDeque::new(),
            counters: Counters::default(),
            numbers: (0, 0, 0),
        }
    }

    /// Takes an event in. What is to be done is then there to be polled.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        let examined = self.counters.examined;
        self.run_timers();
        match event {
            Event::Joined(server, offer) => self.joined(server, &offer),
            Event::Left(server) => self.left(server),
            Event::ServerLost(server) => self.server_lost(server),
            Event::Load(server, load, speed) => {
                if let Some(server) = self.servers.get_mut(&server) {
                    server.loaded(load, speed);
                }
            }
            Event::Network(from, to, link) => self.network.measured(from, to, link),
            Event::Forgotten(from, to) => self.network.forget(from, to),
            Event::Weight(user, weight) => self.line.weigh(user, weight),
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

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Event::Tick`] is due, if nothing happens before.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        self.timers.first().map(|&(time, _)| time)
    }

    /// Calls that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Calls that are not over.
    #[must_use]
    pub fn open(&self) -> usize {
        self.calls.len()
    }

    /// Whether a call is not over.
    #[must_use]
    pub fn is_open(&self, call: CallId) -> bool {
        self.calls.contains_key(&call)
    }

    /// Calls that a server has from here.
    #[must_use]
    pub fn in_flight(&self, server: ServerId) -> u32 {
        self.servers.get(&server).map_or(0, Server::in_flight)
    }

    /// Sites that matter: those of servers and calls, and both ends of paths that are known or in use.
    #[must_use]
    pub fn sites(&self) -> BTreeSet<SiteId> {
        let servers = self.servers.values().map(|server| server.site);
        let calls = self.calls.values().map(|call| call.site);
        servers.chain(calls).chain(self.network.sites()).collect()
    }

    /// Users that are remembered: those with calls, and those who had more than their share a moment ago.
    #[must_use]
    pub fn users(&self) -> usize {
        self.line.users()
    }

    /// What was done.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Names of the routines that servers offer, or offered a short time ago.
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
                Timer::LookAgain(group) => {
                    self.holding.remove(&group);
                    self.dispatch(group);
                }
            }
        }
    }
}
