//! State of a metaserver as JSON, for `kumi call status`, the dashboard and other readers.

use std::collections::BTreeMap;

use kumi_broker::Time;
use serde::{Deserialize, Serialize};

use super::dispatcher::{Dispatcher, RecentCall};
use super::etcd::Leadership;
use super::members::Member;
use crate::users::User;

/// Most routines and paths that are shown.
const MOST_SHOWN: usize = 1000;

/// A metaserver's state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its policy for choosing servers.
    pub policy: String,
    /// Seconds since its start.
    pub uptime: f64,
    /// Connections of clients and servers.
    pub connections: usize,
    /// Servers in the order of their registration.
    pub servers: Vec<ServerState>,
    /// Users with calls that are not over.
    pub users: Vec<UserState>,
    /// Waiting calls.
    pub waiting: usize,
    /// Calls that have a server.
    pub running: usize,
    /// Routines.
    pub routines: Vec<RoutineState>,
    /// Measured paths between sites.
    pub paths: Vec<PathState>,
    /// The last finished calls, latest first.
    pub recent: Vec<CallState>,
    /// Totals.
    pub counters: CounterState,
    /// Leadership. `None`: there is only one metaserver.
    #[serde(default)]
    pub leader: Option<LeaderState>,
}

/// Leadership among several metaservers, and the state of etcd.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LeaderState {
    /// This one leads.
    pub leading: bool,
    /// The leader's address; empty: none is known.
    pub address: String,
    /// Requests to etcd, and failed ones.
    pub requests: u64,
    /// See `requests`.
    pub errors: u64,
    /// Mean and longest time of a request in seconds.
    pub mean: f64,
    /// See `mean`.
    pub longest: f64,
    /// Placed calls whose clients are told when the place is stored.
    pub unkept: usize,
    /// Why nothing can be written now; empty: writes succeed.
    pub trouble: String,
}

/// A server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerState {
    /// Its name.
    pub name: String,
    /// Its address for clients.
    pub address: String,
    /// Its site.
    pub site: String,
    /// Its version.
    pub version: String,
    /// `up`, `away` (its connection was just lost) or `lost`.
    pub state: String,
    /// Most calls that it runs at the same time.
    pub slots: u32,
    /// Most calls that it gets at a time.
    pub limit: u32,
    /// Calls that it has from this metaserver.
    pub in_flight: u32,
    /// Running and waiting calls in its last report, and how many of both came from elsewhere.
    pub running: u32,
    /// See `running`.
    pub waiting: u32,
    /// See `running`.
    pub elsewhere: u32,
    /// Processors that other programs keep busy.
    pub load: f64,
    /// Its processors.
    pub processors: u32,
    /// Calls that succeeded there.
    pub done: u64,
    /// Calls that failed there.
    pub failed: u64,
}

/// A user.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UserState {
    /// The name; empty: anonymous.
    pub name: String,
    /// Waiting calls.
    pub waiting: usize,
    /// Calls that have a server.
    pub running: usize,
}

/// A routine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoutineState {
    /// Its name.
    pub name: String,
    /// The first line of its documentation.
    pub about: String,
    /// Servers that offer it with this description.
    pub servers: usize,
    /// Whether it is idempotent.
    pub idempotent: bool,
}

/// A path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathState {
    /// The clients' site.
    pub from: String,
    /// The servers' site.
    pub to: String,
    /// Bytes per second to the server; 0: not known.
    pub out: f64,
    /// Bytes per second back; 0: not known.
    pub back: f64,
    /// Seconds one way.
    pub latency: f64,
    /// Calls that measured it.
    pub calls: u64,
}

/// A finished call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallState {
    /// The routine.
    pub routine: String,
    /// The user.
    pub user: String,
    /// The server of the last attempt.
    pub server: String,
    /// Attempts.
    pub attempts: u32,
    /// How it ended.
    pub outcome: String,
    /// Seconds from its request to its end.
    pub seconds: f64,
    /// Seconds that the routine ran.
    pub ran: f64,
    /// Seconds since its end.
    pub ago: f64,
}

/// Totals.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CounterState {
    /// Attempts that were placed.
    pub placed: u64,
    /// Attempts after the first of a call.
    pub retried: u64,
    /// Calls that succeeded.
    pub done: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that were rejected.
    pub rejected: u64,
    /// Calls that were cancelled or took too long.
    pub cancelled: u64,
    /// Connections that broke the protocol.
    pub hostile: u64,
    /// Peers without a valid token, or without the right to offer routines.
    #[serde(default)]
    pub refused: u64,
    /// Placement decisions.
    pub decisions: u64,
    /// Mean seconds of a decision.
    pub decision_mean: f64,
    /// Longest seconds of a decision.
    pub decision_longest: f64,
}

