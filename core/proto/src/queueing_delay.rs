//! Delay as a signal of congestion: queues in the network, measured by how much round trips exceed the
//! shortest. In the spirit of Vegas (Brakmo and Peterson) and Swift (Kumar and others).

use crate::Micros;
use crate::context::Flag;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Rounds above the target in a row before it is believed: a peer that was not scheduled, or stopped, makes
/// one.
const BELIEVED: u8 = 2;
/// Rounds after which the older half of the records of the shortest round trip is forgotten.
const FORGET: u16 = 4_096;
/// How often senders hold back, and for how long, in multiples of the target; the period is rounded up
/// to a power of two. Queues empty then, and a sender that has only ever met full queues learns the
/// shortest round trip.
const PERIOD: u64 = 256;
const HOLD: u64 = 3;

/// Whether a rank whose clock shows `now` makes senders hold back: its own, and those to it.
pub(crate) fn holds(now: Micros, target: Micros) -> bool {
    let period = target.saturating_mul(PERIOD).checked_next_power_of_two().unwrap_or(1 << 63);
    now & (period - 1) < target.saturating_mul(HOLD)
}

/// Least reduction, of 1,000.
const LEAST_CUT: u32 = 125;

/// Verdict of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueVerdict {
    /// Nothing queues: the window may grow by so many packets.
    Free(u32),
    /// Some queue: the window may grow by one packet.
    Some,
    /// More than that: it must not grow.
    Enough,
    /// Too much: the window shrinks by so many of 1,000.
    TooMuch(u32),
}

/// Round trips of one peer, in microseconds, round by round. A round lasts until a packet is acked that
/// was sent after it began.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct DelayMonitor {
    /// Shortest round trip of these and of the rounds before.
    base: [u32; 2],
    /// Transmissions from this one on end the round.
    end: u32,
    /// Shortest of this round, sum of all, and how many.
    least: u32,
    sum: u32,
    count: u32,
    rounds: u16,
    /// Rounds in a row above the target.
    above: u8,
    /// Packets waited for the window in this round.
    limited: Flag,
    /// There was a queue in the last round in which nobody held back.
    standing: Flag,
    /// This sender held back in the last round.
    held: Flag,
    /// The last round had a queue of half the target.
    saturated: Flag,
    /// The last round found too long a queue for the window to grow.
    pub(crate) full: Flag,
}

impl DelayMonitor {
    /// The first round ends with transmission `next`.
    pub(crate) const fn new(next: u32) -> Self {
        Self {
            base: [u32::MAX; 2],
            end: next,
            least: u32::MAX,
            sum: 0,
            count: 0,
            rounds: 0,
            above: 0,
            limited: Flag::CLEAR,
            standing: Flag::CLEAR,
            held: Flag::CLEAR,
            saturated: Flag::CLEAR,
            full: Flag::CLEAR,
        }
    }

    /// The window is full.
    pub(crate) fn limited(&mut self) {
        self.limited = Flag::SET;
    }

    /// Packets queue in the network: long runs are to be spread.
    pub(crate) fn saturated(&self) -> bool {
        self.saturated.get()
    }

    /// A packet with this round trip queued for less than it was under way.
    pub(crate) fn is_quick(&self, sample: u32) -> bool {
        sample / 2 <= self.base[0].min(self.base[1])
    }

    /// There is a queue that holding back would empty.
    pub(crate) fn standing(&self) -> bool {
        self.standing.get()
    }

    /// Takes a round trip of `sample` microseconds of transmission `acked`; `next` is the number of the
    /// next transmission. `held`: this sender holds back. Returns a verdict at the end of a round in
    /// which the window was full.
    pub(crate) fn sample(
        &mut self,
        sample: u32,
        acked: u32,
        next: u32,
        window: u32,
        target: u32,
        held: bool,
    ) -> Option<QueueVerdict> {
        self.least = self.least.min(sample);
        self.sum = self.sum.saturating_add(sample);
        self.count += 1;
        if acked.wrapping_sub(self.end).cast_signed() < 0 {
            return None;
        }
        let least = core::mem::replace(&mut self.least, u32::MAX);
        // The mean: the shortest of many is shorter than that of few, so small windows would yield.
        let mean = core::mem::take(&mut self.sum) / core::mem::take(&mut self.count);
        self.end = next;
        self.base[0] = self.base[0].min(least);
        self.rounds += 1;
        if self.rounds >= FORGET {
            self.rounds = 0;
            self.base = [least, self.base[0]];
        }
        let queue = mean - self.base[0].min(self.base[1]).min(mean);
        let limited = self.limited.take();
        // The round after it has packets from before its end.
        if core::mem::replace(&mut self.held, held.into()).get() || held {
            return None;
        }
        self.saturated.set(limited && queue >= target / 2);
        self.standing.set(limited && queue > target / 8);
        if !limited {
            self.above = 0;
            return None;
        }
        self.above = if queue > target { self.above.saturating_add(1) } else { 0 };
        Some(verdict(queue, mean, target, window, self.above >= BELIEVED))
    }
}

