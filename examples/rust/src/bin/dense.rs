//! Programs that read each other's memory while the owners compute. They run the better, the sooner a
//! rank's handler thread answers (`KUMI_HANDLER`). The four are those of Nakada et al., "thread
//! scheduling in a distributed shared memory system", §4.2 to 4.5.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use kumi_examples::dense::{Matrix, eliminate, merge_halves, multiply_add};
use kumi_examples::program::{Outcome, UsageError, run, slowest};
use kumi_examples::random::Random;
use kumi_mem::{Context, Error, Op, Source, Tag, Window};

/// Bytes of one read of the first program (§4.2: 10 KB).
const READ_BYTES: usize = 10 * 1024;
const DONE: i32 = 1;

#[derive(Debug, Parser)]
#[command(
    about = "Reads of other ranks' memory while they compute; run it with `kumi run -n RANKS`"
)]
struct Options {
    /// Which program
    #[arg(value_enum, default_value = "product")]
    program: Which,
    /// Side of the matrices; of the sort, its square is how many numbers there are
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(8..=8192))]
    side: u32,
    /// How often the matrix product of `reads` is computed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    products: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// Rank 1 reads 10 KB from rank 0 over and over, which computes matrix products
    Reads,
    /// LU factorisation, rows dealt out in turn, each read from its owner
    Lu,
    /// Matrix product by blocks of rows, each block read from its owner
    Product,
    /// Bitonic sort
    Sort,
}

fn main() -> ExitCode {
    run(|context, options: &Options| {
        let side = options.side as usize;
        context.barrier()?;
        let begin = Instant::now();
        let verified = match options.program {
            Which::Reads => return reads(context, side, options.products),
            Which::Lu => factorise(context, side)?,
            Which::Product => product(context, side)?,
            Which::Sort => sort(context, side * side)?,
        };
        let seconds = slowest(context, begin.elapsed().as_secs_f64())?;
        let mut all = [u8::from(verified)];
        context.allreduce(Op::Min, &mut all)?;
        let name = format!("{:?}", options.program).to_lowercase();
        let operations = (side * side * side) as f64;
        let verified = all[0] == 1;
        let outcome = Outcome { name: &name, class: "-", verified, seconds, operations, repeat: 1 };
        Ok(outcome.print(context))
    })
}

// ---- numbers in windows -----------------------------------------------------------------------

fn to_bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn get_numbers(
    window: &Window<'_>,
    from: u32,
    first: usize,
    into: &mut [f64],
) -> Result<(), Error> {
    let mut bytes = vec![0; 8 * into.len()];
    window.get(from, 8 * first, &mut bytes)?;
    for (number, bytes) in into.iter_mut().zip(bytes.as_chunks().0) {
        *number = f64::from_le_bytes(*bytes);
    }
    Ok(())
}

/// Numbers from 0 to 1, the same at all ranks.
fn random_numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.unit()).collect()
}

// ---- reads ------------------------------------------------------------------------------------

/// Rank 0 computes; rank 1 reads from it until it has ended. Others only wait.
fn reads(context: &Context, side: usize, products: u32) -> anyhow::Result<bool> {
    if context.ranks() < 2 {
        return Err(UsageError("reads: at least 2 ranks".to_owned()).into());
    }
    let window = context.window(READ_BYTES)?;
    window.write(0, &[7; READ_BYTES])?;
    context.barrier()?;
    // Seconds of the computing, and reads: how many, right, mean, longest, shortest.
    let mut result = [0.0; 6];
    match context.rank() {
        0 => {
            let (a, b) = (random_matrix(1, side), random_matrix(2, side));
            let begin = Instant::now();
            let mut sum = 0.0;
            for _ in 0..products {
                let mut c = Matrix::new(side, side);
                multiply_add(&mut c, &a, &b);
                sum += c.row(0)[0];
            }
            result[0] = begin.elapsed().as_secs_f64();
            context.send(1, DONE, &sum.to_le_bytes())?;
        }
        1 => read_until_done(context, &window, &mut result)?,
        _ => {}
    }
    context.allreduce(Op::Sum, &mut result)?;
    let [seconds, count, right, total, longest, shortest] = result;
    let verified = count > 0.0 && right == count;
    if context.rank() == 0 {
        println!(" Reads           = {count}");
        println!(" Mean response   = {:.3} us", 1e6 * total / count);
        println!(" Longest         = {:.3} us", 1e6 * longest);
        println!(" Shortest        = {:.3} us", 1e6 * shortest);
        let operations = f64::from(products) * (side * side * side) as f64;
        let (name, class, repeat) = ("reads", "-", products);
        println!(" Time in seconds = {seconds:.6}");
        let outcome = Outcome { name, class, verified, seconds, operations, repeat };
        println!("{}", outcome.line(context.ranks()));
    }
    Ok(verified)
}

