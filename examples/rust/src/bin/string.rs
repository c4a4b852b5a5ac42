//! The wave on a string that is held fast at both ends, by explicit steps.
//!
//! Each rank has a part of the string. In every step it begins to receive its neighbours' outermost points and to send its own,
//! computes the points inside meanwhile, and then the outermost ones. All requests of a step are over at the end of its scope,
//! so their memory can lie on the stack.
//!
//! The beginning is a sum of modes, which swing with known frequencies. At the end each rank puts its part into a window of
//! rank 0, which compares the whole with what is known.

#![forbid(unsafe_code)]

use std::f64::consts::PI;
use std::ops::Range;
use std::process::ExitCode;

use clap::Parser;
use kumi_examples::program::{Outcome, UsageError, run, slowest};
use kumi_mem::{Context, Error, Source, Tag};

/// Square of the wave's speed by time step and distance; stable up to 1.
const RATIO: f64 = 0.8;
/// Tags of messages to the neighbours.
const LEFTWARD: i32 = 0;
const RIGHTWARD: i32 = 1;
/// The modes of the beginning.
const MODES: [u32; 3] = [1, 3, 8];

#[derive(Debug, Parser)]
#[command(about = "Waves on a string: points travel while others are computed")]
struct Options {
    /// Points that move, at least as many as ranks
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    points: u32,
    /// Time steps
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
}

/// This rank's part of the string.
struct Part<'c> {
    context: &'c Context,
    /// Its points, counted through the whole string.
    points: Range<usize>,
    all: usize,
    /// With a point of each neighbour at the ends.
    now: Vec<f64>,
    /// The step before; then the next one.
    other: Vec<f64>,
}

/// The string at a point after some steps.
fn exact(all: usize, point: usize, steps: i32) -> f64 {
    let distance = PI / (all as f64 + 1.0);
    let mode = |mode: u32| {
        let mode = f64::from(mode);
        let frequency = 2.0 * (RATIO.sqrt() * (mode * distance / 2.0).sin()).asin();
        (mode * distance * (point as f64 + 1.0)).sin() * (frequency * f64::from(steps)).cos()
    };
    MODES.into_iter().map(mode).sum()
}

fn points_of(rank: u32, ranks: u32, all: usize) -> Range<usize> {
    let begin = |rank: u32| all * rank as usize / ranks as usize;
    begin(rank)..begin(rank + 1)
}

impl<'c> Part<'c> {
    fn new(context: &'c Context, all: usize) -> Part<'c> {
        let points = points_of(context.rank(), context.ranks(), all);
        let at = |steps: i32| {
            let inside = points.clone().map(|point| exact(all, point, steps));
            [0.0].into_iter().chain(inside).chain([0.0]).collect::<Vec<_>>()
        };
        Part { context, now: at(0), other: at(-1), points, all }
    }

    /// One step.
    fn step(&mut self) -> Result<(), Error> {
        let (rank, last) = (self.context.rank(), self.points.len());
        let (left, right) =
            (rank.checked_sub(1), Some(rank + 1).filter(|r| *r < self.context.ranks()));
        let (first_point, last_point) = (self.now[1].to_ne_bytes(), self.now[last].to_ne_bytes());
        let (mut from_left, mut from_right) = ([0; 8], [0; 8]);
        let (now, next) = (&self.now, &mut self.other);
        self.context.scope(|scope| {
            if let Some(left) = left {
                scope.receive(Source::Rank(left), Tag::Is(RIGHTWARD), &mut from_left)?;
                scope.send(left, LEFTWARD, &first_point)?;
            }
            if let Some(right) = right {
                scope.receive(Source::Rank(right), Tag::Is(LEFTWARD), &mut from_right)?;
                scope.send(right, RIGHTWARD, &last_point)?;
            }
            for at in 2..last {
                next[at] = moved(now[at - 1], now[at], now[at + 1], next[at]);
            }
            Ok(())
        })?;
        self.now[0] = f64::from_ne_bytes(from_left);
        self.now[last + 1] = f64::from_ne_bytes(from_right);
        for at in if last > 1 { vec![1, last] } else { vec![1] } {
            let around = &self.now[at - 1..=at + 1];
            self.other[at] = moved(around[0], around[1], around[2], self.other[at]);
        }
        std::mem::swap(&mut self.now, &mut self.other);
        Ok(())
    }

    /// The largest difference of the whole string from what is known; 0 at other ranks than 0.
    fn worst(&self, steps: u32) -> Result<f64, Error> {
        let here = if self.context.rank() == 0 { self.all } else { 0 };
        let whole = self.context.typed_window::<f64>(here)?;
        whole.put(0, self.points.start, &self.now[1..=self.points.len()])?;
        self.context.flush(0)?;
        self.context.barrier()?;
        let mut worst = 0.0f64;
        for point in 0..here {
            worst = worst.max((whole.load(point)? - exact(self.all, point, steps as i32)).abs());
        }
        Ok(worst)
    }
}

/// The next place of a point between two others, where it was `before`.
fn moved(left: f64, here: f64, right: f64, before: f64) -> f64 {
    2.0 * here - before + RATIO * (left - 2.0 * here + right)
}

fn main() -> ExitCode {
    run(|context, options: &Options| {
        if options.points < context.ranks() {
            return Err(UsageError("more ranks than points".to_owned()).into());
        }
        let mut part = Part::new(context, options.points as usize);
        context.barrier()?;
        let begin = context.time();
        for _ in 0..options.steps {
            part.step()?;
        }
        let seconds = slowest(context, context.time() - begin)?;
        let mut worst = [part.worst(options.steps)?];
        context.broadcast(0, &mut worst)?;
        let verified = worst[0] < 1e-8;
        if context.rank() == 0 {
            println!("largest error {:.3e} after {} steps", worst[0], options.steps);
            let operations = f64::from(options.points) * f64::from(options.steps);
            let (name, class) = ("string", "-");
            let outcome = Outcome { name, class, verified, seconds, operations, repeat: 1 };
            println!("{}", outcome.line(context.ranks()));
        }
        Ok(verified)
    })
}
