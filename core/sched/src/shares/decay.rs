//! How what was spent is forgotten: it halves in each half-life, in steps.
//!
//! Whole numbers only, so that the head of a cluster and the simulator come to the same amounts on every machine.

/// Steps of a half-life.
const STEPS: u64 = 1_024;
/// What is left after 1, 2, 4, ... 512 steps, in units of 2^-32.
const LEFT: [u64; 10] = [
    0xffd3_a752,
    0xffa7_5652,
    0xff4e_cb59,
    0xfe9e_115c,
    0xfd3e_0c0d,
    0xfa83_b2db,
    0xf525_7d15,
    0xeac0_c6e8,
    0xd744_fccb,
    0xb504_f334,
];
/// One, in units of 2^-32.
const ONE: u128 = 1 << 32;

/// Steps of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decay {
    /// Nanoseconds of a step.
    step: u64,
}

impl Decay {
    pub(super) fn new(half_life_ns: u64) -> Self {
        Self { step: (half_life_ns / STEPS).max(1) }
    }

    /// How many steps there are up to a time.
    pub(super) fn steps(self, at: u64) -> u64 {
        at / self.step
    }

    /// The time of so many steps.
    pub(super) fn time(self, steps: u64) -> u64 {
        steps.saturating_mul(self.step)
    }

    /// Time from `from` to the next step, and from the last step to `to`, with the whole steps between. None if no step lies
    /// between.
    pub(super) fn split(self, from: u64, to: u64) -> Option<(u64, u64, u64)> {
        let (first, last) = (self.steps(from), self.steps(to));
        let whole = last.checked_sub(first)?.checked_sub(1)?;
        Some((self.step - from % self.step, whole, to % self.step))
    }

    /// A value that grows by `rate` in each nanosecond and is lessened at each step, after so many whole steps; it was nothing
    /// before.
    pub(super) fn grown(self, rate: u128, steps: u64) -> u128 {
        let once = u128::from(LEFT[0]);
        // The sum of what is left after 1, 2, ... steps, and what is left after the last of them.
        let (mut sum, mut left) = (0u128, ONE);
        for bit in (0..u64::BITS - steps.leading_zeros()).rev() {
            sum += (sum * left) >> 32;
            left = (left * left) >> 32;
            if steps >> bit & 1 == 1 {
                sum = ((sum * once) >> 32) + once;
                left = (left * once) >> 32;
            }
        }
        (u128::from(self.step).saturating_mul(rate).saturating_mul(sum)) >> 32
    }
}

/// What is left of an amount after so many steps. Amounts are below 2^95.
pub(super) fn left(amount: u128, steps: u64) -> u128 {
    let halvings = u32::try_from(steps / STEPS).unwrap_or(u32::MAX);
    let mut rest = ONE;
    for (bit, factor) in LEFT.iter().enumerate() {
        if steps >> bit & 1 == 1 {
            rest = (rest * u128::from(*factor)) >> 32;
        }
    }
    ((amount * rest) >> 32).checked_shr(halvings).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_halves_in_each_half_life() {
        for (half_lives, expected) in [(0, 1 << 90), (1, 1 << 89), (3, 1 << 87), (90, 1)] {
            assert_eq!(left(1 << 90, half_lives * STEPS), expected);
        }
        assert_eq!(left(u128::MAX >> 33, u64::MAX), 0);
        let root = left(1_000_000, STEPS / 2);
        assert!((707_100..=707_107).contains(&root), "{root}");
    }

    #[test]
    fn steps_one_by_one_leave_as_much_as_all_at_once() {
        let mut one_by_one = 1u128 << 80;
        for steps in 1..=3 * STEPS {
            one_by_one = left(one_by_one, 1);
            let at_once = left(1 << 80, steps);
            assert!(one_by_one.abs_diff(at_once) <= at_once >> 18, "{steps}");
        }
    }

    #[test]
    fn growth_is_that_of_each_step() {
        let decay = Decay::new(STEPS * 1_000);
        let mut grown = 0u128;
        for steps in 1..=5 * STEPS {
            grown = left(grown + 7_000, 1);
            let at_once = decay.grown(7, steps);
            assert!(at_once.abs_diff(grown) <= 2 + (grown >> 11), "{steps}: {at_once} {grown}");
        }
        // It comes to what is forgotten in each step.
        let most = decay.grown(7, u64::MAX);
        assert!((10_270_000..10_350_000).contains(&most), "{most}");
    }

    #[test]
    fn time_is_split_at_steps() {
        let decay = Decay::new(STEPS * 10);
        assert_eq!(decay.split(3, 9), None);
        assert_eq!(decay.split(3, 10), Some((7, 0, 0)));
        assert_eq!(decay.split(3, 47), Some((7, 3, 7)));
        assert_eq!(Decay::new(0).split(5, 7), Some((1, 1, 0)), "a step has a length");
    }
}
