//! Programs whose ranks wait for each other for ever, one of each kind, and some that only look as if they did.
//! `kumi debug waits JOB` says why.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use kumi_dsm::{Config, SharedMemory};
use kumi_mem::{Context, Source, Tag};

const TAG: i32 = 7;

#[derive(Debug, Parser)]
#[command(about = "Waits for ever; run it with `kumi run -n 2` or more ranks")]
struct Options {
    /// How
    #[arg(value_enum)]
    kind: Kind,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Each rank receives from its right neighbour before it sends
    Crossed,
    /// Rank 1 ends, and rank 0 waits for its message
    Left,
    /// Rank 1 ends, and the others wait for a message of anybody
    Anybody,
    /// Rank 1 does not come to the barrier, and waits for a message
    Barrier,
    /// Rank 1 never writes the notification for which rank 0 waits
    Notification,
    /// Two ranks take two locks of shared memory, each the other one first
    Locks,
    /// No deadlock: rank 0 reads its input, and the others wait for what it sends
    Input,
    /// No deadlock: rank 0 sleeps for a while, and the others wait for what it sends
    Sleep,
    /// No deadlock: messages go round and round until the program is ended
    Ring,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("deadlock: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let context = Arc::new(Context::init()?);
    let (me, ranks) = (context.rank(), context.ranks());
    let (right, left) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
    match options.kind {
        Kind::Crossed => {
            receive(&context, Source::Rank(right))?;
            context.send(left, TAG, b"")?;
        }
        Kind::Left if me == 0 => receive(&context, Source::Rank(1))?,
        Kind::Anybody if me != 1 => receive(&context, Source::Any)?,
        Kind::Left | Kind::Anybody => {}
        Kind::Barrier if me == 1 => receive(&context, Source::Rank(0))?,
        Kind::Barrier => context.barrier()?,
        Kind::Notification => {
            let window = context.window(8)?;
            match me {
                0 => drop(window.wait_notify(3, 1)?),
                _ => receive(&context, Source::Rank(0))?,
            }
        }
        Kind::Locks => locks(&context)?,
        Kind::Input if me == 0 => {
            std::io::stdin().read_line(&mut String::new())?;
            send_all(&context)?;
        }
        Kind::Sleep if me == 0 => {
            std::thread::sleep(Duration::from_secs(4));
            send_all(&context)?;
        }
        Kind::Input | Kind::Sleep => receive(&context, Source::Rank(0))?,
        Kind::Ring => loop {
            context.send(right, TAG, b"")?;
            receive(&context, Source::Rank(left))?;
        },
    }
    println!("rank {me} is done");
    Ok(())
}

fn receive(context: &Context, from: Source) -> anyhow::Result<()> {
    context.recv(from, Tag::Is(TAG), &mut [])?;
    Ok(())
}

fn send_all(context: &Context) -> anyhow::Result<()> {
    (1..context.ranks()).try_for_each(|rank| context.send(rank, TAG, b""))?;
    Ok(())
}

fn locks(context: &Arc<Context>) -> anyhow::Result<()> {
    let memory = SharedMemory::new(Arc::clone(context), Config::from_environment()?)?;
    let (first, second) = if context.rank() == 0 { (1, 2) } else { (2, 1) };
    memory.barrier()?;
    if context.rank() < 2 {
        let _first = memory.lock(first)?;
        memory.wait()?;
        let _second = memory.lock(second)?;
    } else {
        memory.wait()?;
    }
    memory.barrier()?;
    Ok(())
}
