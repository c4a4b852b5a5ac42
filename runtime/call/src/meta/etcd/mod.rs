//! Several metaservers, of which one leads, with their state in etcd.
//!
//! The leader is who has made the key `PREFIX/leader`, which goes with its lease. Whatever it writes it writes in a
//! transaction that asks for that very key, so that one that leads no more writes nothing.

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

/// Where metaservers find etcd, and each other.
#[derive(Clone)]
pub struct Etcd {
    /// `http://HOST:PORT` or `https://HOST:PORT`, of which any may be away.
    pub endpoints: Vec<String>,
    /// What all keys begin with; metaservers with the same are one set.
    pub prefix: String,
    /// Who this is at etcd; empty: nobody in particular.
    pub user: String,
    /// The user's password.
    pub password: String,
    /// The authorities (PEM) that are trusted for `https://`; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// A certificate and its key (PEM) by which this proves who it is.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// After how long another leads when the leader has gone; whole seconds, and at least 2.
    pub lease: Duration,
    /// The address of this metaserver for clients and servers.
    pub advertise: String,
}

impl fmt::Debug for Etcd {
    /// Without the password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Etcd { endpoints, prefix, user, lease, advertise, .. } = self;
        let mut shown = out.debug_struct("Etcd");
        shown.field("endpoints", endpoints).field("prefix", prefix).field("user", user);
        shown.field("lease", lease).field("advertise", advertise).finish_non_exhaustive()
    }
}

/// Why etcd does not do what it should.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EtcdError {
    /// Nobody answers there, or not in time.
    #[error("etcd at {endpoint} does not answer: {why}; check --etcd, and that etcd runs")]
    Away {
        /// Where it was looked for.
        endpoint: String,
        /// What happened.
        why: String,
    },
    /// An address that is none.
    #[error("{0} is no address of etcd: give http://HOST:PORT or https://HOST:PORT")]
    Address(String),
    /// It answers, and says no.
    #[error("etcd refuses: {text} (code {code}){}", advice(*code))]
    Refused {
        /// The code, as gRPC has it.
        code: u64,
        /// What it says.
        text: String,
    },
    /// What it answers is not what this version understands.
    #[error("etcd answers something else than {0}; is that etcd, of version 3.4 or newer?")]
    Answer(String),
    /// What it keeps under this key is not what this version understands.
    #[error(
        "the value of `{0}` in etcd is not what it should be; is the prefix used by something else?"
    )]
    Content(String),
    /// Another metaserver leads.
    #[error("this metaserver leads no more")]
    Deposed,
    /// There can be no TLS with these files.
    #[error("{0}")]
    Tls(String),
}

impl From<TlsError> for EtcdError {
    fn from(error: TlsError) -> EtcdError {
        EtcdError::Tls(error.to_string())
    }
}

/// Codes of gRPC, as the gateway tells them.
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
