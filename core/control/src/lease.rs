//! Lease of a node: how long it may run jobs without hearing from the head.
//!
//! A part of the cluster that is cut off goes on switching its jobs by the last timetable, and
//! stops them when the lease runs out. The head calls a node lost after a shorter time, but starts
//! nothing again: a job that lost a node is over, so no job ever runs twice.

use crate::message::Nanos;

/// A node's side of the lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lease {
    until: Option<Nanos>,
    granted: Nanos,
}

impl Lease {
    /// No lease: nothing was granted yet, and nothing expires.
    pub fn new() -> Self {
        Self::default()
    }

    /// The head grants `nanos` from `now` on. A shorter grant than the last replaces it too.
    pub fn grant(&mut self, now: Nanos, nanos: Nanos) {
        self.granted = nanos;
        self.until = Some(now.saturating_add(nanos));
    }

    /// Another sign of life of the head: as much as the last grant is granted again, if there was
    /// one.
    pub fn renew(&mut self, now: Nanos) {
        if self.granted > 0 {
            self.until = Some(now.saturating_add(self.granted));
        }
    }

    /// When it expires; `None` when nothing is granted.
    pub fn until(&self) -> Option<Nanos> {
        self.until
    }

    /// Whether it has run out; true once, and then nothing is granted any more.
    pub fn take_expired(&mut self, now: Nanos) -> bool {
        let expired = self.until.is_some_and(|until| now >= until);
        if expired {
            self.until = None;
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expires_once_and_is_renewed() {
        let mut lease = Lease::new();
        lease.renew(5);
        assert!(!lease.take_expired(u64::MAX));
        lease.grant(10, 100);
        assert_eq!(lease.until(), Some(110));
        assert!(!lease.take_expired(109));
        lease.renew(50);
        assert!(!lease.take_expired(149));
        assert!(lease.take_expired(150));
        assert!(!lease.take_expired(151));
        lease.renew(200);
        assert_eq!(lease.until(), Some(300));
        lease.grant(u64::MAX - 1, 100);
        assert_eq!(lease.until(), Some(u64::MAX));
    }
}
