//! Puts from rank 0 into the window of rank 1, each batch answered by one notification. Prints bytes
//! and puts a second, as medians over batches, as the peers do.
#![forbid(unsafe_code)]

use clap::Parser;
use kumi_bench::record::median;
use kumi_mem::{Context, OnPlacement, Window};

/// Batches before those that count.
const WARM_UP: u32 = 3;

/// A stream of puts between two ranks.
#[derive(Parser)]
struct Args {
    /// Bytes of each put
    #[arg(long, default_value_t = 65_536)]
    size: usize,
    /// Puts until the receiver answers
    #[arg(long, default_value_t = 512)]
    window: u64,
    /// Places in the receiver's memory that the puts go to in turn
    #[arg(long, default_value_t = 1)]
    places: u64,
    /// Windows in a batch, that is between two looks at the clock
    #[arg(long, default_value_t = 1)]
    windows: u64,
    /// The bytes lie in the sender's own part of the window, and are sent from there
    #[arg(long)]
    from_window: bool,
    /// Batches measured
    #[arg(long, default_value_t = 20)]
    batches: u32,
}

fn main() -> Result<(), kumi_mem::Error> {
    let args = Args::parse();
    let context = Context::init()?;
    if context.ranks() != 2 {
        eprintln!("two ranks are needed, there are {}; use `kumi run -n 2`", context.ranks());
        std::process::exit(64);
    }
    let window = context.window(args.size * args.places as usize)?;
    let data = vec![b'k'; args.size];
    window.write(0, &data)?;
    context.barrier()?;
    let (mut seconds, mut answers) = (Vec::new(), 0);
    for batch in 0..WARM_UP + args.batches {
        let begin = context.time();
        for _ in 0..args.windows {
            answers += 1;
            one_window(&context, &window, &args, &data, answers)?;
        }
        if batch >= WARM_UP {
            seconds.push(context.time() - begin);
        }
    }
    if context.rank() == 0 {
        let puts = (args.window * args.windows) as f64 / median(&seconds);
        println!("megabytes_per_second {:.1}", puts * args.size as f64 / 1e6);
        println!("messages_per_second {puts:.0}");
    }
    context.barrier()
}

/// Rank 0 puts, the last time with a notification; rank 1 answers it.
fn one_window(
    context: &Context,
    window: &Window<'_>,
    args: &Args,
    data: &[u8],
    count: u64,
) -> Result<(), kumi_mem::Error> {
    if context.rank() == 1 {
        window.wait_notify(0, count)?;
        return window.put_notify(0, 0, &[], 0);
    }
    let offset = |put| (put % args.places) as usize * args.size;
    let last = args.window - 1;
    let from = |put, notify| {
        window.put_from(0..args.size, 1, offset(put), OnPlacement { notify, completion: None })
    };
    for put in 0..last {
        if args.from_window {
            from(put, None)?;
        } else {
            window.put(1, offset(put), data)?;
        }
    }
    if args.from_window {
        from(last, Some(0))?;
    } else {
        window.put_notify(1, offset(last), data, 0)?;
    }
    window.wait_notify(0, count).map(drop)
}
