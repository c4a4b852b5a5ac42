//! Tickets and sessions: who a browser acts for.
//!
//! A user gets a ticket over the cluster's own sockets, where the kernel says who that is. A browser turns it into a session,
//! once and soon. Of both only hashes are kept, so that a look-up tells nothing by the time that it takes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kumi_control::message::User;
use ring::rand::{SecureRandom, SystemRandom};

/// How long a ticket may wait for its browser.
const TICKET: Duration = Duration::from_secs(300);
/// How long a session lasts without a request.
const SESSION: Duration = Duration::from_secs(12 * 3600);
/// Most tickets and most sessions of one user. One more drops the oldest.
const MOST_OF_USER: usize = 32;
/// Most of all.
const MOST: usize = 1024;

/// Who a browser acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// The user.
    pub user: User,
    /// Whether it may stop and kill jobs, as far as its user may.
    pub act: bool,
}

impl Visitor {
    /// Whether this user may bring the secrets of this visitor; always, if it is not known which one does.
    #[must_use]
    pub fn may_come(&self, by: Option<u32>) -> bool {
        by.is_none_or(|uid| uid == self.user.uid)
    }
}

/// The system gave no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system has no random numbers for a ticket")]
pub struct NoRandom;

type Hash = [u8; 32];

#[derive(Debug)]
struct Entry {
    visitor: Visitor,
    used: Instant,
}

/// Secrets of one kind with their ends.
#[derive(Debug)]
struct Secrets {
    entries: BTreeMap<Hash, Entry>,
    lasts: Duration,
}

impl Secrets {
    fn new(lasts: Duration) -> Self {
        Self { entries: BTreeMap::new(), lasts }
    }

    fn forget_old(&mut self, now: Instant) {
        let lasts = self.lasts;
        self.entries.retain(|_, entry| now.saturating_duration_since(entry.used) < lasts);
    }

    fn insert(&mut self, visitor: Visitor, now: Instant) -> Result<String, NoRandom> {
        self.forget_old(now);
        let own = |entry: &Entry| entry.visitor.user.uid == visitor.user.uid;
        if self.entries.values().filter(|entry| own(entry)).count() >= MOST_OF_USER {
            self.drop_oldest(own);
        }
        if self.entries.len() >= MOST {
            self.drop_oldest(|_| true);
        }
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandom)?;
        let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.entries.insert(hash(&secret), Entry { visitor, used: now });
        Ok(secret)
    }

    fn drop_oldest(&mut self, of: impl Fn(&Entry) -> bool) {
        let candidates = self.entries.iter().filter(|(_, entry)| of(entry));
        let oldest = candidates.min_by_key(|(_, entry)| entry.used).map(|(hash, _)| *hash);
        if let Some(oldest) = oldest {
            self.entries.remove(&oldest);
        }
    }
}

fn hash(secret: &str) -> Hash {
    *blake3::hash(secret.as_bytes()).as_bytes()
}

/// All tickets and sessions; lost when the head ends.
#[derive(Debug)]
pub struct Sessions {
    tickets: Mutex<Secrets>,
    sessions: Mutex<Secrets>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { tickets: Secrets::new(TICKET).into(), sessions: Secrets::new(SESSION).into() }
    }
}

fn lock(secrets: &Mutex<Secrets>) -> MutexGuard<'_, Secrets> {
    secrets.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    /// A ticket for a browser of this user.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn issue(&self, visitor: Visitor) -> Result<String, NoRandom> {
        lock(&self.tickets).insert(visitor, Instant::now())
    }

    /// Turns a ticket into a session; none if the ticket is unknown, used or too old, or not of the user who comes with it. If
    /// it is not known `by` whom it comes, anybody may.
    pub fn redeem(&self, ticket: &str, by: Option<u32>) -> Option<String> {
        let now = Instant::now();
        let visitor = {
            let (mut tickets, hash) = (lock(&self.tickets), hash(ticket));
            tickets.forget_old(now);
            tickets.entries.get(&hash).filter(|entry| entry.visitor.may_come(by))?;
            tickets.entries.remove(&hash)?.visitor
        };
        lock(&self.sessions).insert(visitor, now).ok()
    }

    /// Who has this session.
    pub fn visitor(&self, session: &str) -> Option<Visitor> {
        let now = Instant::now();
        let mut sessions = lock(&self.sessions);
        sessions.forget_old(now);
        let entry = sessions.entries.get_mut(&hash(session))?;
        entry.used = now;
        Some(entry.visitor.clone())
    }

    /// Whether there is this session still. To ask is no use of it.
    pub fn is_open(&self, session: &str) -> bool {
        let mut sessions = lock(&self.sessions);
        sessions.forget_old(Instant::now());
        sessions.entries.contains_key(&hash(session))
    }

    /// Ends a session.
    pub fn end(&self, session: &str) {
        lock(&self.sessions).entries.remove(&hash(session));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visitor(uid: u32) -> Visitor {
        Visitor { user: User { uid, gid: uid, name: String::new() }, act: uid == 1 }
    }

    #[test]
    fn a_session_ends_though_somebody_asks_for_it() {
        let sessions = Sessions::default();
        let ticket = sessions.issue(visitor(1)).unwrap();
        let session = sessions.redeem(&ticket, None).unwrap();
        let used = |sessions: &Sessions| lock(&sessions.sessions).entries[&hash(&session)].used;
        let before = used(&sessions);
        assert!(sessions.is_open(&session) && !sessions.is_open("no session"));
        assert_eq!(used(&sessions), before);
        assert!(sessions.visitor(&session).is_some() && used(&sessions) > before);
        sessions.end(&session);
        assert!(!sessions.is_open(&session));
    }

    #[test]
    fn a_ticket_serves_once() {
        let sessions = Sessions::default();
        let ticket = sessions.issue(visitor(1)).unwrap();
        assert_eq!(ticket.len(), 64);
        assert_eq!(sessions.visitor(&ticket), None, "a ticket is no session");
        let session = sessions.redeem(&ticket, None).unwrap();
        assert_eq!(sessions.redeem(&ticket, None), None);
        assert_eq!(sessions.redeem("no ticket", None), None);
        assert_eq!(sessions.visitor(&session), Some(visitor(1)));
        sessions.end(&session);
        assert_eq!(sessions.visitor(&session), None);
    }

    #[test]
    fn a_ticket_that_another_user_brings_stays_its_owners() {
        let sessions = Sessions::default();
        let ticket = sessions.issue(visitor(1)).unwrap();
        assert_eq!(sessions.redeem(&ticket, Some(2)), None);
        assert_eq!(sessions.redeem(&ticket, Some(0)), None);
        assert!(sessions.redeem(&ticket, Some(1)).is_some());
    }

    #[test]
    fn a_user_crowds_out_only_itself() {
        let sessions = Sessions::default();
        let other = sessions.issue(visitor(2)).unwrap();
        let tickets: Vec<String> =
            (0..=MOST_OF_USER).map(|_| sessions.issue(visitor(1)).unwrap()).collect();
        let good = tickets.iter().filter(|ticket| sessions.redeem(ticket, None).is_some()).count();
        assert_eq!((good, sessions.redeem(&other, None).is_some()), (MOST_OF_USER, true));
    }

    #[test]
    fn secrets_end() {
        let mut secrets = Secrets::new(TICKET);
        let now = Instant::now();
        secrets.insert(visitor(1), now).unwrap();
        secrets.forget_old(now + TICKET - Duration::from_secs(1));
        assert_eq!(secrets.entries.len(), 1);
        secrets.forget_old(now + TICKET);
        assert_eq!(secrets.entries.len(), 0);
    }
}
