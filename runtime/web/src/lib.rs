//! The monitor's web server, which a head starts in a thread of its own.
//!
//! It never waits for the head's main loop while it holds anything, and the main loop never waits for it:
//!
//! | direction | way |
//! |---|---|
//! | pictures of the cluster, several a second | a `watch` channel: a slow browser misses pictures, and holds one at most |
//! | questions of browsers | a bounded channel of [`Question`]s, each with a channel for its answer |
//! | history | a file that the head writes, see [`history`] |
//!
//! Nobody sees anything without a session, and a session is of a user ([`sessions`]). So rights are the head's alone.
#![forbid(unsafe_code)]

mod api;
mod connections;
pub mod history;
mod page;
pub mod picture;
mod question;
mod routes;
mod server;
pub mod sessions;
mod stall;
mod views;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};

pub use history::HistoryFile;
pub use picture::Picture;
pub use question::{Ask, Output, OutputPiece, Question};
pub use server::{Limits, Listener, Server};
pub use sessions::{Sessions, Visitor};

/// What the server shares with the head.
#[derive(Debug)]
pub struct Shared {
    /// Name of the cluster.
    pub cluster: String,
    /// Who may see what.
    pub sessions: Arc<Sessions>,
    /// The last picture.
    pub pictures: watch::Receiver<Arc<Picture>>,
    /// Questions to the head.
    pub questions: mpsc::Sender<Question>,
    /// How many browsers watch.
    pub watchers: Arc<Watchers>,
    /// Where history is kept; none if it cannot be.
    pub history: Option<history::HistoryReader>,
}

/// Counts of browsers that get pictures.
#[derive(Debug, Default)]
pub struct Watchers {
    slices: AtomicUsize,
    /// By user.
    users: Mutex<BTreeMap<u32, usize>>,
}

impl Watchers {
    /// Most of them at a time.
    pub const MOST: usize = 64;
    /// Most of one user, so that nobody keeps the others out.
    pub const MOST_OF_USER: usize = 16;

    /// Whether anybody watches.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.users().is_empty()
    }

    /// Whether anybody watches slices.
    #[must_use]
    pub fn slices(&self) -> bool {
        self.slices.load(Ordering::Relaxed) > 0
    }

    fn users(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more of this user, unless there are too many; it is counted as long as it holds the token.
    #[must_use]
    pub fn admit(self: &Arc<Self>, uid: u32, slices: bool) -> Option<Watching> {
        let mut users = self.users();
        let all = users.values().sum::<usize>();
        let own = users.get(&uid).copied().unwrap_or(0);
        if all >= Self::MOST || own >= Self::MOST_OF_USER {
            return None;
        }
        users.insert(uid, own + 1);
        if slices {
            self.slices.fetch_add(1, Ordering::Relaxed);
        }
        Some(Watching { watchers: Arc::clone(self), uid, slices })
    }
}

/// Token of a browser that gets pictures.
#[derive(Debug)]
pub struct Watching {
    watchers: Arc<Watchers>,
    uid: u32,
    slices: bool,
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.slices {
            self.watchers.slices.fetch_sub(1, Ordering::Relaxed);
        }
        let mut users = self.watchers.users();
        if let Some(own) = users.get_mut(&self.uid) {
            *own -= 1;
        }
        users.retain(|_, own| *own > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_are_counted_while_they_watch() {
        let watchers = Arc::new(Watchers::default());
        let first = watchers.admit(0, true);
        let user = |place: usize| u32::try_from(place / Watchers::MOST_OF_USER).unwrap();
        let rest: Vec<_> =
            (1..Watchers::MOST).filter_map(|place| watchers.admit(user(place), false)).collect();
        assert!(watchers.any() && watchers.slices() && rest.len() == Watchers::MOST - 1);
        assert!(watchers.admit(99, false).is_none());
        drop(first);
        assert!(watchers.admit(1, false).is_none(), "this user has as many as one may have");
        assert!(watchers.any() && !watchers.slices() && watchers.admit(99, false).is_some());
        drop(rest);
        assert!(!watchers.any() && watchers.users().is_empty());
    }
}
