//! NAS kernel FT on 1, 2, 4, ... ranks, at most as many as the smallest side of the grid.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use kumi_examples::fft::Complex;
use kumi_examples::ft::{ITERATIONS, Solver};
use kumi_examples::program::{NasOptions, Outcome, Progress, UsageError, run, slowest};
use kumi_mem::{Context, Error, Op};

fn main() -> ExitCode {
    run(|context, options: &NasOptions| {
        let class = options.class;
        let grid = class.ft_grid();
        let mut solver = Solver::new(grid, context.rank() as usize, context.ranks() as usize)
            .ok_or_else(|| {
                let (ranks, side) = (context.ranks(), grid.y.min(grid.z));
                let text = format!("{ranks} ranks: it must be a power of two, at most {side}");
                UsageError(text)
            })?;
        let mut outcome = Outcome {
            name: "FT",
            class: &class.to_string(),
            verified: true,
            seconds: 0.0,
            operations: f64::from(options.repeat) * operations(grid.points()),
            repeat: options.repeat,
        };
        let mut progress = Progress::new(context, options.progress);
        for repeat in 0..options.repeat {
            context.barrier()?;
            let begin = context.time();
            let sums = solve(context, &mut solver, repeat == 0, &mut progress)?;
            outcome.seconds += slowest(context, context.time() - begin)?;
            outcome.verified &= class.ft_verify(&sums);
        }
        Ok(outcome.print(context))
    })
}

/// Runs all steps; the check sums over all ranks.
fn solve(
    context: &Context,
    solver: &mut Solver,
    show: bool,
    progress: &mut Progress,
) -> Result<[Complex; ITERATIONS], Error> {
    let mut transpose = |send: &mut Vec<f64>, recv: &mut Vec<f64>| {
        if context.ranks() == 1 {
            std::mem::swap(send, recv);
            return Ok(());
        }
        context.alltoall(send, recv)
    };
    let mut sums = [Complex::default(); ITERATIONS];
    solver.start(&mut transpose)?;
    for (step, sum) in sums.iter_mut().enumerate() {
        let part = solver.step(&mut transpose)?;
        let mut whole = [part.re, part.im];
        context.allreduce(Op::Sum, &mut whole)?;
        *sum = Complex { re: whole[0], im: whole[1] };
        if show && context.rank() == 0 {
            println!("step {} check sum {:.12e} {:.12e}", step + 1, sum.re, sum.im);
        }
        progress.add(1);
    }
    Ok(sums)
}

/// Floating-point operations of one run as the NAS Parallel Benchmarks count them.
fn operations(points: usize) -> f64 {
    let points = points as f64;
    let log = points.ln();
    points * (14.8157 + 7.19641 * log + (5.23518 + 7.21113 * log) * ITERATIONS as f64)
}
