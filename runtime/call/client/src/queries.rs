//! Questions of a client to a server or a metaserver: names, descriptions, state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kumi_idl::Interface;
use kumi_rpc::{self as rpc, Failure, LogRequest, MOST_REQUEST};

use super::link::{Answer, Link, no_name};
use super::{CallError, Client, KnownRoutine, locked};

/// How long a metaserver may take to answer. It may hold a question about a routine until the routine's
/// server is back.
pub const ASK: Duration = Duration::from_secs(60);
/// How often the client checks whether a silent metaserver is alive.
const LOOK: Duration = Duration::from_millis(250);

impl Client {
    /// Deadline of an answer. A server has none: its answer may come behind arrays of any length.
    fn ask_until(&self) -> Option<Instant> {
        self.is_metaserver().then(|| Instant::now() + ASK)
    }

    /// Asks, and waits for the answer. A metaserver that gives no sign of life meanwhile is lost.
    fn answer(
        &self,
        until: Option<Instant>,
        encode: impl FnOnce(&mut rpc::Client, &mut Vec<u8>) -> Result<u32, CallError>,
    ) -> Result<Result<Answer, Failure>, CallError> {
        let mut ticket = Link::ask(&*self.link, (until, &|| false), encode)?;
        let Some(until) = until else { return ticket.wait(None, &|| false) };
        loop {
            match ticket.wait(Some(until.min(Instant::now() + LOOK)), &|| false) {
                Err(CallError::TimedOut(_)) if Instant::now() < until => self.link.check_alive(),
                other => return other,
            }
        }
    }

    /// Names of the server's routines that contain `part`.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn names(&self, part: &str) -> Result<Vec<String>, CallError> {
        self.names_until(part, self.ask_until())
    }

    /// [`Client::names`] with a deadline.
    pub(super) fn names_until(
        &self,
        part: &str,
        until: Option<Instant>,
    ) -> Result<Vec<String>, CallError> {
        let encode = |rpc: &mut rpc::Client, out: &mut Vec<u8>| {
            rpc.list(part, out).map_err(|too_long| {
                let text = format!(
                    "{} bytes of a name are more than the {MOST_REQUEST} that can be looked for",
                    too_long.0
                );
                CallError::TooLarge(text)
            })
        };
        match self.answer(until, encode)? {
            Ok(Answer::Names(names)) => Ok(names),
            other => Err(CallError::unlike(other, "")),
        }
    }

    /// The state of a metaserver as JSON.
    ///
    /// # Errors
    /// [`CallError`]; a server has no such state.
    pub fn status_json(&self) -> Result<String, CallError> {
        self.status_until(self.ask_until())
    }

    /// [`Client::status_json`] with a deadline.
    pub(super) fn status_until(&self, until: Option<Instant>) -> Result<String, CallError> {
        if !self.is_metaserver() {
            return Err(CallError::NotMetaserver(self.server.name.clone()));
        }
        match self.answer(until, |rpc, out| Ok(rpc.status(out)))? {
            Ok(Answer::State(json)) => Ok(json),
            other => Err(CallError::unlike(other, "")),
        }
    }

    /// Whether the other side knows logs of calls.
    pub(super) fn check_logs(&self) -> Result<(), CallError> {
        let name = || self.server.name.clone();
        self.server.shows_logs.then_some(()).ok_or_else(|| CallError::NoLogs(name()))
    }

    /// Asks for logs of calls, and waits for the answer.
    pub(super) fn logs_until(
        &self,
        request: &LogRequest,
        until: Option<Instant>,
    ) -> Result<String, CallError> {
        self.check_logs()?;
        let waits: (_, &dyn Fn() -> bool) = (until, &|| false);
        let mut ticket = Link::ask(&*self.link, waits, |rpc, out| Ok(rpc.logs(request, out)))?;
        match ticket.wait(until, &|| false)? {
            Ok(Answer::State(json)) => Ok(json),
            other => Err(CallError::unlike(other, "")),
        }
    }

    /// The description of a routine. The client asks for it once.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn interface(&self, name: &str) -> Result<Arc<KnownRoutine>, CallError> {
        self.interface_until(name, self.ask_until())
    }

    /// [`Client::interface`] with a deadline.
    pub(super) fn interface_until(
        &self,
        name: &str,
        until: Option<Instant>,
    ) -> Result<Arc<KnownRoutine>, CallError> {
        let known = locked(&self.known).get(name).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let encode = |rpc: &mut rpc::Client, out: &mut Vec<u8>| {
            rpc.interface(name, out).map_err(|_| no_name(name))
        };
        match self.answer(until, encode)? {
            Ok(Answer::Description(hash, json)) => {
                let interface = Interface::from_json(json.as_bytes())
                    .map_err(|error| CallError::Server(error.to_string()))?;
                let functions = Arc::new(crate::callback::functions(&interface));
                let known = Arc::new(KnownRoutine { interface, functions, hash });
                locked(&self.known).insert(name.to_owned(), Arc::clone(&known));
                Ok(known)
            }
            other => Err(CallError::unlike(other, name)),
        }
    }

    /// Whether the connection is lost, so that a call over it would fail with nothing sent. Does not wait.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.is_lost()
    }

    /// Forgets a description that has changed.
    pub(super) fn forget(&self, name: &str) {
        locked(&self.known).remove(name);
    }
}