/// The present state.
pub fn state(dispatcher: &Dispatcher) -> State {
    let now = dispatcher.now();
    let recent = dispatcher.recent.iter().rev().map(|recent| call(recent, now)).collect();
    let routines = dispatcher.catalogue.all().take(MOST_SHOWN).map(|(name, entry)| RoutineState {
        name: name.to_owned(),
        about: entry.about.clone(),
        servers: entry.servers.len(),
        idempotent: entry.idempotent,
    });
    let paths = dispatcher.paths.all().take(MOST_SHOWN).map(|(from, to, estimate)| PathState {
        from: dispatcher.sites.name(from.0).to_owned(),
        to: dispatcher.sites.name(to.0).to_owned(),
        out: estimate.out,
        back: estimate.back,
        latency: estimate.latency,
        calls: estimate.calls,
    });
    let servers = dispatcher.members.iter().map(|(id, one)| {
        server(one, dispatcher.sites.name(one.site.0), dispatcher.broker.in_flight(*id))
    });
    let waiting = dispatcher.calls.values().filter(|open| open.running.is_none()).count();
    State {
        name: dispatcher.config.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        policy: dispatcher.config.policy.clone(),
        uptime: now.seconds_since(Time(0)),
        connections: dispatcher.connections,
        servers: servers.collect(),
        users: users(dispatcher),
        waiting,
        running: dispatcher.calls.len() - waiting,
        routines: routines.collect(),
        paths: paths.collect(),
        recent,
        counters: counters(dispatcher),
        leader: dispatcher.leadership.as_ref().map(|leadership| leader(dispatcher, leadership)),
    }
}

fn leader(dispatcher: &Dispatcher, leadership: &Leadership) -> LeaderState {
    let figures = &leadership.figures;
    let (requests, errors) = (figures.requests.get(), figures.errors.get());
    LeaderState {
        leading: leadership.leads(),
        address: leadership.leader(),
        requests,
        errors,
        mean: figures.time.get().as_secs_f64() / figures.answers.get().max(1) as f64,
        longest: figures.longest.get().as_secs_f64(),
        unkept: dispatcher.grants.len(),
        trouble: figures.trouble().unwrap_or_default(),
    }
}

/// The state as JSON.
pub fn json(dispatcher: &Dispatcher) -> String {
    // Numbers and texts always serialise.
    serde_json::to_string(&state(dispatcher)).unwrap_or_default()
}

/// The state as JSON for a user: only the user's own calls, and routines that the user may call.
pub fn json_for(dispatcher: &Dispatcher, user: Option<&User>) -> String {
    let Some(user) = user else { return json(dispatcher) };
    let mut state = state(dispatcher);
    state.users.retain(|other| other.name == user.name());
    state.recent.retain(|call| call.user == user.name());
    state.routines.retain(|routine| user.permits(&routine.name));
    serde_json::to_string(&state).unwrap_or_default()
}

fn call(recent: &RecentCall, now: Time) -> CallState {
    CallState {
        routine: recent.routine.clone(),
        user: recent.user.clone(),
        server: recent.server.clone(),
        attempts: recent.attempts,
        outcome: recent.outcome.to_owned(),
        seconds: recent.seconds,
        ran: recent.ran,
        ago: now.seconds_since(recent.at),
    }
}

fn server(member: &Member, site: &str, in_flight: u32) -> ServerState {
    let report = member.report;
    let state = match (&member.peer, member.lost) {
        (Some(_), _) => "up",
        (None, false) => "away",
        (None, true) => "lost",
    };
    ServerState {
        name: member.register.name.clone(),
        address: member.address.clone(),
        site: site.to_owned(),
        version: member.register.version.clone(),
        state: state.to_owned(),
        slots: member.register.slots,
        limit: member.limit,
        in_flight,
        running: report.map_or(0, |report| report.running),
        waiting: report.map_or(0, |report| report.waiting),
        elsewhere: report.map_or(0, |report| report.elsewhere),
        load: report.map_or(0.0, |report| report.load),
        processors: member.register.processors,
        done: member.done,
        failed: member.failed,
    }
}

fn users(dispatcher: &Dispatcher) -> Vec<UserState> {
    let mut users: BTreeMap<u32, UserState> = BTreeMap::new();
    for open in dispatcher.calls.values() {
        let user = open.request.user.0;
        let state = users.entry(user).or_insert_with(|| UserState {
            name: dispatcher.users.name(user).to_owned(),
            ..UserState::default()
        });
        match open.running {
            None => state.waiting += 1,
            Some(_) => state.running += 1,
        }
    }
    users.into_values().take(MOST_SHOWN).collect()
}

fn counters(dispatcher: &Dispatcher) -> CounterState {
    let counters = dispatcher.counters;
    let decisions = counters.decisions.max(1) as f64;
    CounterState {
        placed: counters.placed,
        retried: dispatcher.broker.counters().retried,
        done: counters.done,
        failed: counters.failed,
        rejected: counters.rejected,
        cancelled: counters.cancelled,
        hostile: counters.hostile,
        refused: counters.refused,
        decisions: counters.decisions,
        decision_mean: counters.deciding.as_secs_f64() / decisions,
        decision_longest: counters.longest.as_secs_f64(),
    }
}
