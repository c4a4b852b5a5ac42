//! Measuring: percentiles, and computing for a chosen time.

use std::hint::black_box;
use std::time::Instant;

/// The value below which `percent` of the sorted samples lie (nearest rank); 0 without samples.
#[must_use]
pub fn percentile(sorted: &[u64], percent: f64) -> u64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).or(sorted.last()).copied().unwrap_or(0)
}

/// Computes for `rounds` rounds of a few nanoseconds each. No compiler removes this work, and it takes
/// the same number of instructions every time. A wait for a clock would go on while the program is
/// switched out.
#[inline]
pub fn compute(rounds: u64) {
    // Only registers in the loop, and each round needs the one before. Memory, even a word of the
    // stack, takes several times as long between system calls as in the calibration.
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..rounds {
        state = (state ^ (state >> 29)).wrapping_mul(6_364_136_223_846_793_005);
    }
    black_box(state);
}

/// Rounds of [`compute`] that take about `micros` microseconds here. The fastest of many short
/// trials counts, so that being switched out meanwhile does not matter.
#[must_use]
pub fn calibrate(micros: f64) -> u64 {
    const ROUNDS: u64 = 5_000;
    let fastest = (0..200)
        .map(|_| {
            let begin = Instant::now();
            compute(ROUNDS);
            begin.elapsed().as_nanos()
        })
        .min()
        .unwrap_or(1)
        .max(1);
    (micros * 1e3 * ROUNDS as f64 / fastest as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let samples: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&samples, 50.0), 50);
        assert_eq!(percentile(&samples, 99.0), 99);
        assert_eq!(percentile(&samples, 100.0), 100);
        assert_eq!(percentile(&samples, 0.0), 1);
        assert_eq!(percentile(&[7], 50.0), 7);
        assert_eq!(percentile(&[], 50.0), 0);
    }

    #[test]
    fn calibration_follows_the_time_asked_for() {
        assert_eq!(calibrate(0.0), 0);
        assert!(calibrate(100.0) > calibrate(1.0));
    }
}
