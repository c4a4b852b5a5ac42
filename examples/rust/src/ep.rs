//! The NAS kernel EP: pairs of Gaussian random numbers by the polar method, counted by size (NAS report
//! RNR-94-007, §2.2.1). Ranks communicate only the sums.

use crate::program::Class;
use crate::random::Random;

/// The sequence's seed.
const SEED: u64 = 271_828_183;
/// Pairs per batch: a batch is what one rank does at a time.
const BATCH: u64 = 1 << 16;
/// Gaussian pairs are counted by the integer part of the larger of the two.
pub const RINGS: usize = 10;

/// The counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Sum of the first of each Gaussian pair.
    pub sum_x: f64,
    /// Sum of the second.
    pub sum_y: f64,
    /// Pairs with `ring <= max(|x|, |y|) < ring + 1`.
    pub rings: [u64; RINGS],
}

impl Class {
    /// Pairs of uniform numbers, as a power of two.
    #[must_use]
    pub fn ep_log2_pairs(self) -> u32 {
        match self {
            Class::S => 24,
            Class::W => 25,
            Class::A => 28,
        }
    }

    /// The official sums and the number of Gaussian pairs.
    fn ep_expected(self) -> (f64, f64, u64) {
        match self {
            Class::S => (-3.247_834_652_034_74e3, -6.958_407_078_382_297e3, 13_176_389),
            Class::W => (-2.863_319_731_645_753e3, -6.320_053_679_109_499e3, 26_354_769),
            Class::A => (-4.295_875_165_629_892e3, -1.580_732_573_678_431e4, 210_832_767),
        }
    }

    /// Batches that all ranks do together.
    #[must_use]
    pub fn ep_batches(self) -> u64 {
        (1 << self.ep_log2_pairs()) / BATCH
    }
}

impl Tally {
    /// Counts the batches `first..end`.
    #[must_use]
    pub fn of_batches(first: u64, end: u64) -> Self {
        let mut tally = Self::default();
        for batch in first..end {
            tally.add_batch(batch);
        }
        tally
    }

    /// Adds the pairs of a batch.
    pub fn add_batch(&mut self, batch: u64) {
        let mut random = Random::new(SEED).skip(2 * BATCH * batch);
        // Summed apart, so that the rounding does not depend on which rank has which batch.
        let (mut sum_x, mut sum_y) = (0.0, 0.0);
        for _ in 0..BATCH {
            let x = 2.0 * random.unit() - 1.0;
            let y = 2.0 * random.unit() - 1.0;
            let square = x * x + y * y;
            if square > 1.0 {
                continue;
            }
            let factor = (-2.0 * square.ln() / square).sqrt();
            let (x, y) = (x * factor, y * factor);
            // At most sqrt(2 * 46 ln 2) * sqrt(2) < 12; beyond 10 never occurs in any class.
            self.rings[(x.abs().max(y.abs()) as usize).min(RINGS - 1)] += 1;
            sum_x += x;
            sum_y += y;
        }
        self.sum_x += sum_x;
        self.sum_y += sum_y;
    }

    /// Gaussian pairs.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.rings.iter().sum()
    }

    /// Whether this is the official result of the class: the sums to 1e-8, the count exactly.
    #[must_use]
    pub fn verify(&self, class: Class) -> bool {
        let (sum_x, sum_y, pairs) = class.ep_expected();
        // A NaN is not near anything.
        let near = |found: f64, expected: f64| ((found - expected) / expected).abs() <= 1e-8;
        near(self.sum_x, sum_x) && near(self.sum_y, sum_y) && self.pairs() == pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_s_has_the_official_sums() {
        let whole = Tally::of_batches(0, Class::S.ep_batches());
        assert!(whole.verify(Class::S), "{whole:?}");
        assert!(!whole.verify(Class::W));
        let wrong = Tally { sum_x: f64::NAN, ..whole };
        assert!(!wrong.verify(Class::S));
    }

    #[test]
    fn parts_add_up() {
        let (a, b, whole) =
            (Tally::of_batches(0, 3), Tally::of_batches(3, 5), Tally::of_batches(0, 5));
        assert_eq!(a.pairs() + b.pairs(), whole.pairs());
        assert!((a.sum_x + b.sum_x - whole.sum_x).abs() < 1e-9);
    }
}
