//! How long before a tick the switching thread wakes: as long as waking takes here, so that it is ready at the tick.
//!
//! Nodes then switch at the same instant, and what a switch has to look up is looked up before it, while the old job would still
//! have its turn.

/// Time for working out what is to be done, with everything out of the caches, in nanoseconds.
const PREPARE: u64 = 16_000;
/// Most that it wakes early: a machine that wakes later than that is disturbed.
pub(super) const MOST: u64 = 60_000;
/// It takes one part in so many of the time until the tick at most.
const PART: u64 = 64;
/// With so much time left calls of the system are rehearsed.
pub(super) const REHEARSAL: u64 = 6_000;
/// One wake-up counts as one part in so many of what is known.
const WEIGHT: u64 = 8;

/// The mean lateness of wake-ups.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WakeupLead {
    late: u64,
}

impl WakeupLead {
    /// How long before a tick that is so many nanoseconds away to wake.
    pub(super) fn of(self, left: u64) -> u64 {
        (self.late + PREPARE).min(MOST).min(left / PART)
    }

    /// Learns that a wake-up came so many nanoseconds late.
    pub(super) fn learn(&mut self, late: u64) {
        let late = late.min(MOST);
        self.late = self.late - self.late / WEIGHT + late / WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_wake_ups_within_bounds() {
        let mut lead = WakeupLead::default();
        assert_eq!(lead.of(10_000_000), PREPARE);
        (0..64).for_each(|_| lead.learn(24_000));
        assert!((PREPARE + 23_000..=PREPARE + 24_000).contains(&lead.of(10_000_000)));
        // Of short slices it takes little, and who is never in time is waited for no longer.
        assert_eq!(lead.of(250_000), 250_000 / PART);
        (0..100).for_each(|_| lead.learn(u64::MAX));
        assert_eq!((lead.of(u64::MAX), lead.of(0)), (MOST, 0));
        (0..100).for_each(|_| lead.learn(0));
        assert!(lead.of(10_000_000) < PREPARE + WEIGHT);
    }
}
