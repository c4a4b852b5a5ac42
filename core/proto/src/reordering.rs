//! Estimate of how far packets on a path overtake each other, learnt from needless resends.

use crate::Micros;
use crate::context::Flag;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A packet is lost when one sent this many transmissions later is acked, on a path that keeps order.
const LEAST: u16 = 3;
/// Losses in a row without reordering, after which less of it is expected (RFC 8985, 7.2 has as many
/// recoveries).
const CLEAN: u8 = 16;

/// Expected reordering on the path to one peer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct ReorderingEstimate {
    /// A probe says nothing of packets sent less than this before it, in microseconds.
    margin: u32,
    threshold: u16,
    /// Losses since the last needless resend.
    clean: u8,
    /// Something was taken as lost since then.
    suspect: Flag,
}

impl ReorderingEstimate {
    pub(crate) const fn new() -> Self {
        Self { margin: 0, threshold: LEAST, clean: 0, suspect: Flag::CLEAR }
    }

    /// By how many transmissions a packet has to be overtaken to be lost.
    pub(crate) fn threshold(&self) -> i32 {
        i32::from(self.threshold)
    }

    /// By how much a packet has to be older than a probe that overtakes it to be lost.
    pub(crate) fn margin(&self) -> Micros {
        u64::from(self.margin)
    }

    /// Packets were taken as lost.
    pub(crate) fn on_loss(&mut self) {
        self.suspect = Flag::SET;
        if self.threshold == LEAST && self.margin == 0 {
            return;
        }
        self.clean += 1;
        if self.clean >= CLEAN {
            self.clean = 0;
            self.threshold = (self.threshold / 2).max(LEAST);
            self.margin = if self.threshold == LEAST { 0 } else { self.margin / 2 };
        }
    }

    /// The peer got a packet twice; whether a needless resend may be the cause. From now on packets may
    /// overtake each other twice as far as before: up to `window` transmissions, and up to `longest`
    /// microseconds.
    pub(crate) fn on_duplicate(
        &mut self,
        round_trip: Micros,
        longest: Micros,
        window: usize,
    ) -> bool {
        if !self.suspect.take() {
            return false;
        }
        self.clean = 0;
        let most = u16::try_from(window).unwrap_or(u16::MAX).max(LEAST);
        self.threshold = self.threshold.saturating_mul(2).min(most);
        let margin = (2 * self.margin()).max(round_trip / 4).min(longest);
        self.margin = u32::try_from(margin).unwrap_or(u32::MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_needless_resends_up_to_the_bounds() {
        let mut reorder = ReorderingEstimate::new();
        assert!(!reorder.on_duplicate(100, 1_000, 128), "nothing was sent again");
        assert_eq!((reorder.threshold(), reorder.margin()), (3, 0));
        for (threshold, margin) in [(6, 25), (12, 50), (24, 100), (48, 200), (96, 400), (128, 800)]
        {
            reorder.on_loss();
            assert!(reorder.on_duplicate(100, 1_000, 128));
            assert_eq!((reorder.threshold(), reorder.margin()), (threshold, margin));
        }
        reorder.on_loss();
        reorder.on_duplicate(100, 1_000, 128);
        assert_eq!((reorder.threshold(), reorder.margin()), (128, 1_000));
    }

    #[test]
    fn is_forgotten_after_losses_that_were_some() {
        let mut reorder = ReorderingEstimate::new();
        reorder.on_loss();
        reorder.on_duplicate(100, 1_000, 128);
        reorder.on_loss();
        reorder.on_duplicate(100, 1_000, 128);
        for _ in 0..2 * CLEAN {
            assert!(reorder.threshold() > 3 && reorder.margin() > 0);
            reorder.on_loss();
        }
        assert_eq!((reorder.threshold(), reorder.margin()), (3, 0));
    }
}
