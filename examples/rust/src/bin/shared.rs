//! Shared memory in its three uses: a counter under a lock, an array of which each rank writes a block and reads its
//! neighbour's, and barriers between. With `kumi run --trace` it is something to look at.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser;
use kumi_dsm::{Config, Placement, SharedMemory};
use kumi_mem::Context;

/// The lock of the counter.
const COUNTER: u32 = 7;

#[derive(Debug, Parser)]
#[command(about = "Counts under a lock, and reads what the neighbour has written")]
struct Options {
    /// Rounds, each with a barrier; 0: until it is killed
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Numbers in the block of each rank
    #[arg(long, default_value_t = 8_192)]
    block: usize,
    /// Place all blocks at rank 0 instead of at the ranks that write them
    #[arg(long)]
    misplaced: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shared: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let context = Arc::new(Context::init()?);
    let config = Config::from_environment()?;
    let memory = SharedMemory::new(Arc::clone(&context), config)?;
    let count = work(&memory, options)?;
    if context.rank() == 0 {
        println!("{count} rounds of all ranks");
    }
    drop(memory);
    Arc::into_inner(context).context("the memory has let the context go")?.finalize()?;
    Ok(())
}

fn work(memory: &SharedMemory, options: &Options) -> anyhow::Result<u64> {
    let (me, ranks) = (memory.context().rank() as usize, memory.context().ranks() as usize);
    let home = if options.misplaced { Placement::At(0) } else { Placement::Blocks };
    let blocks = memory.array::<u64>(ranks * options.block, home)?;
    let counter = memory.array::<u64>(1, Placement::At(0))?;
    let neighbour = (me + 1) % ranks;
    for round in
        (1..).take_while(|round| options.rounds == 0 || *round <= u64::from(options.rounds))
    {
        for at in 0..options.block {
            blocks.set(me * options.block + at, round)?;
        }
        {
            let _held = memory.lock(COUNTER)?;
            counter.set(0, counter.get(0)? + 1)?;
        }
        memory.barrier()?;
        for at in 0..options.block {
            let found = blocks.get(neighbour * options.block + at)?;
            anyhow::ensure!(found == round, "the neighbour wrote {found} in round {round}");
        }
        memory.barrier()?;
    }
    let count = counter.get(0)?;
    anyhow::ensure!(count == u64::from(options.rounds) * ranks as u64, "the counter is {count}");
    Ok(count)
}
