//! Questions of a client to a server or a metaserver: names, descriptions, state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kumi_idl::Interface;
use kumi_rpc::{Failure, LogRequest};

use super::answer_handle::AnswerHandle;
use super::link::Answer;
use super::{CallError, Client, KnownRoutine};

/// How long a metaserver may take to answer. It may hold a question about a routine until the routine's
/// server is back.
pub const ASK: Duration = Duration::from_secs(60);
/// How often the client checks whether a silent metaserver is alive.
const LOOK: Duration = Duration::from_millis(250);

fn something_else() -> CallError {
    CallError::Server("the server sent an unexpected answer".to_owned())
}

impl Client {
    /// Deadline of an answer. A server has none: its answer may come behind arrays of any length.
    fn ask_until(&self) -> Option<Instant> {
        self.is_metaserver().then(|| Instant::now() + ASK)
    }

    /// Waits for an answer. A metaserver that gives no sign of life meanwhile is lost.
    fn answer(
        &self,
        stream: u32,
        until: Option<Instant>,
    ) -> Result<Result<Answer, Failure>, CallError> {
        let mut ticket = AnswerHandle::of(&*self.link, stream);
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
        let stream = self.link.list(part, until)?;
        match self.answer(stream, until)? {
            Ok(Answer::Names(names)) => Ok(names),
            Ok(_) => Err(something_else()),
            Err(failure) => Err(CallError::of(failure, "")),
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
        let stream = self.link.status(until)?;
        match self.answer(stream, until)? {
            Ok(Answer::State(json)) => Ok(json),
            Ok(_) => Err(something_else()),
            Err(failure) => Err(CallError::of(failure, "")),
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
        let stream = self.link.logs(request, until)?;
        match AnswerHandle::of(&*self.link, stream).wait(until, &|| false)? {
            Ok(Answer::State(json)) => Ok(json),
            Ok(_) => Err(something_else()),
            Err(failure) => Err(CallError::of(failure, "")),
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
        let cached = |known: &Mutex<HashMap<String, Arc<KnownRoutine>>>| {
            known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
        };
        if let Some(known) = cached(&self.known) {
            return Ok(known);
        }
        let stream = self.link.interface(name, until)?;
        match self.answer(stream, until)? {
            Ok(Answer::Description(hash, json)) => {
                let interface = Interface::from_json(json.as_bytes())
                    .map_err(|error| CallError::Server(error.to_string()))?;
                let functions = Arc::new(crate::callback::functions(&interface));
                let known = Arc::new(KnownRoutine { interface, functions, hash });
                let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(name.to_owned(), Arc::clone(&known));
                Ok(known)
            }
            Ok(_) => Err(something_else()),
            Err(failure) => Err(CallError::of(failure, name)),
        }
    }

    /// Forgets a description that has changed.
    pub(super) fn forget(&self, name: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}
