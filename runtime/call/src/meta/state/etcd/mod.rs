//! Several metaservers with their state in etcd, of which one leads.
//!
//! The leader has created the key `PREFIX/leader`, which disappears with its lease. Each write is a
//! transaction on the condition that this very key still exists. So a deposed leader writes nothing.

mod api;
mod election;
mod http;
mod leadership;
mod session;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use election::Candidate;
pub use leadership::Leadership;
pub use session::Session;
pub use store::{EtcdStore, WriteWatch, Writer};

use crate::tls::TlsError;

/// Settings of a metaserver that is one of several.
#[derive(Clone)]
pub struct Etcd {
    /// `http://HOST:PORT` or `https://HOST:PORT`; any of them may be down.
    pub endpoints: Vec<String>,
    /// Prefix of all keys. Metaservers with the same prefix are one set.
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
    /// The address of this metaserver for clients and servers.
    pub advertise: String,
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
    #[error("etcd at {endpoint} does not answer: {why}; check --etcd, and that etcd runs")]
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
    #[error("etcd refuses: {text} (code {code}){}", advice(*code))]
    Refused {
        /// The gRPC code.
        code: u64,
        /// etcd's message.
        text: String,
    },
    /// This version does not understand etcd's answer.
    #[error("etcd sent something other than {0}; is it etcd 3.4 or newer?")]
    Answer(String),
    /// This version does not understand the value of this key.
    #[error("the value of `{0}` in etcd is invalid; does something else use the prefix?")]
    Content(String),
    /// Another metaserver leads.
    #[error("this metaserver no longer leads")]
    Deposed,
    /// The files cannot be used for TLS.
    #[error("{0}")]
    Tls(String),
}

impl From<TlsError> for EtcdError {
    fn from(error: TlsError) -> EtcdError {
        EtcdError::Tls(error.to_string())
    }
}

/// gRPC codes, as the gateway reports them.
mod code {
    pub const INVALID: u64 = 3;
    pub const DENIED: u64 = 7;
    pub const EXHAUSTED: u64 = 8;
    pub const NOBODY: u64 = 16;
}

fn advice(code: u64) -> &'static str {
    match code {
        code::EXHAUSTED => {
            "; its space is used up: compact and defragment it, then disarm its alarm"
        }
        code::DENIED => "; grant --etcd-user reading and writing of the prefix",
        code::NOBODY | code::INVALID => "; check --etcd-user and its password",
        _ => "",
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
            advertise: String::new(),
        }
    }
}
