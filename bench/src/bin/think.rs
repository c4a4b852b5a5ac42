//! A job whose user thinks: all ranks work for a while, then rank 0 waits for its user and the others for rank 0, again and again.
//! Rank 0 prints `computed SECONDS`, the time of a processor that it used until the end.
#![forbid(unsafe_code)]

use clap::Parser;
use kumi_bench::thinking::{Turn, Turns};
use kumi_mem::{Context, Op};
use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Parser)]
struct Args {
    /// Number from which the turns are drawn
    #[arg(long)]
    seed: u64,
    /// Mean milliseconds of work
    #[arg(long, default_value_t = 250.0)]
    work_ms: f64,
    /// Mean milliseconds of thinking
    #[arg(long, default_value_t = 1000.0)]
    think_ms: f64,
    /// When to begin, in seconds since 1970
    #[arg(long)]
    begin: f64,
    /// Seconds until the end
    #[arg(long)]
    seconds: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let context = Context::init()?;
    let end = args.begin + args.seconds;
    context.barrier()?;
    sleep_until(args.begin);
    let mean = Turn { work: args.work_ms / 1e3, think: args.think_ms / 1e3 };
    let mut computed = 0.0;
    for turn in Turns::new(args.seed, mean) {
        computed += work(turn.work, end)?;
        // The answer is shown when all are through.
        context.barrier()?;
        if context.rank() == 0 {
            sleep_until((now() + turn.think).min(end));
        }
        let mut over = [u64::from(context.rank() == 0 && now() >= end)];
        context.allreduce(Op::Max, &mut over)?;
        if over == [1] {
            break;
        }
    }
    if context.rank() == 0 {
        println!("computed {computed:.6}");
    }
    context.finalize()?;
    Ok(())
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn sleep_until(then: f64) {
    std::thread::sleep(Duration::try_from_secs_f64(then - now()).unwrap_or_default());
}

/// What this thread has used of a processor, in seconds.
fn used() -> nix::Result<f64> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?).as_secs_f64())
}

/// Uses a processor for so many seconds, or until the end; how many it were.
fn work(seconds: f64, end: f64) -> nix::Result<f64> {
    let begin = used()?;
    loop {
        let done = used()? - begin;
        if done >= seconds || now() >= end {
            return Ok(done.min(seconds));
        }
        (0..2_000_u64).for_each(|round| {
            black_box(round.wrapping_mul(round));
        });
    }
}
