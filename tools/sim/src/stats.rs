//! Means, percentiles, correlation and confidence intervals.

use serde::Serialize;

/// The mean; 0 for no values.
#[allow(clippy::cast_precision_loss)]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Percentiles of values: each is the least value that this many per cent do not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 95 %.
    pub p95: f64,
    /// 99 %.
    pub p99: f64,
}

impl Percentiles {
    /// Computes them; all 0 for no values.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100).max(1);
            values.get(rank - 1).copied().unwrap_or(0.0)
        };
        Self { p50: at(50), p90: at(90), p95: at(95), p99: at(99) }
    }
}

/// Pearson's correlation of pairs; `None` if one side does not vary.
pub fn correlation(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    let (mut count, mut x_sum, mut y_sum) = (0.0, 0.0, 0.0);
    for (x, y) in pairs.clone() {
        count += 1.0;
        x_sum += x;
        y_sum += y;
    }
    let (x_mean, y_mean) = (x_sum / count, y_sum / count);
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        xx += (x - x_mean) * (x - x_mean);
        yy += (y - y_mean) * (y - y_mean);
        xy += (x - x_mean) * (y - y_mean);
    }
    let both = (xx * yy).sqrt();
    (both > 0.0).then(|| xy / both)
}

/// A mean over independent replications with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The interval is this much to either side; 0 for a single replication.
    pub half_width: f64,
}

impl Estimate {
    /// Computes it from one value of each replication, by Student's t.
    pub fn of(values: &[f64]) -> Self {
        let mean = mean(values);
        if values.len() < 2 {
            return Self { mean, half_width: 0.0 };
        }
        #[allow(clippy::cast_precision_loss)]
        let count = values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        Self { mean, half_width: student(values.len() - 1) * error }
    }

    /// Whether the interval holds `value`.
    pub fn holds(&self, value: f64) -> bool {
        (value - self.mean).abs() <= self.half_width
    }
}

/// The 97.5 % quantile of Student's t.
fn student(freedom: usize) -> f64 {
    const FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    if let Some(&quantile) = freedom.checked_sub(1).and_then(|index| FEW.get(index)) {
        return quantile;
    }
    // The expansion around the normal distribution's quantile; right to three decimals from here on.
    let z: f64 = 1.959_964;
    #[allow(clippy::cast_precision_loss)]
    let n = freedom as f64;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + (first + (second + third / n) / n) / n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_the_list() {
        let percentiles = Percentiles::of((1..=200).rev().map(f64::from).collect());
        assert_eq!(percentiles, Percentiles { p50: 100.0, p90: 180.0, p95: 190.0, p99: 198.0 });
        assert_eq!(Percentiles::of(vec![]), Percentiles::default());
        assert_eq!(Percentiles::of(vec![3.0]).p99, 3.0);
    }

    #[test]
    fn correlations() {
        let line = [(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)];
        assert!((correlation(line.into_iter()).unwrap() - 1.0).abs() < 1e-12);
        let fall = line.map(|(x, y)| (x, -y));
        assert!((correlation(fall.into_iter()).unwrap() + 1.0).abs() < 1e-12);
        assert_eq!(correlation([(1.0, 2.0), (1.0, 3.0)].into_iter()), None);
        assert_eq!(correlation([].into_iter()), None);
    }

    #[test]
    fn quantiles_of_student() {
        for (freedom, expected) in [(1, 12.706), (9, 2.262), (11, 2.201), (19, 2.093), (120, 1.980)]
        {
            assert!((student(freedom) - expected).abs() < 1e-3, "{freedom}");
        }
        let estimate = Estimate::of(&[1.0, 2.0, 3.0]);
        assert!((estimate.mean - 2.0).abs() < 1e-12);
        assert!((estimate.half_width - 4.303 / 3.0f64.sqrt()).abs() < 1e-3);
        assert!(estimate.holds(4.0) && !estimate.holds(5.0));
    }
}
