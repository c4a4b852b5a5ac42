//! The NAS kernel FT: a diffusion equation solved by 3-D Fourier transforms (NAS report
//! RNR-94-007, §2.2.5), on slabs.
//!
//! A rank has some planes of constant z (*space*, stored `[z][y][x]`) or, after the global transpose,
//! of constant y (*spectrum*, stored `[y][z][x]`). Rows along x stay whole, so packing copies rows. The
//! transpose is the only communication; the caller hands it in as a function, see [`Exchange`].

use std::f64::consts::PI;

use crate::fft::{Bundle, Complex, Direction, Fft, WIDTH};
use crate::program::Class;
use crate::random::Random;

/// Steps in time.
pub const ITERATIONS: usize = 6;
/// Diffusion per step.
const ALPHA: f64 = 1e-6;
/// Seed of the initial state.
const SEED: u64 = 314_159_265;
/// Elements that the check sum of a step adds up.
const SAMPLES: usize = 1024;

/// Sends block r of the first vector to rank r, and fills block r of the second with the block that
/// rank r sent here. It may exchange the vectors themselves instead. Blocks have equal lengths.
pub trait Exchange<E>: FnMut(&mut Vec<f64>, &mut Vec<f64>) -> Result<(), E> {}
impl<E, F: FnMut(&mut Vec<f64>, &mut Vec<f64>) -> Result<(), E>> Exchange<E> for F {}

/// Points in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Along x, the direction of rows.
    pub x: usize,
    /// Along y.
    pub y: usize,
    /// Along z.
    pub z: usize,
}

impl Grid {
    /// All points.
    #[must_use]
    pub fn points(self) -> usize {
        self.x * self.y * self.z
    }
}

const fn c(re: f64, im: f64) -> Complex {
    Complex { re, im }
}

impl Class {
    /// The points of the problem.
    #[must_use]
    pub fn ft_grid(self) -> Grid {
        match self {
            Class::S => Grid { x: 64, y: 64, z: 64 },
            Class::W => Grid { x: 128, y: 128, z: 32 },
            Class::A => Grid { x: 256, y: 256, z: 128 },
        }
    }

    /// The official check sums of the steps.
    #[must_use]
    pub fn ft_expected(self) -> [Complex; ITERATIONS] {
        match self {
            Class::S => [
                c(5.546_087_004_964e2, 4.845_363_331_978e2),
                c(5.546_385_409_189e2, 4.865_304_269_511e2),
                c(5.546_148_406_171e2, 4.883_910_722_336e2),
                c(5.545_423_607_415e2, 4.901_273_169_046e2),
                c(5.544_255_039_624e2, 4.917_475_857_993e2),
                c(5.542_683_411_902e2, 4.932_597_244_941e2),
            ],
            Class::W => [
                c(5.673_612_178_944e2, 5.293_246_849_175e2),
                c(5.631_436_885_271e2, 5.282_149_986_629e2),
                c(5.594_024_089_970e2, 5.270_996_558_037e2),
                c(5.560_698_047_020e2, 5.260_027_904_925e2),
                c(5.530_898_991_250e2, 5.249_400_845_633e2),
                c(5.504_159_734_538e2, 5.239_212_247_086e2),
            ],
            Class::A => [
                c(5.046_735_008_193e2, 5.114_047_905_510e2),
                c(5.059_412_319_734e2, 5.098_809_666_433e2),
                c(5.069_376_896_287e2, 5.098_144_042_213e2),
                c(5.077_892_868_474e2, 5.101_336_130_759e2),
                c(5.085_233_095_391e2, 5.104_914_655_194e2),
                c(5.091_487_099_959e2, 5.107_917_842_803e2),
            ],
        }
    }

    /// Whether the sums are the official ones, to 1e-12 as the specification demands.
    #[must_use]
    pub fn ft_verify(self, sums: &[Complex]) -> bool {
        let near = |found: f64, expected: f64| ((found - expected) / expected).abs() <= 1e-12;
        sums.len() == ITERATIONS
            && sums
                .iter()
                .zip(self.ft_expected())
                .all(|(found, expected)| near(found.re, expected.re) && near(found.im, expected.im))
    }
}

