//! Clocks of a daemon: the machine's, and the cluster's as far as the daemon knows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use kumi_control::message::Nanos;
use kumi_sched::ClusterTime;
use nix::time::{ClockId, clock_gettime};

/// The machine's monotonic clock, in nanoseconds; 0 if there is none (there always is on Linux).
pub fn monotonic() -> Nanos {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    })
}

/// Milliseconds since the epoch.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The cluster's clock as an offset to the machine's, shared by the control thread, which corrects
/// it, and the switching thread, which reads it.
#[derive(Clone, Debug, Default)]
pub struct SharedClock(Arc<AtomicI64>);

impl SharedClock {
    /// Sets the offset: at `local` on the machine's clock the cluster's shows `cluster`.
    pub fn set(&self, local: Nanos, cluster: ClusterTime) {
        self.0.store(cluster.0.wrapping_sub(local).cast_signed(), Ordering::Relaxed);
    }

    /// The cluster's time at `local`.
    pub fn cluster(&self, local: Nanos) -> ClusterTime {
        ClusterTime(local.saturating_add_signed(self.0.load(Ordering::Relaxed)))
    }

    /// The machine's time when the cluster's is `time`.
    pub fn local(&self, time: ClusterTime) -> Nanos {
        let offset = self.0.load(Ordering::Relaxed);
        time.0.saturating_add_signed(offset.saturating_neg())
    }

    /// The cluster's time now.
    pub fn now(&self) -> ClusterTime {
        self.cluster(monotonic())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_both_signs() {
        let clock = SharedClock::default();
        assert_eq!(clock.cluster(5), ClusterTime(5));
        clock.set(1_000, ClusterTime(400));
        assert_eq!(clock.cluster(1_600), ClusterTime(1_000));
        assert_eq!(clock.local(ClusterTime(1_000)), 1_600);
        clock.set(400, ClusterTime(1_000));
        assert_eq!(clock.local(clock.cluster(77)), 77);
        assert!(monotonic() > 0 && wall_ms() > 1_600_000_000_000);
    }
}
