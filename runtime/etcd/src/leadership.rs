//! Leadership of this process, and metrics of etcd.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// How long etcd may delay writes before new work is refused.
const SLOW: Duration = Duration::from_secs(5);

/// Metrics of requests to etcd.
#[derive(Debug, Default)]
pub struct EtcdMetrics {
    pub requests: Cell<u64>,
    pub errors: Cell<u64>,
    /// Requests that were answered, if only with a refusal.
    pub answers: Cell<u64>,
    /// Total time of answered requests, and the longest.
    pub time: Cell<Duration>,
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

/// Leadership of this process.
#[derive(Debug, Default)]
pub struct Leadership {
    /// Until when its lease certainly lasts. `None`: it follows.
    until: Cell<Option<Instant>>,
    /// The leader's address, as far as it is known.
    leader: RefCell<String>,
    pub figures: EtcdMetrics,
}

impl Leadership {
    /// Whether it certainly leads now.
    pub fn leads(&self) -> bool {
        self.until.get().is_some_and(|until| Instant::now() < until)
    }

    /// The leader's address. Empty: none is known, or this one is no longer sure to lead.
    pub fn leader(&self) -> String {
        let unsure = self.until.get().is_some() && !self.leads();
        if unsure { String::new() } else { self.leader.borrow().clone() }
    }

    /// It leads until then unless its lease is renewed.
    pub fn lead_until(&self, until: Instant, address: &str) {
        self.until.set(Some(until));
        address.clone_into(&mut self.leader.borrow_mut());
    }

    /// It follows this leader.
    pub fn follow(&self, leader: &str) {
        self.until.set(None);
        leader.clone_into(&mut self.leader.borrow_mut());
    }
}