/// One rank's part.
#[derive(Debug)]
pub struct Solver {
    grid: Grid,
    rank: usize,
    ranks: usize,
    /// `[z][y][x]`, this rank's z.
    space: Vec<Complex>,
    /// `[y][z][x]`, this rank's y: the present state.
    spectrum: Vec<Complex>,
    /// The state on its way back to space.
    work: Vec<Complex>,
    send: Vec<f64>,
    recv: Vec<f64>,
    along_x: Fft,
    along_y: Fft,
    along_z: Fft,
    decay_x: Vec<f64>,
    decay_y: Vec<f64>,
    decay_z: Vec<f64>,
}

/// Factors of one step for the frequencies of one direction.
fn decay(length: usize) -> Vec<f64> {
    let half = length / 2;
    let factor = |k: usize| {
        // Frequencies from half the length on stand for negative ones.
        let frequency = ((k + half) % length) as f64 - half as f64;
        (-4.0 * ALPHA * PI * PI * frequency * frequency).exp()
    };
    (0..length).map(factor).collect()
}

impl Solver {
    /// Memory for rank `rank` of `ranks`; `None` if the number of ranks does not divide the
    /// planes of the grid, or a side is not a power of two.
    #[must_use]
    pub fn new(grid: Grid, rank: usize, ranks: usize) -> Option<Self> {
        let fits = ranks > 0
            && rank < ranks
            && grid.y.is_multiple_of(ranks)
            && grid.z.is_multiple_of(ranks)
            && grid.x.is_multiple_of(WIDTH)
            && [grid.x, grid.y, grid.z].iter().all(|side| side.is_power_of_two());
        if !fits {
            return None;
        }
        let mine = grid.points() / ranks;
        Some(Self {
            grid,
            rank,
            ranks,
            space: vec![Complex::default(); mine],
            spectrum: vec![Complex::default(); mine],
            work: vec![Complex::default(); mine],
            send: vec![0.0; 2 * mine],
            recv: vec![0.0; 2 * mine],
            along_x: Fft::new(grid.x),
            along_y: Fft::new(grid.y),
            along_z: Fft::new(grid.z),
            decay_x: decay(grid.x),
            decay_y: decay(grid.y),
            decay_z: decay(grid.z),
        })
    }

    /// Sets the initial state, random numbers, and transforms it.
    ///
    /// # Errors
    /// Those of `exchange`.
    pub fn start<E>(&mut self, exchange: &mut impl Exchange<E>) -> Result<(), E> {
        let first = (2 * self.space.len() * self.rank) as u64;
        let mut random = Random::new(SEED).skip(first);
        for value in &mut self.space {
            value.re = random.unit();
            value.im = random.unit();
        }
        rows(&self.along_x, Direction::Forward, &mut self.space);
        columns(&self.along_y, self.grid.x, Direction::Forward, &mut self.space);
        self.pack_space();
        exchange(&mut self.send, &mut self.recv)?;
        self.unpack_spectrum();
        columns(&self.along_z, self.grid.x, Direction::Forward, &mut self.spectrum);
        Ok(())
    }

    /// One step in time. Returns this rank's part of the step's check sum.
    ///
    /// # Errors
    /// Those of `exchange`.
    pub fn step<E>(&mut self, exchange: &mut impl Exchange<E>) -> Result<Complex, E> {
        self.evolve();
        columns(&self.along_z, self.grid.x, Direction::Backward, &mut self.work);
        self.pack_work();
        exchange(&mut self.send, &mut self.recv)?;
        self.unpack_space();
        columns(&self.along_y, self.grid.x, Direction::Backward, &mut self.space);
        rows(&self.along_x, Direction::Backward, &mut self.space);
        Ok(self.check_sum())
    }

