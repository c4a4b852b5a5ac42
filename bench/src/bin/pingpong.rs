//! Ping-pong of two ranks by put with notification: each puts into the other's window and waits for the
//! other's put. Prints the median half round trip over batches, as the peers do.
#![forbid(unsafe_code)]

use clap::Parser;
use kumi_bench::progress;
use kumi_bench::record::median;
use kumi_mem::{Context, Window};

/// Batches before those that count.
const WARM_UP: u32 = 20;
/// Seconds between two lines that show progress.
const SHOWN: f64 = 0.01;

/// Ping-pong by put with notification, two ranks.
#[derive(Parser)]
struct Args {
    /// Bytes of each put
    #[arg(long, default_value_t = 8)]
    size: usize,
    /// Batches measured
    #[arg(long, default_value_t = 200)]
    batches: u32,
    /// Round trips between two looks at the clock; the peers' number unless given
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Do not end, and print how far it is now and then: PROGRESS round_trips unix_time
    #[arg(long)]
    progress: bool,
}

fn main() -> Result<(), kumi_mem::Error> {
    let args = Args::parse();
    let context = Context::init()?;
    if context.ranks() != 2 {
        eprintln!("two ranks are needed, there are {}; use `kumi run -n 2`", context.ranks());
        std::process::exit(64);
    }
    let window = context.window(args.size)?;
    let data = vec![b'k'; args.size];
    context.barrier()?;
    if args.progress {
        return go_on(&context, &window, &data, args.batch);
    }
    let mut half_ns = Vec::new();
    let mut count = 0;
    for batch in 0..WARM_UP + args.batches {
        let begin = context.time();
        for _ in 0..args.batch {
            count += 1;
            round_trip(&context, &window, &data, count)?;
        }
        if batch >= WARM_UP {
            half_ns.push((context.time() - begin) * 1e9 / (2.0 * f64::from(args.batch)));
        }
    }
    if context.rank() == 0 {
        println!("half_round_trip_ns {:.1}", median(&half_ns));
    }
    context.barrier()
}

/// Round trips without end.
fn go_on(
    context: &Context,
    window: &Window<'_>,
    data: &[u8],
    batch: u32,
) -> Result<(), kumi_mem::Error> {
    let (mut count, mut shown) = (0, context.time());
    loop {
        for _ in 0..batch {
            count += 1;
            round_trip(context, window, data, count)?;
        }
        let now = context.time();
        if context.rank() == 0 && now > shown + SHOWN {
            shown = now;
            progress::show(count);
        }
    }
}

/// The `count`th round trip.
fn round_trip(
    context: &Context,
    window: &Window<'_>,
    data: &[u8],
    count: u64,
) -> Result<(), kumi_mem::Error> {
    let other = 1 - context.rank();
    if context.rank() == 0 {
        window.put_notify(other, 0, data, 0)?;
        window.wait_notify(0, count)?;
    } else {
        window.wait_notify(0, count)?;
        window.put_notify(other, 0, data, 0)?;
    }
    Ok(())
}
