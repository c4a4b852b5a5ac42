//! A collective of all ranks, again and again. Prints the median time of one over batches that end with a barrier, as
//! `bench/peers/mpicollective.c` does.
#![forbid(unsafe_code)]

use clap::{Parser, ValueEnum};
use kumi_mem::{Context, Error, Op};

/// The collectives.
#[derive(Clone, Copy, ValueEnum)]
enum Name {
    Allreduce,
    Broadcast,
    Allgather,
    Alltoall,
}

/// Times a collective of all ranks.
#[derive(Parser)]
struct Args {
    /// Which one
    name: Name,
    /// Bytes of a rank's vector, or of its block for each rank of allgather and alltoall
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(8..=1 << 24))]
    size: u64,
    /// Batches; the median counts
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batches: u32,
    /// Collectives in a batch
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    length: u32,
}

fn main() -> Result<(), Error> {
    let args = Args::parse();
    let context = Context::init()?;
    let (group, ranks) = (context.group(), context.ranks() as usize);
    let count = args.size as usize / 8;
    let (mut send, mut recv) = (vec![0.0f64; count * ranks], vec![0.0f64; count * ranks]);
    let mut each = Vec::new();
    for batch in 0..args.batches + 2 {
        context.barrier()?;
        let begin = context.time();
        for _ in 0..args.length {
            match args.name {
                Name::Allreduce => group.allreduce(Op::Sum, &mut send[..count])?,
                Name::Broadcast => group.broadcast(0, &mut send[..count])?,
                Name::Allgather => group.allgather(&send[..count], &mut recv)?,
                Name::Alltoall => group.alltoall(&send, &mut recv)?,
            }
        }
        context.barrier()?;
        // The first two are to warm up.
        if batch >= 2 {
            each.push((context.time() - begin) * 1e6 / f64::from(args.length));
        }
    }
    each.sort_by(f64::total_cmp);
    if context.rank() == 0 {
        println!("microseconds {:.2}", each[each.len() / 2]);
    }
    drop(group);
    context.finalize()
}
