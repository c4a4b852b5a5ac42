//! Memory of a rank's idle channel. Compares the process before it joins its job with the process after
//! it has joined, met its peers in a barrier and been idle for a while.
//!
//! It counts the pages of the process, shared ones in proportion (`Pss`), and its page tables. The system
//! does not report empty sockets and the kernel's stack of the handler thread, some 20 KB.
#![forbid(unsafe_code)]

use clap::Parser;
use kumi_mem::{Context, Op};
use std::time::Duration;

/// Memory of the idle channel of each rank.
#[derive(Parser)]
struct Args {
    /// Seconds of idleness
    #[arg(long, default_value_t = 1.0)]
    idle: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let before = memory()?;
    let context = Context::init()?;
    context.barrier()?;
    std::thread::sleep(Duration::from_secs_f64(args.idle));
    let taken = memory()?.saturating_sub(before);
    let (mut sum, mut most) = ([taken], [taken]);
    context.allreduce(Op::Sum, &mut sum)?;
    context.allreduce(Op::Max, &mut most)?;
    if context.rank() == 0 {
        println!("ranks {}", context.ranks());
        println!("bytes_per_rank {}", sum[0] / u64::from(context.ranks()));
        println!("most_bytes_of_a_rank {}", most[0]);
    }
    context.finalize()?;
    Ok(())
}

/// Bytes of this process: its share of its pages and its page tables.
fn memory() -> std::io::Result<u64> {
    let kilobytes = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        number.ok_or_else(|| std::io::Error::other(format!("{file} has no {name}")))
    };
    Ok(1024
        * (kilobytes("/proc/self/smaps_rollup", "Pss:")?
            + kilobytes("/proc/self/status", "VmPTE:")?))
}
