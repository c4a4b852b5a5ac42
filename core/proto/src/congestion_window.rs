//! Congestion window of one peer: additive increase, multiplicative decrease by losses and by queues in
//! the network.

use crate::Micros;
use crate::queueing_delay::{DelayMonitor, QueueVerdict};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Least window, in packets.
const LEAST: u32 = 2;
/// More transmissions than can be under way at once.
const NEAR: u32 = 1 << 16;

/// Congestion window of one peer, in packets.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct CongestionWindow {
    window: u16,
    threshold: u16,
    /// The window before the last reduction.
    before: u16,
    most: u16,
    /// Packets acked towards the next growth by one.
    credit: u32,
    /// Losses of packets transmitted before this transmission belong to the reduction already made.
    recovery: u32,
    delay: DelayMonitor,
}

impl CongestionWindow {
    /// For a sender whose next transmission is `next`; `most` is at most 1,024.
    pub(crate) fn new(initial: u32, most: u32, next: u32) -> Self {
        let window = short(initial.clamp(LEAST, most));
        Self {
            window,
            threshold: short(most),
            before: window,
            most: short(most),
            credit: 0,
            recovery: next,
            delay: DelayMonitor::new(next),
        }
    }

    pub(crate) fn window(&self) -> u32 {
        u32::from(self.window)
    }

    /// Sets it, within its bounds.
    fn set_window(&mut self, packets: u32) {
        self.window = short(packets.max(LEAST).min(self.most()));
    }

    /// The greatest that the window can become.
    #[inline]
    pub(crate) fn most(&self) -> u32 {
        u32::from(self.most)
    }

    /// From now on it can become twice as large.
    pub(crate) fn raise_most(&mut self) {
        self.most = self.most.saturating_mul(2);
        self.threshold = self.threshold.max(self.most);
    }

    /// The same while this sender is to hold back if there is a queue.
    pub(crate) fn held(&self) -> u32 {
        if self.delay.standing() { 1 } else { self.window() }
    }

    /// The window is full.
    pub(crate) fn limited(&mut self) {
        self.delay.limited();
    }

    /// Packets queue in the network: long runs are to be spread.
    pub(crate) fn saturated(&self) -> bool {
        self.delay.saturated()
    }

    /// Takes the round trip of transmission `acked`; `next` is the number of the next transmission. A
    /// queue longer than `target` is too long; with 0 none is. `held`: this sender holds back.
    ///
    /// At the end of a round in which the window was full: whether it is as large as it can become, though packets do not
    /// queue.
    pub(crate) fn measured(
        &mut self,
        round_trip: Micros,
        acked: u32,
        next: u32,
        target: Micros,
        held: bool,
    ) -> Option<bool> {
        if target == 0 {
            return None;
        }
        let micros = |time: Micros| u32::try_from(time).unwrap_or(u32::MAX);
        let (sample, target, window) = (micros(round_trip), micros(target), self.window());
        let verdict = self.delay.sample(sample, acked, next, window, target, held)?;
        let cramped = self.window == self.most && self.delay.is_quick(sample);
        self.delay.full = matches!(verdict, QueueVerdict::Enough | QueueVerdict::TooMuch(_)).into();
        match verdict {
            // Below the threshold it grows with each ack as it is.
            QueueVerdict::Free(add) if self.window >= self.threshold => {
                self.set_window(window.saturating_add(add));
            }
            QueueVerdict::Free(_) | QueueVerdict::Some | QueueVerdict::Enough => {}
            QueueVerdict::TooMuch(permille) => {
                // Rounded, not cut: small windows would shrink more than large ones.
                let keep = (window * (1_000 - permille) + 500) / 1_000;
                self.set_window(keep);
                self.threshold = self.window;
                self.credit = 0;
            }
        }
        Some(cramped)
    }

    /// `packets` left the network.
    pub(crate) fn acked(&mut self, packets: u32) {
        if self.delay.full.get() {
            return;
        }
        if self.window < self.threshold {
            self.set_window(self.window() + packets);
            return;
        }
        self.credit += packets;
        if self.credit >= self.window() {
            self.credit = 0;
            self.set_window(self.window() + 1);
        }
    }

    /// The packet of transmission `lost` got lost; `next` is the number of the next transmission.
    pub(crate) fn lost(&mut self, lost: u32, next: u32) {
        // Near before it, that is; after billions of transmissions without a loss everything is.
        if self.recovery.wrapping_sub(lost).wrapping_sub(1) < NEAR {
            return;
        }
        self.before = self.window;
        self.set_window(self.window() / 2);
        self.threshold = self.window;
        self.credit = 0;
        self.recovery = next;
    }

    /// Undoes the last reduction: the packets taken as lost had arrived.
    pub(crate) fn undo(&mut self) {
        self.window = self.window.max(self.before);
        self.threshold = self.threshold.max(self.before);
    }
}

