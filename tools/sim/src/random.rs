//! Random streams that never change: the same seed gives the same jobs in every version.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// One stream of random numbers. Its bits are ChaCha's, whose output is fixed by definition. The numbers are
/// computed here, so a new version of a library changes no workload.
#[derive(Clone, Debug)]
pub struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// Stream `stream` of `seed`; streams of a seed are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Self(generator)
    }

    /// Uniform in (0, 1]: 53 bits.
    pub fn unit(&mut self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let bits = (self.0.next_u64() >> 11) as f64;
        (bits + 1.0) / 9_007_199_254_740_992.0
    }

    /// Exponential with mean 1, by inversion.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// A whole number below `bound`, which is not 0. The bias of at most `bound` / 2^64 is far below
    /// what any simulation could show.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.0.next_u64()) * u128::from(bound);
        (product >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut draws = RandomStream::new(7, 3);
        let first: Vec<u64> = (0..4).map(|_| draws.below(1_000_000)).collect();
        let mut again = RandomStream::new(7, 3);
        assert_eq!(first, (0..4).map(|_| again.below(1_000_000)).collect::<Vec<_>>());
        assert_eq!(first, [181_541, 92_864, 979_004, 334_218]);
        let exponential = RandomStream::new(1, 0).exponential();
        assert!((exponential - 0.910_095_800_981_842_7).abs() < 1e-12, "{exponential}");
        assert_ne!(first[0], RandomStream::new(7, 4).below(1_000_000));
        assert_ne!(first[0], RandomStream::new(8, 3).below(1_000_000));
    }

    #[test]
    fn the_laws_are_what_they_are_called() {
        let mut draws = RandomStream::new(1, 0);
        let count = 100_000;
        let mean = (0..count).map(|_| draws.exponential()).sum::<f64>() / f64::from(count);
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let mut seen = [0u32; 5];
        (0..count).for_each(|_| seen[draws.below(5) as usize] += 1);
        assert!(seen.iter().all(|&n| (19_000..21_000).contains(&n)), "{seen:?}");
    }
}
