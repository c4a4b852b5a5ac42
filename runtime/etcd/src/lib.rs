//! Several processes with their state in etcd, of which one leads: heads of a cluster, or metaservers.
//!
//! This crate must never know what the state is. The leader has created the key `PREFIX/leader`, which disappears with its lease. Each write is a
//! transaction on the condition that this very key still exists, and that no write came since the one before it. So a deposed
//! leader writes nothing, and no request that was given up does so later.
#![forbid(unsafe_code)]

pub mod api;
mod clock;
mod election;
mod http;
mod leadership;
mod ordered;
mod random;
mod session;
mod tls;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use election::Candidate;
pub use http::Gateway;
pub use leadership::{Certainty, EtcdMetrics, Leadership};
pub use ordered::OrderedWrites;
pub use session::Session;

/// Settings of a process that is one of several.
#[derive(Clone)]
pub struct Etcd {
    /// `http://HOST:PORT` or `https://HOST:PORT`; any of them may be down.
    pub endpoints: Vec<String>,
    /// Prefix of all keys. Processes with the same prefix are one set.
    pub prefix: String,
    /// The user at etcd; empty: anonymous.
    pub user: String,
    /// The user's password.
    pub password: String,
    /// A PEM file with the trusted authorities for `https://`. `None`: the authorities that the system
    /// trusts.
    pub ca: Option<PathBuf>,
    /// Client certificate and its key (PEM).
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Time after which another takes over from a leader that has gone. Whole seconds, at least 2.
    pub lease: Duration,
    /// Time limit for connecting, and for a request.
    pub patience: Duration,
    /// Only one process at a time can be at the address `advertise`. So a leader's key with that address is of a process that
    /// is dead, and its lease is ended at once.
    pub exclusive: bool,
    /// No other process wants to lead: while etcd is away, a leader waits for it as long as it takes.
    pub alone: bool,
    /// The address of this process for those who look for the leader.
    pub advertise: String,
    /// The name of a key beside the leader's that has the addresses of those that are to lead before others, one a line. Without
    /// the name or the key all are the same.
    pub preferred: Option<&'static str>,
}

impl fmt::Debug for Etcd {
    /// Without the password: it is a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Etcd { endpoints, prefix, user, lease, advertise, .. } = self;
        let mut shown = out.debug_struct("Etcd");
        shown.field("endpoints", endpoints).field("prefix", prefix).field("user", user);
        shown.field("lease", lease).field("advertise", advertise).finish_non_exhaustive()
    }
}

/// Errors of etcd.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EtcdError {
    /// Nothing answers at the endpoint, or not in time.
    #[error("etcd at {endpoint} does not answer: {why}; check its address, and that etcd runs")]
    NoAnswer {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        why: String,
    },
    /// The text is not an address of etcd.
    #[error("{0} is not an address of etcd: use http://HOST:PORT or https://HOST:PORT")]
    Address(String),
    /// etcd refuses a request.
    #[error("etcd refuses: {text} (code {code}){}", advice(*code, text))]
    Refused {
        /// The gRPC code.
        code: u64,
        /// etcd's message.
        text: String,
    },
    /// An answer is longer than any that should come.
    #[error(
        "etcd at {endpoint} sends more than 64 MiB at once; does something else use the prefix?"
    )]
    LongAnswer {
        /// The endpoint.
        endpoint: String,
    },
    /// This version does not understand etcd's answer.
    #[error("etcd sent something other than {0}; is it etcd 3.4 or newer?")]
    Answer(String),
    /// This version does not understand the value of this key.
    #[error("the value of `{0}` in etcd is invalid; does something else use the prefix?")]
    Content(String),
    /// Another process leads.
    #[error("another leads now")]
    Deposed,
    /// The files cannot be used for TLS.
    #[error("{0}")]
    Tls(String),
    /// The system has no random number.
    #[error("the system has no random number for a name in etcd: {0}")]
    Random(String),
}

/// gRPC codes, as the gateway reports them.
mod code {
    pub const INVALID: u64 = 3;
    pub const DENIED: u64 = 7;
    pub const EXHAUSTED: u64 = 8;
    pub const NOBODY: u64 = 16;
}

/// Part of what etcd says when its space is used up.
const NO_SPACE: &str = "space exceeded";
/// Part of what gRPC says of a request that is longer than etcd lets it take.
const TOO_LONG: &str = "larger than max";

fn advice(code: u64, text: &str) -> &'static str {
    let has = |part: &str| text.contains(part);
    match code {
        code::EXHAUSTED if has(NO_SPACE) => {
            "; its space is used up: compact and defragment it, then disarm its alarm (`etcdctl compact`, `defrag`, `alarm disarm`)"
        }
        code::EXHAUSTED | code::INVALID
            if has(TOO_LONG) || has("too large") || has("too many operations") =>
        {
            "; leave its --max-request-bytes and --max-txn-ops as they are by default, or raise them"
        }
        code::EXHAUSTED => "; it has more to do than it takes",
        code::DENIED => "; grant its user reading and writing of the prefix",
        code::NOBODY | code::INVALID => "; check the user of etcd and its password",
        _ => "",
    }
}

impl EtcdError {
    /// Whether etcd has answered that it does not do this. It does nothing else if it is asked again, until somebody has changed
    /// etcd. The request that it refused has changed nothing.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            // Most of this code say that it has much to do, which passes by itself.
            Self::Refused { code: code::EXHAUSTED, text } => {
                text.contains(NO_SPACE) || text.contains(TOO_LONG)
            }
            Self::Refused { .. } => true,
            _ => false,
        }
    }
}

impl Default for Etcd {
    fn default() -> Etcd {
        Etcd {
            endpoints: Vec::new(),
            prefix: "/kumi/call".to_owned(),
            user: String::new(),
            password: String::new(),
            ca: None,
            identity: None,
            lease: Duration::from_secs(5),
            patience: Duration::from_secs(3),
            exclusive: false,
            alone: false,
            advertise: String::new(),
            preferred: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        for (code, text, says) in [
            (8, "etcdserver: mvcc: database space exceeded", "alarm disarm"),
            (8, "etcdserver: too many requests", "more to do"),
            (8, "grpc: received message larger than max (3 vs. 2)", "max-request-bytes"),
            (7, "etcdserver: permission denied", "grant"),
            (3, "etcdserver: request is too large", "max-request-bytes"),
            (3, "etcdserver: authentication failed, invalid user ID or password", "password"),
            (16, "etcdserver: invalid auth token", "password"),
        ] {
            let error = EtcdError::Refused { code, text: text.to_owned() };
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.is_refusal(), says != "more to do", "{error}");
        }
        assert!(!EtcdError::Deposed.is_refusal());
    }
}
