//! State of a metaserver as JSON, for `kumi call status`, the dashboard and other readers.

use std::collections::BTreeMap;

use kumi_broker::Time;
use kumi_call_access::users::User;
pub use kumi_call_wire::state::{
    CallState, CounterState, LeaderState, PathState, RoutineState, ServerCondition, ServerState,
    State, UserState,
};

use super::dispatcher::Dispatcher;
use super::etcd::leader_state;
use super::members::Member;

/// Most routines and paths that are shown.
const MOST_SHOWN: usize = 1000;

/// The present state.
pub fn state(dispatcher: &Dispatcher) -> State {
    let now = dispatcher.now();
    let recent = dispatcher.recent.iter().rev();
    let recent = recent.map(|(call, at)| CallState { ago: now.seconds_since(*at), ..call.clone() });
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
    let shown = dispatcher.members.iter().filter(|(_, member)| member.is_shown(now));
    let servers = shown.map(|(id, one)| {
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
        recent: recent.collect(),
        counters: counters(dispatcher),
        leader: dispatcher.leadership.as_ref().map(|it| leader_state(it, dispatcher.grants.len())),
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

fn server(member: &Member, site: &str, in_flight: u32) -> ServerState {
    // What a server that is gone has reported last is not so any more.
    let report = member.report.filter(|_| member.peer.is_some());
    ServerState {
        name: member.register.name.clone(),
        address: member.address.clone(),
        site: site.to_owned(),
        version: member.register.version.clone(),
        state: member.state(),
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
    let counters = dispatcher.counters.clone();
    let decisions = counters.decisions.max(1) as f64;
    CounterState {
        retried: dispatcher.broker.counters().retried,
        decision_mean: dispatcher.deciding.as_secs_f64() / decisions,
        ..counters
    }
}
