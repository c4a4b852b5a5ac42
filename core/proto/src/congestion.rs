//! How many packets may be in flight to one peer: additive increase, multiplicative decrease.

/// Least window, in packets.
const LEAST: u32 = 2;

/// Congestion window of one peer, in packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    window: u32,
    threshold: u32,
    most: u32,
    /// Packets acked towards the next growth by one.
    credit: u32,
    /// The window before the last reduction.
    before: u32,
    /// Losses of packets transmitted before this transmission belong to the reduction already made.
    recovery: u32,
}

impl Congestion {
    pub(crate) fn new(initial: u32, most: u32) -> Self {
        let window = initial.clamp(LEAST, most);
        Self { window, threshold: most, most, credit: 0, before: window, recovery: 0 }
    }

    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// `packets` left the network.
    pub(crate) fn acked(&mut self, packets: u32) {
        if self.window < self.threshold {
            self.window = (self.window + packets).min(self.most);
            return;
        }
        self.credit += packets;
        if self.credit >= self.window {
            self.credit = 0;
            self.window = (self.window + 1).min(self.most);
        }
    }

    /// The packet of transmission `lost` got lost; `next` is the number of the next transmission.
    pub(crate) fn lost(&mut self, lost: u32, next: u32) {
        if lost.wrapping_sub(self.recovery).cast_signed() < 0 {
            return;
        }
        self.before = self.window;
        self.window = (self.window / 2).max(LEAST);
        self.threshold = self.window;
        self.credit = 0;
        self.recovery = next;
    }

    /// What was taken as lost had not been: the last reduction was a mistake.
    pub(crate) fn undo(&mut self) {
        self.window = self.window.max(self.before);
        self.threshold = self.threshold.max(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_fast_then_slowly_and_never_above_the_most() {
        let mut c = Congestion::new(4, 64);
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
        let mut c = Congestion::new(32, 128);
        c.lost(0, 32);
        c.lost(5, 33);
        assert_eq!(c.window(), 16);
        for next in 33..43 {
            c.lost(next, next + 1);
        }
        assert_eq!(c.window(), 2);
    }
}