    /// Lets all frequencies decay by one step; keeps the state and copies it to `work`.
    fn evolve(&mut self) {
        let grid = self.grid;
        let first_y = self.rank * grid.y / self.ranks;
        let state = self.spectrum.chunks_exact_mut(grid.x);
        let lines = state.zip(self.work.chunks_exact_mut(grid.x)).enumerate();
        for (line, (state, work)) in lines {
            let outer = self.decay_y[first_y + line / grid.z] * self.decay_z[line % grid.z];
            for ((state, work), inner) in state.iter_mut().zip(work).zip(&self.decay_x) {
                let factor = outer * inner;
                state.re *= factor;
                state.im *= factor;
                *work = *state;
            }
        }
    }

    fn check_sum(&self) -> Complex {
        let grid = self.grid;
        let planes = grid.z / self.ranks;
        let first = self.rank * planes;
        let mut sum = Complex::default();
        for sample in 1..=SAMPLES {
            let (x, y, z) = (sample % grid.x, 3 * sample % grid.y, 5 * sample % grid.z);
            if (first..first + planes).contains(&z) {
                let value = self.space[((z - first) * grid.y + y) * grid.x + x];
                sum.re += value.re;
                sum.im += value.im;
            }
        }
        let points = grid.points() as f64;
        Complex { re: sum.re / points, im: sum.im / points }
    }

    /// Row index of (y, z) of the block for rank r in the buffers. Blocks follow each other; in each,
    /// the z of the space side are outside, the y of the spectrum side inside.
    fn pack_space(&mut self) {
        let Grid { x, y, z } = self.grid;
        let (ys, zs) = (y / self.ranks, z / self.ranks);
        let mut out = self.send.chunks_exact_mut(2 * x);
        for r in 0..self.ranks {
            for plane in 0..zs {
                for row in r * ys..(r + 1) * ys {
                    flatten(&self.space[(plane * y + row) * x..][..x], out.next());
                }
            }
        }
    }

    fn unpack_spectrum(&mut self) {
        let Grid { x, y, z } = self.grid;
        let (ys, zs) = (y / self.ranks, z / self.ranks);
        let mut from = self.recv.chunks_exact(2 * x);
        for r in 0..self.ranks {
            for plane in r * zs..(r + 1) * zs {
                for row in 0..ys {
                    unflatten(from.next(), &mut self.spectrum[(row * z + plane) * x..][..x]);
                }
            }
        }
    }

    fn pack_work(&mut self) {
        let Grid { x, y, z } = self.grid;
        let (ys, zs) = (y / self.ranks, z / self.ranks);
        let mut out = self.send.chunks_exact_mut(2 * x);
        for r in 0..self.ranks {
            for plane in r * zs..(r + 1) * zs {
                for row in 0..ys {
                    flatten(&self.work[(row * z + plane) * x..][..x], out.next());
                }
            }
        }
    }

    fn unpack_space(&mut self) {
        let Grid { x, y, z } = self.grid;
        let (ys, zs) = (y / self.ranks, z / self.ranks);
        let mut from = self.recv.chunks_exact(2 * x);
        for r in 0..self.ranks {
            for plane in 0..zs {
                for row in r * ys..(r + 1) * ys {
                    unflatten(from.next(), &mut self.space[(plane * y + row) * x..][..x]);
                }
            }
        }
    }
}

/// Copies a row to a buffer's row, which is there by construction.
fn flatten(row: &[Complex], buffer: Option<&mut [f64]>) {
    let pairs = buffer.into_iter().flat_map(|buffer| buffer.chunks_exact_mut(2));
    for (pair, value) in pairs.zip(row) {
        pair[0] = value.re;
        pair[1] = value.im;
    }
}

fn unflatten(buffer: Option<&[f64]>, row: &mut [Complex]) {
    let pairs = buffer.into_iter().flat_map(|buffer| buffer.chunks_exact(2));
    for (pair, value) in pairs.zip(row) {
        *value = Complex { re: pair[0], im: pair[1] };
    }
}

/// Transforms every row.
fn rows(fft: &Fft, direction: Direction, data: &mut [Complex]) {
    let length = fft.length();
    let mut bundle = Bundle::new(length);
    for block in data.chunks_exact_mut(WIDTH * length) {
        for k in 0..length {
            bundle.set(k, &std::array::from_fn(|j| block[j * length + k]));
        }
        fft.run(direction, &mut bundle);
        for k in 0..length {
            for (j, value) in bundle.get(k).into_iter().enumerate() {
                block[j * length + k] = value;
            }
        }
    }
}

