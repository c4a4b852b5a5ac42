//! The other side of a connection, as errors name it.

use std::fmt;
use std::io;
use std::sync::OnceLock;
use std::time::Instant;

use kumi_rpc::{Role, ServerHello};

use super::{Answer, AnswerHandle, HELLO, Link};
use crate::CallError;
use crate::native::Source;

/// Where a connection leads, and who answers there.
#[derive(Debug)]
pub struct Peer {
    address: String,
    /// Its role and its name, once it has greeted.
    greeted: OnceLock<(Role, String)>,
}

impl Peer {
    /// Whoever is at this address.
    pub(super) fn at(address: &str) -> Peer {
        Peer { address: address.to_owned(), greeted: OnceLock::new() }
    }

    /// The address by which it was reached.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (role, name) = match self.greeted.get() {
            Some((Role::Metaserver, name)) => ("metaserver", name.as_str()),
            Some((Role::Server, name)) => ("server", name.as_str()),
            None => ("server", ""),
        };
        match name {
            "" => write!(out, "the {role} at {}", self.address),
            name => write!(out, "the {role} `{name}` at {}", self.address),
        }
    }
}

impl Link {
    /// The other side.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The error of a wait that was too long.
    pub(crate) fn unanswered(&self) -> CallError {
        CallError::TimedOut(format!("{} did not answer in time", self.peer))
    }

    /// Sends the hello and waits for its answer.
    ///
    /// # Errors
    /// [`CallError::Connect`] also of a server that does not greet in time: it can have begun nothing.
    pub fn hello(&self, bytes: &[u8], deadline: Option<Instant>) -> Result<ServerHello, CallError> {
        let waited = self.put(&[Source::Bytes(bytes)], deadline, &|| false);
        let greeting =
            waited.and_then(|()| AnswerHandle::of(self, HELLO).wait(deadline, &|| false));
        match greeting {
            Ok(Ok(Answer::Hello(hello))) => {
                // Nobody has named it before: there is one greeting.
                let _first = self.peer.greeted.set((hello.role, hello.name.clone()));
                Ok(hello)
            }
            Ok(Ok(_)) => Err(CallError::Lost("the server sent no greeting".to_owned())),
            Ok(Err(failure)) => Err(CallError::of(failure, "")),
            Err(CallError::TimedOut(_)) => Err(CallError::Connect {
                address: self.peer.address.clone(),
                source: io::Error::new(io::ErrorKind::TimedOut, "it did not greet in time"),
            }),
            Err(error) => Err(error),
        }
    }
}
