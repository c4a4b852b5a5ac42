//! What is known of etcd and of who leads, for clients and for whoever looks on.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// How long etcd may take to keep what is noted until new calls are refused.
const SLOW: Duration = Duration::from_secs(5);

/// Requests to etcd, in numbers.
#[derive(Debug, Default)]
pub struct EtcdMetrics {
    pub requests: Cell<u64>,
    pub errors: Cell<u64>,
    /// How many were answered, if only with a refusal.
    pub answers: Cell<u64>,
    /// The time of all that were answered, and of the longest.
    pub time: Cell<Duration>,
    pub longest: Cell<Duration>,
    /// What the last that failed said, and since when none has succeeded.
    trouble: RefCell<Option<(Instant, String)>>,
}

impl EtcdMetrics {
    /// A request is made.
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

    /// What should be written cannot be.
    pub fn stuck(&self, why: String) {
        let mut trouble = self.trouble.borrow_mut();
        let since = trouble.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *trouble = Some((since, why));
    }

    /// It can be written again.
    pub fn runs(&self) {
        *self.trouble.borrow_mut() = None;
    }

    /// Why nothing is written.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().as_ref().map(|(_, why)| why.clone())
    }

    /// Why nothing has been written for so long that calls are better tried later.
    pub fn long_trouble(&self) -> Option<String> {
        let trouble = self.trouble.borrow();
        trouble.as_ref().filter(|(since, _)| since.elapsed() >= SLOW).map(|(_, why)| why.clone())
    }
}

/// Whether this metaserver leads.
#[derive(Debug, Default)]
pub struct Leadership {
    /// Until when its lease lasts for certain; `None`: it follows.
    until: Cell<Option<Instant>>,
    /// The address of the leader, as far as it is known.
    leader: RefCell<String>,
    pub figures: EtcdMetrics,
}

impl Leadership {
    /// Whether it leads now for certain.
    pub fn leads(&self) -> bool {
        self.until.get().is_some_and(|until| Instant::now() < until)
    }

    /// The address of the leader; empty: none is known, or this one is not sure any more.
    pub fn leader(&self) -> String {
        let unsure = self.until.get().is_some() && !self.leads();
        if unsure { String::new() } else { self.leader.borrow().clone() }
    }

    /// It leads until then, if its lease is not made longer.
    pub fn lead_until(&self, until: Instant, address: &str) {
        self.until.set(Some(until));
        address.clone_into(&mut self.leader.borrow_mut());
    }

    /// It follows.
    pub fn follow(&self, leader: &str) {
        self.until.set(None);
        leader.clone_into(&mut self.leader.borrow_mut());
    }
}
