//! Limit on connections that have not identified themselves, with counters and rate-limited logs of refusals.

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

/// Shortest time between two log lines on refusals.
const PAUSE: Duration = Duration::from_secs(1);

/// Connections refused, displaced or timed out since the server began.
#[derive(Debug, Default)]
pub struct RefusalCounters {
    refused: AtomicU64,
    displaced: AtomicU64,
    silent: AtomicU64,
}

impl RefusalCounters {
    /// Connections with an unknown token or beyond the limit, and requests that a voucher does not permit.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Connections that were closed because too many others were unidentified too.
    #[must_use]
    pub fn displaced(&self) -> u64 {
        self.displaced.load(Ordering::Relaxed)
    }

    /// Connections that did not identify themselves in time.
    #[must_use]
    pub fn silent(&self) -> u64 {
        self.silent.load(Ordering::Relaxed)
    }
}

/// The unidentified connections, oldest first.
#[derive(Debug)]
pub struct HandshakeLimit {
    most: usize,
    waiting: RefCell<VecDeque<Rc<Notify>>>,
    counters: Arc<RefusalCounters>,
    last_logged: Cell<Option<Instant>>,
    unlogged: Cell<u64>,
}

/// Permit of an unidentified connection. Dropped when the connection is identified or gone.
#[derive(Debug)]
pub struct HandshakePermit {
    handshake_limit: Rc<HandshakeLimit>,
    out: Rc<Notify>,
}

impl HandshakeLimit {
    /// A limit of this many unidentified connections.
    pub fn new(most: usize, counters: Arc<RefusalCounters>) -> Rc<HandshakeLimit> {
        let (waiting, last_logged, unlogged) =
            (RefCell::default(), Cell::default(), Cell::default());
        Rc::new(HandshakeLimit { most: most.max(1), waiting, counters, last_logged, unlogged })
    }

    /// Admits a connection. If there are too many, the oldest is evicted: an honest client identifies itself
    /// within milliseconds, so it is rarely the victim.
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

    /// Counts and logs a refused connection.
    pub fn refused(&self, socket: &OwnedFd, why: &dyn fmt::Display) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        if self.last_logged.get().is_some_and(|last_logged| now < last_logged + PAUSE) {
            self.unlogged.set(self.unlogged.get() + 1);
            return;
        }
        let from = getpeername::<SockaddrStorage>(socket.as_raw_fd())
            .map_or_else(|_| String::new(), |address| address.to_string());
        let more = self.unlogged.replace(0);
        self.last_logged.set(Some(now));
        tracing::warn!(from, more, "a client was refused: {why}");
    }

    /// Counts a request that the connection's voucher does not permit.
    pub fn overstepped(&self) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that was silent for too long.
    pub fn silent(&self) {
        self.counters.silent.fetch_add(1, Ordering::Relaxed);
    }
}

impl HandshakePermit {
    /// Waits until this connection is evicted.
    pub async fn evicted(&self) {
        self.out.notified().await;
    }
}

/// Waits until the connection is evicted, if it is unidentified.
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
