//! The random numbers of the NAS Parallel Benchmarks (NAS report RNR-94-007, §2.3):
//! `x(k+1) = a x(k) mod 2^46`.

/// The multiplier, 5^13.
const MULTIPLIER: u64 = 1_220_703_125;
/// The numbers have 46 bits.
const MASK: u64 = (1 << 46) - 1;

/// One sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence that begins at `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed & MASK }
    }

    /// The same sequence `steps` further on, in about log2(steps) multiplications.
    #[must_use]
    pub fn skip(self, steps: u64) -> Self {
        let (mut state, mut factor, mut left) = (self.state, MULTIPLIER, steps);
        while left > 0 {
            if left & 1 == 1 {
                state = state.wrapping_mul(factor) & MASK;
            }
            factor = factor.wrapping_mul(factor) & MASK;
            left >>= 1;
        }
        Self { state }
    }

    /// The next number, in (0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(MULTIPLIER) & MASK;
        self.state as f64 * (1.0 / (1u64 << 46) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_many_steps() {
        let start = Random::new(271_828_183);
        let mut walked = start;
        for _ in 0..12_345 {
            let number = walked.unit();
            assert!(number > 0.0 && number < 1.0);
        }
        assert_eq!(walked, start.skip(12_345));
        assert_eq!(start, start.skip(0));
    }

    #[test]
    fn the_first_step_multiplies() {
        let mut random = Random::new(1);
        assert_eq!(random.unit(), 1_220_703_125.0 / (1u64 << 46) as f64);
    }
}
