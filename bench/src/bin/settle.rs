//! Cost of settling. Every rank keeps puts to all other nodes' ranks in flight and, again and again, waits
//! until none of its packets is on the wire. Prints the times over all ranks, in microseconds: with traffic,
//! and without.
#![forbid(unsafe_code)]

use clap::Parser;
use kumi_mem::{Context, Error, Op, Window};
use std::time::Duration;

/// Time to settle a channel.
#[derive(Parser)]
struct Args {
    /// Times that every rank settles its channel
    #[arg(long, default_value_t = 500)]
    rounds: usize,
    /// Bytes put to each rank of another node before each time
    #[arg(long, default_value_t = 16_384)]
    bytes: usize,
}

fn main() -> Result<(), Error> {
    let args = Args::parse();
    let context = Context::init()?;
    let window = context.window(args.bytes.max(8))?;
    for (name, bytes) in [("busy", args.bytes), ("idle", 0)] {
        let times = settle(&context, &window, args.rounds, bytes)?;
        report(&context, name, args.rounds, &times)?;
    }
    drop(window);
    context.finalize()
}

/// The times of this rank, except those above a second.
fn settle(
    context: &Context,
    window: &Window<'_>,
    rounds: usize,
    bytes: usize,
) -> Result<Vec<Duration>, Error> {
    let far = |rank: &u32| !context.same_node(*rank);
    let peers: Vec<u32> = (0..context.ranks()).filter(far).collect();
    let data = vec![1; bytes];
    let mut times = Vec::with_capacity(rounds);
    context.barrier()?;
    for _ in 0..rounds {
        for peer in peers.iter().filter(|_| bytes > 0) {
            window.put(*peer, 0, &data)?;
        }
        times.extend(context.quiesce(Duration::from_secs(1))?);
    }
    context.flush_all()?;
    context.barrier()?;
    Ok(times)
}

/// Prints mean and longest time over all ranks that settled in time, and how many did and did not.
fn report(context: &Context, name: &str, rounds: usize, times: &[Duration]) -> Result<(), Error> {
    let micros = |time: &Duration| time.as_micros() as u64;
    let late = (rounds - times.len()) as u64;
    let mut sums = [times.iter().map(micros).sum(), times.len() as u64, late];
    let mut longest = [times.iter().map(micros).max().unwrap_or(0)];
    context.allreduce(Op::Sum, &mut sums)?;
    context.allreduce(Op::Max, &mut longest)?;
    if context.rank() == 0 {
        println!("settle_{name}_times {}", sums[1]);
        println!("settle_{name}_late {}", sums[2]);
        println!("settle_{name}_mean_us {:.1}", sums[0] as f64 / sums[1].max(1) as f64);
        println!("settle_{name}_max_us {}", longest[0]);
    }
    Ok(())
}
