//! Leadership of this process, and metrics of etcd.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kumi_leadership::{Nanos, Term};

use super::clock;

/// How long etcd may delay writes before new work is refused.
const SLOW: Duration = Duration::from_secs(5);

/// Metrics of requests to etcd.
#[derive(Debug, Default)]
pub struct EtcdMetrics {
    /// Requests.
    pub requests: Cell<u64>,
    /// Those that failed.
    pub errors: Cell<u64>,
    /// Requests that were answered, if only with a refusal.
    pub answers: Cell<u64>,
    /// Total time of answered requests.
    pub time: Cell<Duration>,
    /// The longest of them.
    pub longest: Cell<Duration>,
    /// The latest error, and since when no request has succeeded.
    trouble: RefCell<Option<(Instant, String)>>,
}

impl EtcdMetrics {
    /// A request begins.
    pub fn asked(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// A request was answered, if only with a refusal.
    pub fn answered(&self, took: Duration) {
        self.answers.set(self.answers.get() + 1);
        self.time.set(self.time.get() + took);
        self.longest.set(self.longest.get().max(took));
    }

    /// A request failed.
    pub fn failed(&self) {
        self.errors.set(self.errors.get() + 1);
    }

    /// A write failed.
    pub fn stuck(&self, why: String) {
        let mut trouble = self.trouble.borrow_mut();
        let since = trouble.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *trouble = Some((since, why));
    }

    /// Writes succeed again.
    pub fn runs(&self) {
        *self.trouble.borrow_mut() = None;
    }

    /// Why nothing is written.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().as_ref().map(|(_, why)| why.clone())
    }

    /// Why nothing has been written for so long that clients should try later.
    pub fn long_trouble(&self) -> Option<String> {
        let trouble = self.trouble.borrow();
        trouble.as_ref().filter(|(since, _)| since.elapsed() >= SLOW).map(|(_, why)| why.clone())
    }
}

/// Until when this process certainly leads, for all of its threads. 0: it follows.
#[derive(Clone, Debug, Default)]
pub struct Certainty(Arc<AtomicU64>);

impl Certainty {
    /// Of a process that leads for ever, since it is the only one.
    #[must_use]
    pub fn for_ever() -> Certainty {
        Certainty(Arc::new(AtomicU64::new(Nanos::MAX)))
    }

    /// Whether it certainly leads now. To be asked right before acting.
    #[must_use]
    pub fn leads(&self) -> bool {
        clock::now() < self.0.load(Ordering::Acquire)
    }

    fn is_known(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    fn set(&self, until: Nanos) {
        self.0.store(until, Ordering::Release);
    }
}

/// Leadership of this process.
#[derive(Debug, Default)]
pub struct Leadership {
    certainty: Certainty,
    /// The leader's address, as far as it is known.
    leader: RefCell<String>,
    /// Requests of this process to etcd.
    pub figures: EtcdMetrics,
}

impl Leadership {
    /// Whether it certainly leads now.
    pub fn leads(&self) -> bool {
        self.certainty.leads()
    }

    /// The leader's address. Empty: none is known, or this one is no longer sure to lead.
    pub fn leader(&self) -> String {
        let unsure = self.certainty.is_known() && !self.leads();
        if unsure { String::new() } else { self.leader.borrow().clone() }
    }

    /// The same for other threads, now and later.
    pub fn certainty(&self) -> Certainty {
        self.certainty.clone()
    }

    /// It leads for this term.
    pub fn lead(&self, term: &Term, address: &str) {
        self.certainty.set(term.sure_until());
        address.clone_into(&mut self.leader.borrow_mut());
    }

    /// It follows this leader.
    pub fn follow(&self, leader: &str) {
        self.certainty.set(0);
        leader.clone_into(&mut self.leader.borrow_mut());
    }
}
