//! Clocks of a daemon: the machine's, and the cluster's as far as the daemon knows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kumi_control::message::Nanos;
use kumi_sched::ClusterTime;
use nix::time::{ClockId, clock_gettime};

/// The machine's monotonic clock, in nanoseconds; 0 if there is none (there always is on Linux).
pub fn monotonic() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

/// The same with the time in which the machine slept: leases go on then.
pub fn boottime() -> Nanos {
    read(ClockId::CLOCK_BOOTTIME)
}

/// How long the machine has slept since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuspendedTime(Nanos);

impl SuspendedTime {
    /// Until now.
    pub fn now() -> Self {
        let awake = monotonic();
        Self(boottime().saturating_sub(awake))
    }

    /// How long it has slept since `before`, if that is more than reading two clocks takes.
    pub fn since(self, before: Self) -> Option<Duration> {
        const READING: Nanos = 10_000_000;
        let slept = self.0.saturating_sub(before.0);
        (slept > READING).then(|| Duration::from_nanos(slept))
    }
}

fn read(clock: ClockId) -> Nanos {
    clock_gettime(clock).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    })
}

/// The name of the clock that [`monotonic`] reads: the same for all processes that read the same clock, and for no others.
/// Empty if the system does not tell.
pub fn name() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    name_of(&read("/proc/sys/kernel/random/boot_id"), &read("/proc/self/timens_offsets"))
}

/// The start of the machine, and by how much a time namespace (one with an offset) shows another time.
fn name_of(boot: &str, offsets: &str) -> String {
    let offset = offsets.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_ours = words.next().is_some_and(|word| word == "monotonic" || word == "1");
        is_ours.then(|| words.collect::<Vec<_>>().join("."))
    });
    let boot = boot.trim();
    match offset.filter(|offset| !boot.is_empty() && offset != "0.0") {
        Some(offset) => format!("{boot} {offset}"),
        None => boot.to_owned(),
    }
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
    fn a_clock_is_named_by_its_machine_and_its_offset() {
        let plain = "monotonic           0         0\nboottime            0         0\n";
        let shifted = "monotonic        -500         7\nboottime            0         0\n";
        assert_eq!(name_of("abc\n", ""), "abc");
        assert_eq!(name_of("abc\n", plain), "abc");
        assert_eq!(name_of("abc\n", shifted), "abc -500.7");
        assert_eq!(name_of("", shifted), "");
        assert_eq!(name(), name());
    }

    #[test]
    fn sleep_is_what_only_one_clock_counts() {
        let before = SuspendedTime(5_000_000_000);
        assert_eq!(SuspendedTime(5_000_500_000).since(before), None, "two clocks were read");
        assert_eq!(SuspendedTime(7_000_000_000).since(before), Some(Duration::from_secs(2)));
        assert_eq!(before.since(SuspendedTime(7_000_000_000)), None);
        assert_eq!(SuspendedTime::now().since(SuspendedTime::now()), None);
    }

    #[test]
    fn offsets_of_both_signs() {
        let clock = SharedClock::default();
        assert_eq!(clock.cluster(5), ClusterTime(5));
        clock.set(1_000, ClusterTime(400));
        assert_eq!(clock.cluster(1_600), ClusterTime(1_000));
        assert_eq!(clock.local(ClusterTime(1_000)), 1_600);
        clock.set(400, ClusterTime(1_000));
        assert_eq!(clock.local(clock.cluster(77)), 77);
        assert!(boottime() > 0);
        assert!(monotonic() > 0 && wall_ms() > 1_600_000_000_000);
    }
}
