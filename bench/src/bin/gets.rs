//! Gets of 4 KB from a rank of another node: all of a batch under way at the same time, and one after the other, by turns.
//! Prints the gets per second of both, as medians over the turns.
#![forbid(unsafe_code)]

use clap::Parser;
use kumi_mem::{Context, Error, Window};

/// Gets by requests, and by calls that wait for each.
#[derive(Parser)]
struct Args {
    /// Bytes of a get
    #[arg(long, default_value_t = 4_096)]
    size: usize,
    /// Gets under way at the same time
    #[arg(long, default_value_t = 16)]
    together: usize,
    /// Batches of a turn
    #[arg(long, default_value_t = 50)]
    batches: usize,
    /// Turns of each
    #[arg(long, default_value_t = 40)]
    turns: usize,
}

fn main() -> Result<(), Error> {
    let args = Args::parse();
    let context = Context::init()?;
    let last = context.ranks() - 1;
    if context.same_node(last) && context.rank() == 0 {
        eprintln!(
            "the last rank is on the same node as rank 0: start one rank on each of two nodes"
        );
        std::process::exit(64);
    }
    let window = context.window(args.size * args.together)?;
    context.barrier()?;
    if context.rank() == 0 {
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        turn(&context, &window, &args, last, true)?;
        for _ in 0..args.turns {
            together.push(turn(&context, &window, &args, last, true)?);
            alone.push(turn(&context, &window, &args, last, false)?);
        }
        println!("gets_per_second_together {:.0}", median(together));
        println!("gets_per_second_alone {:.0}", median(alone));
    }
    context.barrier()?;
    drop(window);
    context.finalize()
}

/// Gets per second of one turn.
fn turn(
    context: &Context,
    window: &Window<'_>,
    args: &Args,
    from: u32,
    together: bool,
) -> Result<f64, Error> {
    let mut bytes = vec![0; args.size * args.together];
    let begin = context.time();
    for _ in 0..args.batches {
        let pieces = bytes.chunks_mut(args.size).enumerate();
        if together {
            context.scope(|scope| {
                for (index, piece) in pieces {
                    scope.get(window, from, index * args.size, piece)?;
                }
                Ok(())
            })?;
        } else {
            for (index, piece) in pieces {
                window.get(from, index * args.size, piece)?;
            }
        }
    }
    Ok((args.batches * args.together) as f64 / (context.time() - begin))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
