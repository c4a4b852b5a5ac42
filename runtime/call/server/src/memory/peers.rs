//! Servers from which arrays may be fetched.
//!
//! A client names the address of the server that holds an array. So whoever may call could have this server connect to
//! any address that it reaches, such as those of an inner network. Unless its owner says otherwise, a server connects
//! only to those that its metaserver knows. It asks the metaserver, which sends no lists: there may be many servers, and
//! few of them exchange arrays.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::super::Shared;

/// How long the metaserver may take to answer. Older ones do not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an answer counts. A server that leaves is not fetched from for longer than that.
const LASTS: Duration = Duration::from_secs(10);
/// Most addresses that are remembered, and most that are asked for at a time.
const MOST: usize = 1024;

/// Servers from which a server may fetch arrays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Peers {
    /// Those that the metaserver knows; without a metaserver, none.
    #[default]
    OfMetaserver,
    /// Those at these addresses, as clients give them.
    Listed(Vec<String>),
    /// Any that clients name.
    Any,
}

#[derive(Debug, Default)]
struct State {
    /// Addresses that the session with the metaserver is to ask for. `None`: there is no session.
    questions: Option<UnboundedSender<String>>,
    /// Who waits for which answer.
    waiting: BTreeMap<String, Vec<oneshot::Sender<bool>>>,
    /// Addresses of servers, and until when that counts.
    known: BTreeMap<String, Instant>,
}

/// What the metaserver says of addresses.
#[derive(Debug, Default)]
pub struct KnownServers(RefCell<State>);

impl KnownServers {
    /// A session with a metaserver begins: the addresses that it is to ask for.
    pub fn begin(&self) -> UnboundedReceiver<String> {
        let (questions, receiver) = unbounded_channel();
        *self.0.borrow_mut() = State { questions: Some(questions), ..State::default() };
        receiver
    }

    /// The session has ended. Nobody waits any longer.
    pub fn end(&self) {
        *self.0.borrow_mut() = State::default();
    }

    /// The metaserver has answered.
    pub fn answered(&self, address: String, is_known: bool) {
        let mut state = self.0.borrow_mut();
        // What nobody has asked is not remembered.
        let Some(waiting) = state.waiting.remove(&address) else { return };
        for waiter in waiting {
            // Whoever waited may have given up.
            let _gone = waiter.send(is_known);
        }
        if is_known {
            let now = Instant::now();
            if state.known.len() >= MOST {
                state.known.retain(|_, until| *until > now);
            }
            if state.known.len() < MOST {
                state.known.insert(address, now + LASTS);
            }
        }
    }

    /// Asks unless the answer is remembered. `Ok(None)`: the server is known.
    fn ask(
        &self,
        address: &str,
        now: Instant,
    ) -> Result<Option<oneshot::Receiver<bool>>, &'static str> {
        let mut state = self.0.borrow_mut();
        if state.known.get(address).is_some_and(|until| *until > now) {
            return Ok(None);
        }
        let State { questions, waiting, .. } = &mut *state;
        let Some(questions) = questions else { return Err("its metaserver is away") };
        if waiting.len() >= MOST && !waiting.contains_key(address) {
            return Err("it asks its metaserver for too many servers at once");
        }
        let (tell, told) = oneshot::channel();
        let waiters = waiting.entry(address.to_owned()).or_default();
        waiters.retain(|waiter| !waiter.is_closed());
        let is_asked = !waiters.is_empty();
        waiters.push(tell);
        if !is_asked && questions.send(address.to_owned()).is_err() {
            return Err("its metaserver is away");
        }
        Ok(Some(told))
    }

    /// Whether the metaserver knows a server at this address.
    ///
    /// # Errors
    /// It does not, or cannot be asked; the text continues "this server does not fetch: ".
    async fn check(&self, address: &str) -> Result<(), &'static str> {
        let Some(told) = self.ask(address, Instant::now())? else { return Ok(()) };
        match timeout(PATIENCE, told).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err("its metaserver knows no server there"),
            Ok(Err(_)) => Err("its metaserver is away"),
            Err(_) => Err("its metaserver does not say whether there is a server"),
        }
    }
}

fn refusal(address: &str, why: &str) -> String {
    format!(
        "an array is held at {address}, from which this server does not fetch: {why} (--peer names further servers)"
    )
}

impl Shared {
    /// Whether a client may have this server fetch from that address, as far as the server itself knows.
    pub(super) fn may_fetch(&self, address: &str) -> Result<(), String> {
        match &self.config.peers {
            Peers::Any => {}
            Peers::Listed(peers) if peers.iter().any(|peer| peer == address) => {}
            Peers::Listed(_) => return Err(refusal(address, "it is not named")),
            Peers::OfMetaserver if self.config.membership.is_some() => {}
            Peers::OfMetaserver => return Err(refusal(address, "it has no metaserver")),
        }
        // Clients elsewhere have no access to Unix sockets of this machine.
        let bare = address.strip_prefix("tls://").unwrap_or(address);
        if bare.starts_with("unix:") && !(self.local && bare == address) {
            return Err(
                "an array is held at a Unix socket, which only servers on that machine reach"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Whether it may fetch from that address, as far as its metaserver knows.
    pub(super) async fn is_peer(&self, address: &str) -> Result<(), String> {
        if self.config.peers != Peers::OfMetaserver {
            return Ok(());
        }
        self.known_servers.check(address).await.map_err(|why| refusal(address, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_was_asked_is_believed_and_not_for_ever() {
        let known = KnownServers::default();
        assert_eq!(known.check("a:1").await, Err("its metaserver is away"));
        let mut questions = known.begin();
        known.answered("a:1".to_owned(), true);
        let (checked, ()) = tokio::join!(known.check("a:1"), async {
            assert_eq!(questions.recv().await.as_deref(), Some("a:1"));
            known.answered("a:1".to_owned(), true);
        });
        assert_eq!(checked, Ok(()));
        let now = Instant::now();
        assert!(known.ask("a:1", now).is_ok_and(|open| open.is_none()), "it is remembered");
        assert!(questions.try_recv().is_err(), "and not asked again");
        assert!(known.ask("a:1", now + LASTS).is_ok_and(|open| open.is_some()));
        assert_eq!(questions.try_recv().ok().as_deref(), Some("a:1"));
        let (checked, ()) = tokio::join!(known.check("b:1"), async {
            assert_eq!(questions.recv().await.as_deref(), Some("b:1"));
            known.answered("b:1".to_owned(), false);
        });
        assert_eq!(checked, Err("its metaserver knows no server there"));
        let (checked, ()) = tokio::join!(known.check("c:1"), async { known.end() });
        assert_eq!(checked, Err("its metaserver is away"));
    }

    #[test]
    fn few_questions_are_open() {
        let (known, now) = (KnownServers::default(), Instant::now());
        let mut questions = known.begin();
        let open: Vec<_> = (0..MOST).map(|port| known.ask(&format!("a:{port}"), now)).collect();
        assert!(open.iter().all(Result::is_ok));
        assert!(known.ask("a:x", now).is_err(), "one more");
        assert!(known.ask("a:0", now).is_ok(), "this one is asked already");
        let count = std::iter::from_fn(|| questions.try_recv().ok()).count();
        assert_eq!(count, MOST);
    }
}
