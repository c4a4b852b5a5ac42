//! Pacer of one peer: spreads long runs over the round trip while packets queue in the network.

use super::NEVER;
use crate::Micros;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of a burst that may leave at once, in microseconds.
const QUANTUM: Micros = 100;

/// When the next run may leave, while the network is saturated.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Pacer {
    /// Time by which the packets sent so far should have left at the pace.
    pub(super) paid: Micros,
    /// Something waits for that.
    pub(super) wake: Micros,
}

impl Pacer {
    pub(super) const fn new() -> Self {
        Self { paid: 0, wake: NEVER }
    }

    /// How many packets may leave now; with 0, none before `wake`. In all, `window` packets and a
    /// quarter more leave in a round trip, so that the pace never is the limit.
    pub(super) fn budget(&mut self, now: Micros, window: u32, round_trip: Micros) -> usize {
        if self.paid > now {
            self.wake = self.paid;
            return 0;
        }
        let packets = u64::from(window) * QUANTUM * 5 / (4 * round_trip.max(1));
        usize::try_from(packets).unwrap_or(usize::MAX).max(1)
    }

    /// Notes that `count` packets leave now. A sender that is late by less than a round trip catches
    /// up.
    pub(super) fn left(&mut self, now: Micros, count: usize, window: u32, round_trip: Micros) {
        let time = count as u64 * round_trip * 4 / (5 * u64::from(window.max(1)));
        self.paid = self.paid.max(now.saturating_sub(round_trip)).saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_leaves_in_four_fifths_of_a_round_trip() {
        let mut pace = Pacer::new();
        let (window, round_trip) = (50, 1_000);
        let (mut now, mut sent) = (10_000, 0);
        pace.paid = now;
        while sent < 500 {
            let count = pace.budget(now, window, round_trip);
            if count == 0 {
                now = pace.wake;
                continue;
            }
            assert!(count <= 6, "runs of a tenth of a round trip");
            pace.left(now, count, window, round_trip);
            sent += count;
        }
        assert!((7_800..=8_200).contains(&(now - 10_000)), "{now}");
    }

    #[test]
    fn who_is_late_catches_up_for_a_round_trip_at_most() {
        let mut pace = Pacer::new();
        pace.left(50_000, 10, 10, 1_000);
        assert_eq!(pace.paid, 49_800);
        assert_eq!(pace.budget(50_000, 10, 1_000), 1);
        pace.left(50_000, 10, 10, 1_000);
        assert_eq!((pace.budget(50_000, 10, 1_000), pace.wake), (0, 50_600));
    }
}