fn verdict(queue: u32, mean: u32, target: u32, window: u32, believed: bool) -> QueueVerdict {
    if queue > target {
        if !believed {
            return QueueVerdict::Enough;
        }
        // As Swift: the more above, the more, at most by half; and at least by so much that flows become
        // equal in good time.
        let permille = u64::from(queue - target) * 500 / u64::from(queue);
        return QueueVerdict::TooMuch((permille as u32).max(LEAST_CUT));
    }
    if queue >= target / 2 {
        return QueueVerdict::Some;
    }
    // As many packets as add an eighth of the target to the queue.
    let add = u64::from(window) * u64::from(target) / (8 * u64::from(mean.max(1)));
    QueueVerdict::Free((add as u32).clamp(1, window))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One round of packets that all take `sample` microseconds.
    fn round(delay: &mut DelayMonitor, at: &mut u32, sample: u32) -> Option<QueueVerdict> {
        delay.limited();
        *at += 10;
        delay.sample(sample, *at - 1, *at, 100, 500, false)
    }

    #[test]
    fn a_round_that_is_slow_once_is_no_congestion() {
        let (mut delay, mut at) = (DelayMonitor::new(0), 0);
        for _ in 0..20 {
            assert_eq!(round(&mut delay, &mut at, 100), Some(QueueVerdict::Free(62)));
            assert_eq!(round(&mut delay, &mut at, 9_000), Some(QueueVerdict::Enough));
        }
    }

    #[test]
    fn a_queue_that_stays_shrinks_the_window_by_its_length() {
        let (mut delay, mut at) = (DelayMonitor::new(0), 0);
        round(&mut delay, &mut at, 100);
        assert_eq!(round(&mut delay, &mut at, 400), Some(QueueVerdict::Some));
        assert!(delay.saturated());
        round(&mut delay, &mut at, 700);
        assert_eq!(round(&mut delay, &mut at, 700), Some(QueueVerdict::TooMuch(125)));
        assert_eq!(round(&mut delay, &mut at, 100_000), Some(QueueVerdict::TooMuch(497)));
    }

    #[test]
    fn a_round_counts_as_a_whole_and_only_if_the_window_was_full() {
        let (mut delay, mut at) = (DelayMonitor::new(0), 0);
        round(&mut delay, &mut at, 100);
        assert_eq!(delay.sample(5_000, at - 1, at + 1, 100, 500, false), None, "the round goes on");
        assert_eq!(delay.sample(150, at, at + 2, 100, 500, false), None, "nothing waited");
        assert!(!delay.saturated());
    }

    #[test]
    fn who_holds_back_learns_the_shortest_round_trip() {
        let (mut delay, mut at) = (DelayMonitor::new(0), 0);
        // Came when others had filled the queue.
        assert_eq!(round(&mut delay, &mut at, 600), Some(QueueVerdict::Free(10)));
        assert_eq!(round(&mut delay, &mut at, 700), Some(QueueVerdict::Free(8)));
        assert!(delay.standing());
        assert_eq!(delay.sample(100, at, at + 1, 1, 500, true), None);
        assert!(delay.standing(), "it still is, when nobody holds back");
        at += 1;
        assert_eq!(round(&mut delay, &mut at, 300), None);
        assert_eq!(round(&mut delay, &mut at, 700), Some(QueueVerdict::Enough));
        assert!(holds(0, 500) && holds(1_499, 500) && holds(131_072, 500));
        assert!(!holds(1_500, 500) && !holds(131_071, 500) && !holds(0, 0));
    }

    #[test]
    fn a_longer_path_is_believed_in_the_end() {
        let (mut delay, mut at) = (DelayMonitor::new(0), 0);
        round(&mut delay, &mut at, 100);
        for _ in 0..2 * FORGET {
            round(&mut delay, &mut at, 3_000);
        }
        assert_eq!(round(&mut delay, &mut at, 3_000), Some(QueueVerdict::Free(2)));
    }

    /// The verdict of a round on a path of 100 us with such a queue, with a target of 800, and what is known then.
    fn after(queue: u32) -> (Option<QueueVerdict>, bool, bool) {
        let mut delay = DelayMonitor::new(0);
        delay.limited();
        delay.sample(100, 1, 2, 40, 800, false);
        delay.limited();
        let verdict = delay.sample(100 + queue, 2, 3, 40, 800, false);
        (verdict, delay.standing(), delay.saturated())
    }

    #[test]
    fn queues_are_judged_by_eighth_half_and_whole_of_the_target() {
        // 40 packets * 800 / (8 * round trip).
        assert_eq!(after(0), (Some(QueueVerdict::Free(40)), false, false));
        assert_eq!(after(100), (Some(QueueVerdict::Free(20)), false, false));
        assert_eq!(after(101), (Some(QueueVerdict::Free(19)), true, false));
        assert_eq!(after(399), (Some(QueueVerdict::Free(8)), true, false));
        assert_eq!(after(400), (Some(QueueVerdict::Some), true, true));
        assert_eq!(after(800), (Some(QueueVerdict::Some), true, true));
        assert_eq!(after(801), (Some(QueueVerdict::Enough), true, true));
    }

    #[test]
    fn a_round_has_the_mean_of_its_round_trips_and_ends_with_the_next_ones_first() {
        let mut delay = DelayMonitor::new(0);
        delay.limited();
        assert!(delay.sample(100, 5, 10, 40, 800, false).is_some());
        delay.limited();
        // 5 to 9 were sent before 10, at which this round ends.
        assert_eq!(delay.sample(200, 8, 12, 40, 800, false), None);
        assert_eq!(delay.sample(1_000, 9, 14, 40, 800, false), None);
        // The mean is 500 and the queue 400; of the last one alone there would be none.
        assert_eq!(delay.sample(300, 10, 16, 40, 800, false), Some(QueueVerdict::Some));
        delay.limited();
        assert_eq!(delay.sample(100, 15, 20, 40, 800, false), None);
        assert_eq!(delay.sample(100, 16, 20, 40, 800, false), Some(QueueVerdict::Free(40)));
    }

    #[test]
    fn numbers_of_transmissions_come_round() {
        let mut delay = DelayMonitor::new(0);
        delay.sample(100, 1 << 30, 3 << 30, 40, 800, false);
        delay.sample(100, 3 << 30, 3, 40, 800, false);
        delay.limited();
        assert_eq!(delay.sample(100, u32::MAX, 5, 40, 800, false), None);
        assert_eq!(delay.sample(100, 2, 5, 40, 800, false), None);
        assert!(delay.sample(100, 3, 5, 40, 800, false).is_some());
    }

    #[test]
    fn a_round_that_did_not_fill_the_window_breaks_the_row() {
        let (mut delay, mut at) = (DelayMonitor::new(0), 0);
        round(&mut delay, &mut at, 100);
        for _ in 0..5 {
            assert_eq!(round(&mut delay, &mut at, 700), Some(QueueVerdict::Enough));
            at += 10;
            assert_eq!(delay.sample(700, at - 1, at, 100, 500, false), None);
        }
    }

    #[test]
    fn the_shortest_round_trip_is_kept_for_almost_two_periods() {
        let (mut delay, mut at) = (DelayMonitor::new(0), 0);
        round(&mut delay, &mut at, 100);
        for _ in 1..2 * FORGET - 1 {
            let verdict = round(&mut delay, &mut at, 3_000);
            assert!(matches!(verdict, Some(QueueVerdict::Enough | QueueVerdict::TooMuch(_))));
        }
        assert_eq!(round(&mut delay, &mut at, 3_000), Some(QueueVerdict::Free(2)));
    }
}
