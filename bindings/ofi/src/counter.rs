//! Counters of operations that are over.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::doorbell::Doorbell;
use crate::engine::Errno;
use crate::idle;

/// Successes and failures, both as 64 bits that wrap.
#[derive(Debug)]
pub struct Counter {
    successes: AtomicU64,
    failures: AtomicU64,
    doorbell: Option<Doorbell>,
}

impl Counter {
    /// Zeroes. With `descriptor` it has one that is readable after changes.
    ///
    /// # Errors
    /// The system's error if there are too many descriptors.
    pub fn new(descriptor: bool) -> Result<Counter, Errno> {
        let doorbell = descriptor.then(Doorbell::new).transpose()?;
        Ok(Counter { successes: AtomicU64::new(0), failures: AtomicU64::new(0), doorbell })
    }

    fn changed(&self) {
        idle::note_event();
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }

    /// Counts so many successes.
    pub fn add(&self, count: u64) {
        self.successes.fetch_add(count, Ordering::AcqRel);
        self.changed();
    }

    /// Counts so many failures.
    pub fn add_failures(&self, count: u64) {
        self.failures.fetch_add(count, Ordering::AcqRel);
        self.changed();
    }

    /// Replaces the successes.
    pub fn set(&self, count: u64) {
        self.successes.store(count, Ordering::Release);
        self.changed();
    }

    /// Replaces the failures.
    pub fn set_failures(&self, count: u64) {
        self.failures.store(count, Ordering::Release);
        self.changed();
    }

    /// Successes.
    #[must_use]
    pub fn successes(&self) -> u64 {
        self.successes.load(Ordering::Acquire)
    }

    /// Failures.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// What programs poll, if the counter was made so.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.doorbell.as_ref().map(Doorbell::descriptor)
    }

    /// Whether a program may sleep on the descriptor: nothing has changed since it asked the last time.
    pub fn may_sleep(&self) -> bool {
        self.doorbell.as_ref().is_some_and(|doorbell| !doorbell.clear())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successes_and_failures_are_counted_apart() {
        let counter = Counter::new(false).unwrap();
        counter.add(2);
        counter.add_failures(1);
        counter.add(3);
        assert_eq!((counter.successes(), counter.failures()), (5, 1));
        counter.set(9);
        counter.set_failures(0);
        assert_eq!((counter.successes(), counter.failures()), (9, 0));
    }

    #[test]
    fn a_change_is_told_once_to_a_program_that_would_sleep() {
        let counter = Counter::new(true).unwrap();
        assert!(counter.may_sleep());
        counter.add(1);
        assert!(!counter.may_sleep());
        assert!(counter.may_sleep());
    }
}
