//! Looks up names of hosts, without holding up a main loop.
//!
//! The name service may hang for as long as it likes. Few threads ask it. While it does not answer, what it said last counts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::config::Place;

/// Threads that may wait for the name service, each for another name.
const MOST_ASKING: usize = 4;
/// How long whoever connects waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Addresses of places, as they were last.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    known: Arc<Mutex<BTreeMap<Place, Vec<SocketAddr>>>>,
    asking: Arc<Mutex<BTreeSet<Place>>>,
    patience: Duration,
    /// Asks the name service.
    ask: fn(&Place) -> io::Result<Vec<SocketAddr>>,
}

/// A thread that waits for the name service.
struct Asking {
    all: Arc<Mutex<BTreeSet<Place>>>,
    place: Place,
}

impl Drop for Asking {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.place);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Lookup {
    fn default() -> Self {
        let ask = |place: &Place| {
            let found = (place.host.as_str(), place.port).to_socket_addrs();
            found.map(Iterator::collect)
        };
        Self::with(PATIENCE, ask)
    }
}

impl Lookup {
    fn with(patience: Duration, ask: fn(&Place) -> io::Result<Vec<SocketAddr>>) -> Self {
        Self { known: Arc::default(), asking: Arc::default(), patience, ask }
    }

    /// The addresses of a place, in the order of the name service.
    ///
    /// # Errors
    /// The name has none, or is not known and the name service does not answer.
    pub(crate) async fn addresses(&self, place: &Place) -> io::Result<Vec<SocketAddr>> {
        if let Some(address) = place.literal() {
            return Ok(vec![address]);
        }
        match self.asked(place).await {
            Ok(found) => {
                // As many names as the configuration has.
                lock(&self.known).insert(place.clone(), found.clone());
                Ok(found)
            }
            Err(error) => lock(&self.known).get(place).cloned().ok_or(error),
        }
    }

    /// Claims a thread to ask for this place, if none asks for it.
    fn claim(&self, place: &Place) -> Option<Asking> {
        let mut asking = lock(&self.asking);
        let free = asking.len() < MOST_ASKING && asking.insert(place.clone());
        free.then(|| Asking { all: Arc::clone(&self.asking), place: place.clone() })
    }

    async fn asked(&self, place: &Place) -> io::Result<Vec<SocketAddr>> {
        let late = || {
            let text = format!("the name service does not tell the address of {}", place.host);
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        let (claim, ask) = (self.claim(place).ok_or_else(late)?, self.ask);
        // The claim goes when the name service has answered, however long nobody waits any more.
        let asked = tokio::task::spawn_blocking(move || ask(&claim.place));
        let answered = tokio::time::timeout(self.patience, asked).await.map_err(|_| late())?;
        let found = answered.map_err(io::Error::other)??;
        if found.is_empty() {
            let text = format!("{} has no address", place.host);
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// Longer than a slow machine takes.
    const LONG: Duration = Duration::from_secs(60);

    static HANGS: AtomicBool = AtomicBool::new(false);
    static ASKING: AtomicUsize = AtomicUsize::new(0);

    fn ask(place: &Place) -> io::Result<Vec<SocketAddr>> {
        ASKING.fetch_add(1, Ordering::SeqCst);
        while HANGS.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        ASKING.fetch_sub(1, Ordering::SeqCst);
        match &*place.host {
            "alpha" => Ok(vec![SocketAddr::from(([192, 0, 2, 1], place.port))]),
            _ => Ok(Vec::new()),
        }
    }

    fn place(host: &str) -> Place {
        Place { host: host.to_owned(), port: 7 }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_last_answer_serves_while_there_is_none() {
        let mut lookup = Lookup::with(LONG, ask);
        let found = vec!["192.0.2.1:7".parse().unwrap()];
        assert_eq!(lookup.addresses(&place("alpha")).await.unwrap(), found);
        let nobody = lookup.addresses(&place("nobody")).await.unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::NotFound);
        let literal = lookup.addresses(&place("fd00::1")).await.unwrap();
        assert_eq!(literal, ["[fd00::1]:7".parse().unwrap()]);
        HANGS.store(true, Ordering::SeqCst);
        lookup.patience = Duration::from_millis(1);
        assert_eq!(lookup.addresses(&place("alpha")).await.unwrap(), found);
        for name in ["nobody", "nobody", "b", "c", "d", "e", "f"] {
            let error = lookup.addresses(&place(name)).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{name}");
        }
        let asking: Vec<String> = lock(&lookup.asking).iter().map(|one| one.host.clone()).collect();
        assert_eq!(asking, ["alpha", "b", "c", "nobody"], "one thread for a name, four at most");
        HANGS.store(false, Ordering::SeqCst);
        while ASKING.load(Ordering::SeqCst) > 0 || !lock(&lookup.asking).is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        lookup.patience = LONG;
        assert_eq!(lookup.addresses(&place("alpha")).await.unwrap(), found);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn this_machine_knows_itself() {
        let lookup = Lookup { patience: LONG, ..Lookup::default() };
        let found = lookup.addresses(&place("localhost")).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
    }
}
