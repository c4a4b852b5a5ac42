//! Lease of a node: how long it may run jobs without hearing from the head.
//!
//! A part of the cluster that is cut off goes on switching its jobs by the last timetable, and
//! stops them when the lease runs out. The head calls a node lost after a shorter time. A job that
//! lost a node stays *ending* until that node's lease is over: when the head calls it ended, nothing
//! of it runs anywhere.
//!
//! A lease ends at a time of the cluster's clock. So a message that waits for a node that was
//! stopped, or in a slow link, grants nothing beyond what the head meant. It also lasts no longer than
//! its length from receipt, whatever the node's idea of the cluster's clock is. A lease that is over ends the jobs
//! before a later grant is looked at. A machine that slept gives its link up, since its idea of that clock is behind.

use kumi_sched::ClusterTime;

use crate::message::Nanos;

/// A node's side of the lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lease {
    until: Option<Nanos>,
}

impl Lease {
    /// No lease: nothing was granted yet, and nothing expires.
    pub fn new() -> Self {
        Self::default()
    }

    /// The head grants `nanos`, until `until` of the cluster's clock, which shows `cluster` at `now`.
    /// What is over already, by that clock, grants nothing.
    pub fn grant(&mut self, now: Nanos, cluster: ClusterTime, until: ClusterTime, nanos: Nanos) {
        let left = until.0.saturating_sub(cluster.0).min(nanos);
        if left > 0 {
            self.until = Some(now.saturating_add(left));
        }
    }

    /// One that was granted before, until `until`.
    pub fn restore(&mut self, until: Nanos) {
        self.until = Some(until);
    }

    /// When it expires; `None` when nothing was granted.
    pub fn until(&self) -> Option<Nanos> {
        self.until
    }

    /// Whether there was one that has run out.
    pub fn is_over(&self, now: Nanos) -> bool {
        self.until.is_some_and(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_at_a_time_of_the_cluster_however_long_the_message_took() {
        let mut lease = Lease::new();
        assert!(!lease.is_over(u64::MAX), "nothing was granted");
        lease.grant(10, ClusterTime(1_000), ClusterTime(1_100), 100);
        assert_eq!(lease.until(), Some(110));
        assert!(!lease.is_over(109) && lease.is_over(110));
        // Thirty on its way.
        lease.grant(90, ClusterTime(1_130), ClusterTime(1_200), 100);
        assert_eq!(lease.until(), Some(160));
        // Longer than the lease: it grants nothing, and takes nothing.
        lease.grant(100, ClusterTime(1_300), ClusterTime(1_250), 100);
        assert_eq!(lease.until(), Some(160));
        // A clock that is far behind.
        lease.grant(200, ClusterTime(5), ClusterTime(1_400), 100);
        assert_eq!(lease.until(), Some(300));
        lease.grant(u64::MAX - 1, ClusterTime(0), ClusterTime(100), 100);
        assert_eq!(lease.until(), Some(u64::MAX));
    }
}
