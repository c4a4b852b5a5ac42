//! Strangers: so many at a time and no more, and each refusal costs a counter and at most a line a second in the log.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::socket::{SockaddrStorage, getpeername};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often refusals are logged at most.
const PAUSE: Duration = Duration::from_secs(1);

/// Connections that came to nothing, since the server began.
#[derive(Debug, Default)]
pub struct RefusalCounters {
    refused: AtomicU64,
    displaced: AtomicU64,
    silent: AtomicU64,
}

impl RefusalCounters {
    /// Those whose token was none, or that were one too many; and wishes of those who show a voucher that it is not for.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Those that were closed because too many others had not said who they are either.
    #[must_use]
    pub fn displaced(&self) -> u64 {
        self.displaced.load(Ordering::Relaxed)
    }

    /// Those that did not say who they are in time.
    #[must_use]
    pub fn silent(&self) -> u64 {
        self.silent.load(Ordering::Relaxed)
    }
}

/// Where connections are that have not said who they are yet, oldest first.
#[derive(Debug)]
pub struct HandshakeLimit {
    most: usize,
    waiting: RefCell<VecDeque<Rc<Notify>>>,
    counters: Arc<RefusalCounters>,
    told: Cell<Option<Instant>>,
    untold: Cell<u64>,
}

/// A connection that has not said who it is; it is known, or gone, when this is dropped.
#[derive(Debug)]
pub struct HandshakePermit {
    handshake_limit: Rc<HandshakeLimit>,
    out: Rc<Notify>,
}

impl HandshakeLimit {
    /// A door before which at most so many wait.
    pub fn new(most: usize, counters: Arc<RefusalCounters>) -> Rc<HandshakeLimit> {
        let (waiting, told, untold) = (RefCell::default(), Cell::default(), Cell::default());
        Rc::new(HandshakeLimit { most: most.max(1), waiting, counters, told, untold })
    }

    /// Somebody has come. If there are too many the one who has waited longest goes: one that belongs here needs
    /// some milliseconds, so it is rarely that one.
    pub fn arrive(self: &Rc<HandshakeLimit>) -> HandshakePermit {
        let mut waiting = self.waiting.borrow_mut();
        while waiting.len() >= self.most {
            if let Some(oldest) = waiting.pop_front() {
                self.counters.displaced.fetch_add(1, Ordering::Relaxed);
                oldest.notify_one();
            }
        }
        let out = Rc::new(Notify::new());
        waiting.push_back(Rc::clone(&out));
        HandshakePermit { handshake_limit: Rc::clone(self), out }
    }

    /// Somebody is not taken in.
    pub fn refused(&self, socket: &OwnedFd, why: &dyn fmt::Display) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        if self.told.get().is_some_and(|told| now < told + PAUSE) {
            self.untold.set(self.untold.get() + 1);
            return;
        }
        let from = getpeername::<SockaddrStorage>(socket.as_raw_fd())
            .map_or_else(|_| String::new(), |address| address.to_string());
        let more = self.untold.replace(0);
        self.told.set(Some(now));
        tracing::warn!(from, more, "a client was refused: {why}");
    }

    /// Somebody who was taken in for one thing wants another.
    pub fn overstepped(&self) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody has said nothing for too long.
    pub fn silent(&self) {
        self.counters.silent.fetch_add(1, Ordering::Relaxed);
    }
}

impl HandshakePermit {
    /// Waits until it has to go.
    pub async fn evicted(&self) {
        self.out.notified().await;
    }
}

/// Waits until a stranger has to go.
pub async fn evicted(handshake_permit: Option<&HandshakePermit>) {
    match handshake_permit {
        Some(handshake_permit) => handshake_permit.evicted().await,
        None => std::future::pending().await,
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.handshake_limit.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_oldest_goes_and_who_is_known_does_not_count() {
        let counters = Arc::<RefusalCounters>::default();
        let handshake_limit = HandshakeLimit::new(2, Arc::clone(&counters));
        let (first, second) = (handshake_limit.arrive(), handshake_limit.arrive());
        drop(second);
        let _third = handshake_limit.arrive();
        assert_eq!(counters.displaced(), 0, "one of three was known");
        let _fourth = handshake_limit.arrive();
        first.evicted().await;
        assert_eq!((counters.displaced(), handshake_limit.waiting.borrow().len()), (1, 2));
    }
}
