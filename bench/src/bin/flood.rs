//! A job that disturbs others: it fills its channel, streams through it, or only computes. It runs until it
//! is killed. Ranks of the first half send to those of the second half; with `fill` also the other way.
#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use kumi_bench::progress;
use kumi_mem::{Context, Source, Tag};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Bytes of a message: it fills a packet.
const BYTES: usize = 1_400;
/// Messages of a stream until the receiver answers.
const WINDOW: u64 = 1_000;
/// Interval at which the number of sent messages is printed, if there were any.
const SHOW: Duration = Duration::from_millis(50);

/// The disturbance.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// All send and nobody receives: soon all rings are full and stay so
    Full,
    /// Half of the ranks send as much as the others receive
    Stream,
    /// No messages, only computing
    Compute,
}

/// A job that disturbs others.
#[derive(Parser)]
struct Args {
    /// The disturbance
    #[arg(value_enum)]
    mode: Mode,
}

fn main() -> Result<(), kumi_mem::Error> {
    let args = Args::parse();
    let context = Context::init()?;
    context.barrier()?;
    let sent = Arc::new(AtomicU64::new(0));
    if context.rank() == 0 {
        let sent = Arc::clone(&sent);
        std::thread::spawn(move || show(&sent));
    }
    match args.mode {
        Mode::Full => fill(&context, &sent),
        Mode::Stream => stream(&context, &sent),
        Mode::Compute => loop {
            std::hint::spin_loop();
        },
    }
}

/// Shows how many messages rank 0 has sent, whenever it has sent some.
fn show(sent: &AtomicU64) {
    let mut shown = 0;
    progress::show(0);
    loop {
        std::thread::sleep(SHOW);
        let now = sent.load(Relaxed);
        if now != shown {
            shown = now;
            progress::show(now);
        }
    }
}

fn fill(context: &Context, sent: &AtomicU64) -> Result<(), kumi_mem::Error> {
    let to = (context.rank() + context.ranks() / 2) % context.ranks();
    let data = [b'k'; BYTES];
    loop {
        context.send(to, 0, &data)?;
        sent.fetch_add(1, Relaxed);
    }
}

fn stream(context: &Context, sent: &AtomicU64) -> Result<(), kumi_mem::Error> {
    let half = context.ranks() / 2;
    let mut data = [b'k'; BYTES];
    loop {
        if context.rank() >= half {
            let from = context.rank() - half;
            for _ in 0..WINDOW {
                context.recv(Source::Rank(from), Tag::Is(0), &mut data)?;
            }
            context.send(from, 1, &[])?;
            continue;
        }
        let to = context.rank() + half;
        for _ in 0..WINDOW {
            context.send(to, 0, &data)?;
            sent.fetch_add(1, Relaxed);
        }
        context.recv(Source::Rank(to), Tag::Is(1), &mut [])?;
    }
}
