//! What shared memory costs between two nodes, one rank on each: page faults, releases, locks and barriers. Prints one line for
//! each kind that is asked for.
#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use kumi_dsm::{Config, Placement, SharedArray, SharedMemory};
use kumi_mem::{Context, Window};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

/// Numbers in a page of 4 KB.
const PAGE: usize = 512;

/// What to measure.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Microseconds of a read of a page at a rank that waits
    Miss,
    /// The same, at a rank that computes
    MissComputing,
    /// Megabytes per second of a read of pages one after another
    Sequential,
    /// Nanoseconds of a page that is written, and of the release of its diff
    Release,
    /// Nanoseconds of the same at a rank alone: the write and the scan that finds it, without diff and network
    ReleaseAlone,
    /// Microseconds of a barrier
    Barrier,
    /// Microseconds of a lock that goes back and forth
    Lock,
}

/// Costs of shared memory.
#[derive(Parser)]
struct Args {
    /// What to measure
    kind: Kind,
    /// Pages
    #[arg(long, default_value_t = 8192)]
    pages: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    if args.kind == Kind::ReleaseAlone {
        let memory = SharedMemory::new(Context::init_singleton()?, Config::from_environment()?)?;
        let array = memory.array::<u64>(args.pages * PAGE, Placement::At(0))?;
        (0..args.pages).try_for_each(|page| array.set(page * PAGE, page as u64))?;
        memory.barrier()?;
        println!("result {:.1}", release(&memory, &array, args.pages)?);
        return Ok(());
    }
    let context = Arc::new(Context::init()?);
    if context.ranks() != 2 || context.same_node(1 - context.rank()) {
        eprintln!("kumi-bench-shared: start one rank on each of two nodes");
        std::process::exit(64);
    }
    let memory = SharedMemory::new(Arc::clone(&context), Config::from_environment()?)?;
    let result = measure(&memory, &args)?;
    if context.rank() == 0 {
        println!("result {result:.3}");
    }
    Ok(())
}

fn measure(memory: &SharedMemory, args: &Args) -> Result<f64, Box<dyn Error>> {
    let array = memory.array::<u64>(args.pages * PAGE, Placement::At(1))?;
    let me = memory.context().rank();
    if me == 1 {
        (0..args.pages).try_for_each(|page| array.set(page * PAGE, page as u64))?;
    }
    let flag = memory.context().window(1)?;
    memory.barrier()?;
    let begin = Instant::now();
    match args.kind {
        Kind::MissComputing if me == 1 => compute_until(&flag)?,
        Kind::Miss if me == 1 => {}
        // An odd number of pages apart, so that no read is the one after the last.
        Kind::Miss | Kind::MissComputing => {
            let step = (args.pages / 3) | 1;
            read(&array, (0..args.pages).map(|at| at * step % args.pages))?;
            if args.kind == Kind::MissComputing {
                flag.put(1, 0, &[1])?;
            }
        }
        Kind::Sequential if me == 0 => read(&array, 0..args.pages)?,
        Kind::Release if me == 0 => return release(memory, &array, args.pages),
        Kind::Release => memory.barrier()?,
        Kind::Barrier => (0..args.pages).try_for_each(|_| memory.barrier())?,
        Kind::Lock => {
            (0..args.pages).try_for_each(|_| memory.lock(1).and_then(|held| held.unlock()))?;
        }
        Kind::Sequential | Kind::ReleaseAlone => {}
    }
    let seconds = begin.elapsed().as_secs_f64();
    memory.wait()?;
    let pages = args.pages as f64;
    Ok(match args.kind {
        Kind::Sequential => pages * (PAGE * 8) as f64 / seconds / 1e6,
        _ => seconds / pages * 1e6,
    })
}

/// Reads a number of each page.
fn read(
    array: &SharedArray<'_, u64>,
    mut pages: impl Iterator<Item = usize>,
) -> Result<(), Box<dyn Error>> {
    pages.try_for_each(|page| match array.get(page * PAGE)? == page as u64 {
        true => Ok(()),
        false => Err(format!("page {page} came with something else in it").into()),
    })
}

/// Computes without the library's help until the other rank has put a number here.
fn compute_until(flag: &Window<'_>) -> Result<(), kumi_mem::Error> {
    let (mut told, mut sum) = ([0], 0u64);
    while told == [0] {
        sum = (0..1000).fold(sum, |sum, next| std::hint::black_box(sum.wrapping_mul(31) + next));
        flag.read(0, &mut told)?;
    }
    Ok(())
}

/// Nanoseconds for each page: written once, then released at a barrier.
fn release(
    memory: &SharedMemory,
    array: &SharedArray<'_, u64>,
    pages: usize,
) -> Result<f64, Box<dyn Error>> {
    // Visible before, so that only the write counts.
    read(array, 0..pages)?;
    let begin = Instant::now();
    (0..pages).try_for_each(|page| array.set(page * PAGE + 1, 1))?;
    memory.barrier()?;
    let seconds = begin.elapsed().as_secs_f64();
    memory.wait()?;
    Ok(seconds / pages as f64 * 1e9)
}
