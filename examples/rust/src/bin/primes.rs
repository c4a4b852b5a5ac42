//! Counts primes: for each number on standard input, all ranks together count the primes below it.
//! Between questions its ranks wait, and a cluster gives their turns to others.

#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use kumi_examples::program::run;
use kumi_mem::Op;

#[derive(Debug, Parser)]
#[command(about = "Counts the primes below each number on standard input, until it ends")]
struct Options {}

/// Asked for when there are no more questions.
const END: u64 = u64::MAX;

fn main() -> ExitCode {
    run(|context, _: &Options| {
        let (rank, ranks) = (u64::from(context.rank()), u64::from(context.ranks()));
        loop {
            let mut below = [if rank == 0 { question()? } else { END }];
            context.broadcast(0, &mut below)?;
            if below[0] == END {
                return Ok(true);
            }
            // Neighbouring numbers, of which the even ones are soon done, go to different ranks.
            let own = (2 + rank..below[0]).step_by(usize::try_from(ranks)?);
            let mut count = [own.filter(|&number| is_prime(number)).count() as u64];
            context.reduce(0, Op::Sum, &mut count)?;
            if rank == 0 {
                println!("{} primes below {}", count[0], below[0]);
            }
        }
    })
}

/// The next number that somebody asks for.
fn question() -> anyhow::Result<u64> {
    loop {
        std::io::stdout().flush()?;
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).context("standard input")? == 0 {
            return Ok(END);
        }
        match line.trim().parse() {
            Ok(number) if number < END => return Ok(number),
            _ => eprintln!("{:?} is not a number; write one", line.trim()),
        }
    }
}

fn is_prime(number: u64) -> bool {
    let divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    number >= 2 && divisors.into_iter().all(|divisor| !number.is_multiple_of(divisor))
}