fn read_until_done(
    context: &Context,
    window: &Window<'_>,
    result: &mut [f64; 6],
) -> anyhow::Result<()> {
    let mut bytes = vec![0; READ_BYTES];
    result[5] = f64::MAX;
    loop {
        let begin = Instant::now();
        window.get(0, 0, &mut bytes)?;
        let seconds = begin.elapsed().as_secs_f64();
        result[1] += 1.0;
        result[2] += f64::from(u8::from(bytes.iter().all(|byte| *byte == 7)));
        result[3] += seconds;
        result[4] = result[4].max(seconds);
        result[5] = result[5].min(seconds);
        if context.probe(Source::Rank(0), Tag::Is(DONE))?.is_some() {
            context.recv(Source::Rank(0), Tag::Is(DONE), &mut [0; 8])?;
            return Ok(());
        }
        // Requests come now and then, not in a stream.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn random_matrix(seed: u64, side: usize) -> Matrix {
    Matrix::from_numbers(side, random_numbers(seed, side * side))
}

// ---- LU ---------------------------------------------------------------------------------------

/// Rows are dealt out in turn. In step i everybody reads row i from its owner, which goes on
/// computing meanwhile.
fn factorise(context: &Context, side: usize) -> anyhow::Result<bool> {
    let (me, ranks) = (context.rank() as usize, context.ranks() as usize);
    let mut whole = random_matrix(1, side);
    for i in 0..side {
        // Large enough that no row need be exchanged with another.
        whole.row_mut(i)[i] += side as f64;
    }
    let mine = || (me..side).step_by(ranks);
    let window = context.window(side.div_ceil(ranks) * side * 8)?;
    let mut rows: Vec<Vec<f64>> = mine().map(|i| whole.row(i).to_vec()).collect();
    let mut pivot = vec![0.0; side];
    for step in 0..side {
        let (owner, place) = (step % ranks, step / ranks);
        if owner == me {
            window.write(place * side * 8, &to_bytes(&rows[place]))?;
        }
        context.barrier()?;
        get_numbers(&window, owner as u32, place * side, &mut pivot)?;
        for (row, _) in rows.iter_mut().zip(mine()).filter(|(_, i)| *i > step) {
            eliminate(row, &pivot, step);
        }
    }
    context.barrier()?;
    // L times U must be what it began with, at some places of the own rows.
    let mut upper = Matrix::new(side, side);
    for i in 0..side {
        get_numbers(&window, (i % ranks) as u32, (i / ranks) * side, upper.row_mut(i))?;
    }
    let good = mine().zip(&rows).all(|(i, row)| {
        [0, i / 2, i, side - 1].into_iter().all(|column| {
            let below: f64 = (0..i.min(column + 1)).map(|k| row[k] * upper.row(k)[column]).sum();
            let own = if column >= i { row[column] } else { 0.0 };
            (below + own - whole.row(i)[column]).abs() < 1e-9 * side as f64
        })
    });
    context.barrier()?;
    Ok(good)
}

// ---- product ----------------------------------------------------------------------------------

/// Each rank has a block of rows of B in its window and computes its rows of A B; the blocks of the
/// others are read one after the other.
fn product(context: &Context, side: usize) -> anyhow::Result<bool> {
    let (me, ranks) = (context.rank() as usize, context.ranks() as usize);
    let first = |rank: usize| rank * side / ranks;
    let (a, b) = (random_matrix(1, side), random_matrix(2, side));
    let window = context.window((side / ranks + 1) * side * 8)?;
    for row in first(me)..first(me + 1) {
        window.write((row - first(me)) * side * 8, &to_bytes(b.row(row)))?;
    }
    context.barrier()?;
    let own = first(me)..first(me + 1);
    let mut c = Matrix::new(own.len(), side);
    for step in 0..ranks {
        let rank = (me + step) % ranks;
        let rows = first(rank)..first(rank + 1);
        let mut block = vec![0.0; rows.len() * side];
        get_numbers(&window, rank as u32, 0, &mut block)?;
        let block = Matrix::from_numbers(side, block);
        let mut part = Matrix::new(own.len(), rows.len());
        for (to, i) in own.clone().enumerate() {
            part.row_mut(to).copy_from_slice(&a.row(i)[rows.clone()]);
        }
        multiply_add(&mut c, &part, &block);
    }
    context.barrier()?;
    // (A B) 1 = A (B 1).
    let sums: Vec<f64> = (0..side).map(|row| b.row(row).iter().sum()).collect();
    Ok(own.enumerate().all(|(to, i)| {
        let expected: f64 = a.row(i).iter().zip(&sums).map(|(a, sum)| a * sum).sum();
        (c.row(to).iter().sum::<f64>() - expected).abs() < 1e-9 * expected.abs()
    }))
}

// ---- sort -------------------------------------------------------------------------------------

/// Each rank sorts its part; then pairs of ranks read each other's part and keep the lower or the
/// upper half. Barriers before and after each read, so nobody computes while it is read from.
fn sort(context: &Context, count: usize) -> anyhow::Result<bool> {
    let (me, ranks) = (context.rank(), context.ranks());
    if !ranks.is_power_of_two() {
        return Err(UsageError(format!("{ranks} ranks: sort needs a power of two")).into());
    }
    let part = count / ranks as usize;
    let mut mine = random_numbers(1 + u64::from(me), part);
    let before: f64 = mine.iter().sum();
    mine.sort_by(f64::total_cmp);
    let window = context.window(part * 8)?;
    let mut theirs = vec![0.0; part];
    for stage in 1..=ranks.ilog2() {
        for bit in (0..stage).rev() {
            window.write(0, &to_bytes(&mine))?;
            context.barrier()?;
            let partner = me ^ (1 << bit);
            get_numbers(&window, partner, 0, &mut theirs)?;
            context.barrier()?;
            let ascending = me >> stage & 1 == 0;
            merge_halves(&mut mine, &theirs, (me < partner) == ascending);
        }
    }
    let mut sums = [before, -mine.iter().sum::<f64>()];
    context.allreduce(Op::Sum, &mut sums)?;
    window.write(0, &to_bytes(&mine))?;
    context.barrier()?;
    let mut next = [f64::MAX];
    if me + 1 < ranks && part > 0 {
        get_numbers(&window, me + 1, 0, &mut next)?;
    }
    context.barrier()?;
    let ordered = mine.is_sorted() && mine.last().is_none_or(|last| *last <= next[0]);
    Ok(ordered && (sums[0] + sums[1]).abs() < 1e-6 * count as f64)
}
