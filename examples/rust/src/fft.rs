//! One-dimensional fast Fourier transforms, several at a time.
//!
//! Stockham's radix-2 method: every stage reads one array and writes the other, in order, so that
//! no bit reversal is needed. Real and imaginary parts lie apart, and the transforms done together
//! lie interleaved, so that the innermost loop is long and the compiler can use vectors.

use std::f64::consts::PI;

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
}

/// Sign of the exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Minus.
    Forward,
    /// Plus; the result is not divided by the length.
    Backward,
}

/// Transforms done together: as many `f64` as two to four vector registers hold.
pub const WIDTH: usize = 8;

/// Transforms of one length.
#[derive(Debug)]
pub struct Fft {
    length: usize,
    /// `exp(-2 pi i k / length)` for k below half the length.
    roots: Vec<Complex>,
}

/// [`WIDTH`] vectors of one length; element `k` of vector `j` is at `k * WIDTH + j`.
#[derive(Debug)]
pub struct Bundle {
    re: Vec<f64>,
    im: Vec<f64>,
    other_re: Vec<f64>,
    other_im: Vec<f64>,
}

impl Bundle {
    /// Zeros.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let zeros = || vec![0.0; length * WIDTH];
        Self { re: zeros(), im: zeros(), other_re: zeros(), other_im: zeros() }
    }

    /// Sets element `k` of all vectors.
    #[inline]
    pub fn set(&mut self, k: usize, values: &[Complex; WIDTH]) {
        let range = k * WIDTH..(k + 1) * WIDTH;
        for ((re, im), value) in
            self.re[range.clone()].iter_mut().zip(&mut self.im[range]).zip(values)
        {
            *re = value.re;
            *im = value.im;
        }
    }

    /// Element `k` of all vectors.
    #[inline]
    #[must_use]
    pub fn get(&self, k: usize) -> [Complex; WIDTH] {
        let range = k * WIDTH..(k + 1) * WIDTH;
        let (re, im) = (&self.re[range.clone()], &self.im[range]);
        std::array::from_fn(|j| Complex { re: re[j], im: im[j] })
    }
}

impl Fft {
    /// Prepares transforms of `length`, a power of two.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn new(length: usize) -> Self {
        assert!(length.is_power_of_two(), "length {length} is not a power of two");
        let root = |k: usize| {
            let angle = -2.0 * PI * k as f64 / length as f64;
            Complex { re: angle.cos(), im: angle.sin() }
        };
        Self { length, roots: (0..length / 2).map(root).collect() }
    }

    /// The vectors' length.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Transforms all vectors of the bundle, in place.
    ///
    /// # Panics
    /// If the bundle has another length.
    pub fn run(&self, direction: Direction, bundle: &mut Bundle) {
        assert_eq!(bundle.re.len(), self.length * WIDTH, "the bundle's length");
        let sign = if direction == Direction::Forward { 1.0 } else { -1.0 };
        // `stride` neighbouring elements belong to different transforms of `span` elements.
        let (mut span, mut stride) = (self.length, WIDTH);
        while span > 1 {
            self.stage(span, stride, sign, bundle);
            std::mem::swap(&mut bundle.re, &mut bundle.other_re);
            std::mem::swap(&mut bundle.im, &mut bundle.other_im);
            span /= 2;
            stride *= 2;
        }
    }

    /// One stage: from the bundle's arrays to its others.
    fn stage(&self, span: usize, stride: usize, sign: f64, bundle: &mut Bundle) {
        let half = span / 2;
        let (re_low, re_high) = bundle.re.split_at(half * stride);
        let (im_low, im_high) = bundle.im.split_at(half * stride);
        let inputs = re_low
            .chunks_exact(stride)
            .zip(re_high.chunks_exact(stride))
            .zip(im_low.chunks_exact(stride).zip(im_high.chunks_exact(stride)));
        let outputs = bundle
            .other_re
            .chunks_exact_mut(2 * stride)
            .zip(bundle.other_im.chunks_exact_mut(2 * stride));
        let roots = self.roots.iter().step_by(self.length / span);
        for ((((ar, br), (ai, bi)), (out_re, out_im)), root) in inputs.zip(outputs).zip(roots) {
            let (wr, wi) = (root.re, sign * root.im);
            let (sum_re, difference_re) = out_re.split_at_mut(stride);
            let (sum_im, difference_im) = out_im.split_at_mut(stride);
            for q in 0..stride {
                let (dr, di) = (ar[q] - br[q], ai[q] - bi[q]);
                sum_re[q] = ar[q] + br[q];
                sum_im[q] = ai[q] + bi[q];
                difference_re[q] = dr * wr - di * wi;
                difference_im[q] = dr * wi + di * wr;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn random_bundle(length: usize) -> Bundle {
        let mut random = Random::new(314_159_265);
        let mut bundle = Bundle::new(length);
        for k in 0..length {
            let values = std::array::from_fn(|_| Complex { re: random.unit(), im: random.unit() });
            bundle.set(k, &values);
        }
        bundle
    }

    #[test]
    fn equals_the_definition() {
        let length = 16;
        let mut bundle = random_bundle(length);
        let before: Vec<_> = (0..length).map(|k| bundle.get(k)).collect();
        Fft::new(length).run(Direction::Forward, &mut bundle);
        for k in 0..length {
            for (j, found) in bundle.get(k).iter().enumerate() {
                let (mut re, mut im) = (0.0, 0.0);
                for (n, values) in before.iter().enumerate() {
                    let (sin, cos) = (-2.0 * PI * (k * n) as f64 / length as f64).sin_cos();
                    re += values[j].re * cos - values[j].im * sin;
                    im += values[j].re * sin + values[j].im * cos;
                }
                assert!((found.re - re).abs() < 1e-12 && (found.im - im).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn backward_undoes_forward() {
        for length in [1, 2, 8, 64, 256] {
            let mut bundle = random_bundle(length);
            let before: Vec<_> = (0..length).map(|k| bundle.get(k)).collect();
            let fft = Fft::new(length);
            fft.run(Direction::Forward, &mut bundle);
            fft.run(Direction::Backward, &mut bundle);
            for (k, values) in before.iter().enumerate() {
                for (found, value) in bundle.get(k).iter().zip(values) {
                    assert!((found.re / length as f64 - value.re).abs() < 1e-13);
                    assert!((found.im / length as f64 - value.im).abs() < 1e-13);
                }
            }
        }
    }
}
