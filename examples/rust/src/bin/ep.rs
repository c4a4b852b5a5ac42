//! NAS kernel EP on any number of ranks.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use kumi_examples::ep::{RINGS, Tally};
use kumi_examples::program::{NasOptions, Outcome, Progress, run, slowest};
use kumi_mem::{Context, Op};

fn main() -> ExitCode {
    run(|context, options: &NasOptions| {
        let mut outcome = Outcome {
            name: "EP",
            class: &options.class.to_string(),
            verified: true,
            seconds: 0.0,
            operations: f64::from(options.repeat)
                * (1u64 << (options.class.ep_log2_pairs() + 1)) as f64,
            repeat: options.repeat,
        };
        let mut progress = Progress::new(context, options.progress);
        for repeat in 0..options.repeat {
            context.barrier()?;
            let begin = context.time();
            let tally = count(context, options.class.ep_batches(), &mut progress)?;
            outcome.seconds += slowest(context, context.time() - begin)?;
            outcome.verified &= tally.verify(options.class);
            if repeat == 0 && context.rank() == 0 {
                print(&tally);
            }
        }
        Ok(outcome.print(context))
    })
}

/// Each rank counts an equal part of the batches; the sums of all.
fn count(
    context: &Context,
    batches: u64,
    progress: &mut Progress,
) -> Result<Tally, kumi_mem::Error> {
    let (rank, ranks) = (u64::from(context.rank()), u64::from(context.ranks()));
    let mut mine = Tally::default();
    for batch in batches * rank / ranks..batches * (rank + 1) / ranks {
        mine.add_batch(batch);
        progress.add(1);
    }
    // The counts are below 2^53: they are exact as floating-point numbers, and one reduction does.
    let mut sums = [0.0; RINGS + 2];
    sums[RINGS] = mine.sum_x;
    sums[RINGS + 1] = mine.sum_y;
    for (sum, count) in sums.iter_mut().zip(mine.rings) {
        *sum = count as f64;
    }
    context.allreduce(Op::Sum, &mut sums)?;
    let rings = std::array::from_fn(|ring| sums[ring] as u64);
    Ok(Tally { sum_x: sums[RINGS], sum_y: sums[RINGS + 1], rings })
}

fn print(tally: &Tally) {
    println!("sums {:.15e} {:.15e}", tally.sum_x, tally.sum_y);
    println!("Gaussian pairs {}", tally.pairs());
    for (ring, count) in tally.rings.iter().enumerate() {
        println!("  {ring}: {count}");
    }
}
