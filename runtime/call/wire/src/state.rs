//! State of a metaserver as JSON, for `kumi call status`, the dashboard and other readers.

use std::fmt;

use serde::{Deserialize, Serialize};

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

/// Whether a server is there. Its name in lower case stands in the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerCondition {
    /// It takes calls.
    Up,
    /// It takes no new calls.
    Leaving,
    /// It left in order.
    Ended,
    /// Its connection was just lost.
    Away,
    /// It did not come back.
    Lost,
    /// A later metaserver says something else.
    #[serde(other)]
    Unknown,
}

impl ServerCondition {
    /// Whether it has a connection, so that its reports are of now.
    #[must_use]
    pub fn is_there(self) -> bool {
        matches!(self, ServerCondition::Up | ServerCondition::Leaving)
    }
}

impl fmt::Display for ServerCondition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(out)
    }
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
    /// Whether it is there.
    pub state: ServerCondition,
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
    /// That server's address; empty: the call had none.
    #[serde(default)]
    pub address: String,
    /// Why it failed, with the server of each attempt; empty: it did not.
    #[serde(default)]
    pub reason: String,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_words_and_later_ones_are_unknown() {
        assert_eq!(ServerCondition::Leaving.to_string(), "leaving");
        let read = |text| serde_json::from_str::<ServerCondition>(text).expect("a word");
        assert_eq!(read("\"away\""), ServerCondition::Away);
        assert_eq!(read("\"of a later version\""), ServerCondition::Unknown);
        assert!(ServerCondition::Leaving.is_there() && !ServerCondition::Ended.is_there());
    }
}
