//! All operations mixed, round after round, with memory compared to a reference. For networks that lose
//! packets, and to check that a rank's memory does not grow.
//!
//! Every rank's steps of a round follow from the seed, so each rank knows all operations of the others on it.
//! After the steps of a round all ranks check windows, counters, queues and messages. No rank begins the next
//! round before all have checked. Every second rank's piece of the window is memory of its own, which all
//! others reach by frames.
#![forbid(unsafe_code)]

mod script;
mod state;

use clap::Parser;
use kumi_mem::{Context, FIFO_ALIGNMENT, Op, Rights, Window};
use std::path::PathBuf;

use state::{Done, State};

/// All operations mixed, compared with a reference.
#[derive(Parser)]
struct Args {
    /// Rounds
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Seed of the steps
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Most bytes that a rank's memory may grow after the first quarter of the rounds
    #[arg(long, default_value_t = 4 << 20)]
    growth: u64,
    /// After the rounds go on until there is a file of this name, as rank 0 sees it
    #[arg(long, value_name = "FILE")]
    until: Option<PathBuf>,
}

fn main() -> Done {
    let args = Args::parse();
    let context = Context::init()?;
    let bytes = state::bytes(context.ranks());
    if context.rank() % 2 == 1 {
        // FIFOs need memory that begins at a cache line.
        let mut memory = vec![0; bytes + FIFO_ALIGNMENT];
        let start = memory.as_ptr().align_offset(FIFO_ALIGNMENT);
        let memory = &mut memory[start..start + bytes];
        context.with_window_on(memory, Rights::ALL, |window| soak(&args, &context, window))??;
    } else {
        soak(&args, &context, &context.window(bytes)?)?;
    }
    if context.rank() == 0 {
        println!("Verification SUCCESSFUL");
    }
    context.finalize()?;
    Ok(())
}

/// All rounds, and their results.
fn soak<'c>(args: &Args, context: &'c Context, window: &'c Window<'c>) -> Done {
    let mut state = State::new(context, window, args.seed)?;
    let mut early = 0;
    let mut rounds = 0;
    while rounds < args.rounds || goes_on(args, context)? {
        if rounds == args.rounds / 4 {
            early = resident()?;
        }
        state.round(rounds)?;
        rounds += 1;
    }
    let growth = resident()?.saturating_sub(early);
    let by_xdp = context.counters().into_iter().find(|(name, _)| *name == "xdp_in");
    let mut all = [state.steps(), by_xdp.map_or(0, |(_, frames)| frames), growth];
    context.allreduce(Op::Sum, &mut all[..2])?;
    context.allreduce(Op::Max, &mut all[2..])?;
    if context.rank() == 0 {
        println!("ranks {}\nrounds {rounds}", context.ranks());
        println!("steps {}\nframes_by_af_xdp {}\nmost_growth_bytes {}", all[0], all[1], all[2]);
    }
    state.end()?;
    if growth > args.growth {
        return Err(format!("memory has grown by {growth} bytes, more than {}", args.growth).into());
    }
    Ok(())
}

/// Whether no rank has asked to stop yet.
fn goes_on(args: &Args, context: &Context) -> Result<bool, kumi_mem::Error> {
    let Some(file) = &args.until else { return Ok(false) };
    let mut missing = [u64::from(context.rank() == 0 && !file.exists())];
    context.allreduce(Op::Max, &mut missing)?;
    Ok(missing[0] > 0)
}

/// Resident bytes of this process.
fn resident() -> Done<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next());
    Ok(kilobytes.ok_or("/proc/self/status has no VmRSS")?.parse::<u64>()? * 1024)
}