/// Transforms, in every plane of rows of length `row`, along the rows' number.
fn columns(fft: &Fft, row: usize, direction: Direction, data: &mut [Complex]) {
    let length = fft.length();
    let mut bundle = Bundle::new(length);
    for plane in data.chunks_exact_mut(length * row) {
        for first in (0..row).step_by(WIDTH) {
            for k in 0..length {
                let at = k * row + first;
                bundle.set(k, &std::array::from_fn(|j| plane[at + j]));
            }
            fft.run(direction, &mut bundle);
            for k in 0..length {
                let at = k * row + first;
                plane[at..at + WIDTH].copy_from_slice(&bundle.get(k));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn swap(send: &mut Vec<f64>, recv: &mut Vec<f64>) -> Result<(), Infallible> {
        std::mem::swap(send, recv);
        Ok(())
    }

    #[test]
    fn class_s_has_the_official_check_sums() {
        let mut solver = Solver::new(Class::S.ft_grid(), 0, 1).unwrap();
        let Ok(()) = solver.start(&mut swap);
        let sums: Vec<_> = (0..ITERATIONS)
            .map(|_| {
                let Ok(sum) = solver.step(&mut swap);
                sum
            })
            .collect();
        assert!(Class::S.ft_verify(&sums), "{sums:?}");
        assert!(!Class::S.ft_verify(&sums[1..]));
    }

    #[test]
    fn refuses_ranks_that_do_not_divide_the_planes() {
        let grid = Grid { x: 8, y: 16, z: 8 };
        assert!(Solver::new(grid, 0, 4).is_some());
        assert!(Solver::new(grid, 0, 3).is_none());
        assert!(Solver::new(grid, 4, 4).is_none());
        assert!(Solver::new(grid, 0, 0).is_none());
        assert!(Solver::new(Grid { y: 12, ..grid }, 0, 4).is_none());
    }

    /// Two ranks in one thread: each stage is run for both, and the blocks are exchanged by hand.
    #[test]
    fn packing_for_two_ranks_is_the_transpose() {
        let grid = Grid { x: 8, y: 4, z: 2 };
        let mut ranks: Vec<_> = (0..2).map(|rank| Solver::new(grid, rank, 2).unwrap()).collect();
        for (rank, solver) in ranks.iter_mut().enumerate() {
            for (i, value) in solver.space.iter_mut().enumerate() {
                *value = c((rank * 32 + i) as f64, -1.0);
            }
            solver.pack_space();
        }
        let half = ranks[0].send.len() / 2;
        for to in 0..2 {
            for from in 0..2 {
                let block = ranks[from].send[to * half..(to + 1) * half].to_vec();
                ranks[to].recv[from * half..(from + 1) * half].copy_from_slice(&block);
            }
        }
        for (rank, solver) in ranks.iter_mut().enumerate() {
            solver.unpack_spectrum();
            for (i, value) in solver.spectrum.iter().enumerate() {
                let (x, z, y) = (i % 8, i / 8 % 2, i / 16 + 2 * rank);
                assert_eq!(value.re, ((z * 4 + y) * 8 + x) as f64);
            }
            solver.work.clone_from(&solver.spectrum);
            solver.pack_work();
            // The order of packing for the way back is that of the arrived data.
            assert_eq!(solver.send, solver.recv);
            let space = solver.space.clone();
            if rank == 0 {
                // And what rank 0 would get back, from itself and rank 1, is what it had.
                solver.space.fill(Complex::default());
                solver.pack_back_for_test(&space);
                assert_eq!(solver.space, space);
            }
        }
    }

    impl Solver {
        /// Packs `space` as received blocks and unpacks it.
        fn pack_back_for_test(&mut self, space: &[Complex]) {
            self.space.copy_from_slice(space);
            self.pack_space();
            self.recv.clone_from(&self.send);
            self.space.fill(Complex::default());
            self.unpack_space();
        }
    }
}
