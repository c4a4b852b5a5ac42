//! Run times of routines: measurements and predictions.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::model::ServerId;

/// Number of calls in a fit.
const WINDOW: usize = 24;
/// With fewer calls a server's own fit is not reliable.
const FEW: usize = 3;
/// Most fits that are kept; then the least recently used one is dropped.
const MOST_FITS: usize = 16_384;

/// A linear fit `a + b * size` of the seconds of the last calls, by Theil and Sen: `b` is the median of all slopes between two
/// calls, `a` the median of the remainders. So a quarter of the calls may be outliers.
#[derive(Clone, Debug, Default)]
pub struct LinearFit {
    /// Size and seconds of calls, a ring.
    last: Vec<(f64, f64)>,
    next: usize,
    a: f64,
    b: f64,
}

impl LinearFit {
    /// Adds a call. Values that are negative or not finite are ignored.
    pub fn add(&mut self, size: f64, seconds: f64) {
        if !(size.is_finite() && seconds.is_finite() && size >= 0.0 && seconds >= 0.0) {
            return;
        }
        if self.last.len() < WINDOW {
            self.last.push((size, seconds));
        } else {
            self.last[self.next] = (size, seconds);
            self.next = (self.next + 1) % WINDOW;
        }
        self.solve();
    }

    /// Number of calls in the fit.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.last.len()
    }

    /// `a` and `b`: the fixed seconds, and the seconds for each unit of size.
    #[must_use]
    pub fn line(&self) -> (f64, f64) {
        (self.a, self.b)
    }

    /// Predicted seconds for a call of this size; `None` before the first call.
    #[must_use]
    pub fn seconds(&self, size: f64) -> Option<f64> {
        (!self.last.is_empty()).then(|| (self.a + self.b * size).max(0.0))
    }

    fn solve(&mut self) {
        let mut slopes = Vec::with_capacity(WINDOW * (WINDOW - 1) / 2);
        for (index, &(x, y)) in self.last.iter().enumerate() {
            let apart = |&&(u, _): &&(f64, f64)| (u - x).abs() > 1e-9 * (u + x);
            let others = self.last[index + 1..].iter().filter(apart);
            slopes.extend(others.map(|&(u, v)| (v - y) / (u - x)));
        }
        let left = |b: f64, last: &[(f64, f64)]| median(last.iter().map(|&(x, y)| y - b * x));
        let ratios = self.last.iter().filter(|&&(x, _)| x > 0.0).map(|&(x, y)| y / x);
        (self.a, self.b) = match median(slopes.into_iter()) {
            // All calls have one size, or the line is negative at size 0: a proportional fit is better.
            None => (0.0, median(ratios).unwrap_or(0.0)),
            Some(b) if b > 0.0 => match left(b, &self.last) {
                Some(a) if a >= 0.0 => (a, b),
                _ => (0.0, median(ratios).unwrap_or(b)),
            },
            Some(_) => (left(0.0, &self.last).unwrap_or(0.0), 0.0),
        };
        if self.b == 0.0 && self.a == 0.0 {
            self.a = left(0.0, &self.last).unwrap_or(0.0);
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let (_, &mut high, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if values.len() % 2 == 1 {
        return Some(high);
    }
    let low = values[..middle].iter().copied().max_by(f64::total_cmp).unwrap_or(high);
    Some(low / 2.0 + high / 2.0)
}

#[derive(Debug, Default)]
struct RememberedFit {
    fit: LinearFit,
    used: u64,
}

/// A routine and a server; `None`: all servers, scaled to one operation a second.
type Key = (u32, Option<ServerId>);

/// The fits of routines on servers.
#[derive(Debug, Default)]
pub(crate) struct History {
    fits: BTreeMap<Key, RememberedFit>,
    by_use: BTreeSet<(u64, Key)>,
    uses: u64,
}

impl History {
    /// Adds a call of `routine` that took `seconds` of a processor with `speed` operations a second (0: not known).
    pub fn add(&mut self, routine: u32, server: ServerId, size: f64, seconds: f64, speed: f64) {
        self.one((routine, Some(server)), size, seconds);
        if speed > 0.0 {
            self.one((routine, None), size, seconds * speed);
        }
    }

    fn one(&mut self, key: Key, size: f64, seconds: f64) {
        self.uses += 1;
        let kept = self.fits.entry(key).or_default();
        self.by_use.remove(&(kept.used, key));
        kept.used = self.uses;
        self.by_use.insert((kept.used, key));
        kept.fit.add(size, seconds);
        if self.fits.len() > MOST_FITS
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.fits.remove(&oldest);
        }
    }

    /// Predicted seconds of processor time. A server with few calls of the routine gets the lower of two predictions, from its
    /// speed and from the other servers, so that it is tried.
    pub fn seconds(
        &self,
        routine: u32,
        server: ServerId,
        size: f64,
        operations: Option<f64>,
        speed: f64,
    ) -> f64 {
        let fit = |key| self.fits.get(&key).map(|kept| &kept.fit);
        let own = fit((routine, Some(server)));
        if let Some(seconds) = own.filter(|fit| fit.calls() >= FEW).and_then(|f| f.seconds(size)) {
            return seconds;
        }
        if speed <= 0.0 {
            return own.and_then(|fit| fit.seconds(size)).unwrap_or(1.0);
        }
        let all = fit((routine, None)).filter(|fit| fit.calls() >= FEW);
        let scaled = all.and_then(|fit| fit.seconds(size)).map(|seconds| seconds / speed);
        let told = operations.map(|operations| operations / speed);
        scaled.into_iter().chain(told).min_by(f64::total_cmp).unwrap_or(1.0)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.fits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} {expected}");
    }

    #[test]
    fn outliers_do_not_matter() {
        let mut fit = LinearFit::default();
        for index in 0..60u32 {
            let size = f64::from(index % 7) * 10.0 + 5.0;
            let seconds = if index % 5 == 4 { 1e6 } else { 0.25 + 0.5 * size };
            fit.add(size, seconds);
            assert!(fit.calls() <= WINDOW);
        }
        near(fit.line().0, 0.25);
        near(fit.line().1, 0.5);
        near(fit.seconds(1000.0).unwrap(), 500.25);
    }

    #[test]
    fn little_is_known_and_used() {
        let mut fit = LinearFit::default();
        assert_eq!(fit.seconds(1.0), None);
        fit.add(f64::NAN, 1.0);
        fit.add(1.0, -1.0);
        fit.add(f64::INFINITY, 1.0);
        assert_eq!(fit.calls(), 0);
        fit.add(10.0, 2.0);
        near(fit.seconds(20.0).unwrap(), 4.0);
        let mut flat = LinearFit::default();
        (0..5).for_each(|_| flat.add(0.0, 3.0));
        near(flat.seconds(9.0).unwrap(), 3.0);
        let mut falling = LinearFit::default();
        for (x, y) in [(1.0, 9.0), (2.0, 8.0), (3.0, 7.0)] {
            falling.add(x, y);
        }
        near(falling.seconds(1e9).unwrap(), 8.0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn history_is_bounded_and_scales_between_servers() {
        let mut history = History::default();
        let (fast, slow) = (ServerId(1), ServerId(2));
        near(history.seconds(0, fast, 100.0, Some(100.0), 50.0), 2.0);
        near(history.seconds(0, fast, 100.0, None, 50.0), 1.0);
        (1..=5u32).for_each(|n| history.add(0, fast, f64::from(n), f64::from(n) * 3.0, 10.0));
        near(history.seconds(0, fast, 4.0, Some(1e9), 10.0), 12.0);
        near(history.seconds(0, slow, 4.0, None, 5.0), 24.0);
        near(history.seconds(0, slow, 4.0, Some(10.0), 5.0), 2.0);
        (0..40_000).for_each(|routine| history.add(routine, slow, 1.0, 1.0, 1.0));
        assert!(history.len() <= MOST_FITS);
        assert_eq!(history.by_use.len(), history.len());
    }
}