/// A number of packets of a window.
fn short(packets: u32) -> u16 {
    u16::try_from(packets).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_fast_then_slowly_and_never_above_the_most() {
        let mut c = CongestionWindow::new(4, 64, 0);
        c.acked(4);
        assert_eq!(c.window(), 8);
        c.lost(0, 9);
        assert_eq!(c.window(), 4);
        c.acked(4);
        assert_eq!(c.window(), 5);
        for _ in 0..10_000 {
            c.acked(1);
        }
        assert_eq!(c.window(), 64);
    }

    #[test]
    fn halves_once_per_round_trip_and_keeps_two() {
        let mut c = CongestionWindow::new(32, 128, 0);
        c.lost(0, 32);
        c.lost(5, 33);
        assert_eq!(c.window(), 16);
        for next in 33..43 {
            c.lost(next, next + 1);
        }
        assert_eq!(c.window(), 2);
    }

    #[test]
    fn begins_within_its_bounds() {
        let begins = |initial| CongestionWindow::new(initial, 64, 0).window();
        assert_eq!([0, 1, 2, 3, 64, 65].map(begins), [2, 2, 2, 3, 64, 64]);
    }

    #[test]
    fn a_loss_from_before_the_reduction_belongs_to_it() {
        let mut c = CongestionWindow::new(64, 128, 0);
        c.lost(99_000, 100_000);
        assert_eq!(c.window(), 32);
        // As far back as packets can be under way, up to the last transmission before it.
        for lost in [100_000 - NEAR, 99_500, 99_999] {
            c.lost(lost, 100_001);
            assert_eq!(c.window(), 32, "{lost}");
        }
        c.lost(100_000, 100_001);
        assert_eq!(c.window(), 16);
        // So far back that the numbers have come round.
        c.lost(100_001 - NEAR - 1, 100_002);
        assert_eq!(c.window(), 8);
    }

    #[test]
    fn a_needless_reduction_is_undone() {
        let mut c = CongestionWindow::new(32, 128, 0);
        c.lost(0, 32);
        c.undo();
        assert_eq!(c.window(), 32);
        // Above the threshold, which is where it was before, it grows by one a window.
        c.acked(31);
        assert_eq!(c.window(), 32);
        c.acked(1);
        assert_eq!(c.window(), 33);
        // What has grown meanwhile stays.
        c.lost(40, 50);
        (0..10_000).for_each(|_| c.acked(1));
        c.undo();
        assert_eq!(c.window(), 128);
    }

    /// Rounds of one packet each, through a queue of `queue` microseconds.
    fn rounds(c: &mut CongestionWindow, from: u32, count: u32, queue: u64) -> u32 {
        for acked in from..from + count {
            c.limited();
            c.measured(100 + queue, acked, acked + 1, 800, false);
        }
        from + count
    }

    #[test]
    fn a_queue_decides_whether_it_grows_and_shrinks() {
        let mut c = CongestionWindow::new(100, 128, 0);
        let at = rounds(&mut c, 1, 2, 0);
        assert_eq!((c.window(), c.held(), c.saturated()), (100, 100, false));
        // Half the target: some queue. It is full of packets, and who holds back sends one.
        let at = rounds(&mut c, at, 1, 400);
        assert_eq!((c.window(), c.held(), c.saturated()), (100, 1, true));
        c.acked(1);
        assert_eq!(c.window(), 101, "some queue does not hinder it");
        // Above the target once: it does not grow.
        let at = rounds(&mut c, at, 1, 1_000);
        c.acked(50);
        assert_eq!(c.window(), 101);
        // Twice: by a tenth, but by an eighth at least. 88.4 packets are 88.
        let at = rounds(&mut c, at, 1, 1_000);
        assert_eq!(c.window(), 88);
        // No queue: on a short path an eighth of the target is as much as the window, which doubles.
        let at = rounds(&mut c, at, 1, 0);
        assert_eq!((c.window(), c.held()), (128, 128), "up to the most");
        c.lost(5_000, 6_000);
        rounds(&mut c, at, 1, 0);
        assert_eq!(c.window(), 128);
    }

    #[test]
    fn without_a_target_queues_do_not_matter() {
        let mut c = CongestionWindow::new(100, 128, 0);
        for acked in 1..20 {
            c.limited();
            c.measured(1_000 * u64::from(acked), acked, acked + 1, 0, false);
        }
        assert_eq!((c.window(), c.held(), c.saturated()), (100, 100, false));
    }

    #[test]
    fn the_least_window_survives_any_queue() {
        let mut c = CongestionWindow::new(8, 128, 0);
        let at = rounds(&mut c, 1, 1, 0);
        rounds(&mut c, at, 40, 1_000_000);
        assert_eq!(c.window(), LEAST);
    }
}
