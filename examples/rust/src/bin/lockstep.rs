//! Synchronises every few microseconds: computes for a moment, then exchanges a put-with-notify with
//! its partner, over and over. Such programs run well only if all their ranks run at the same time, so
//! several copies at once show the benefit of gang scheduling.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Parser;
use kumi_examples::measure::{calibrate, compute};
use kumi_examples::program::{Outcome, Progress, UsageError, run};
use kumi_mem::{Context, Op, Window};

/// Steps between two looks at the clock.
const CLOCK_EVERY: u64 = 8;

#[derive(Debug, Parser)]
#[command(about = "Computes a microsecond, then synchronises with the partner rank, repeatedly")]
struct Options {
    /// Stop after this many seconds [default: 1]
    #[arg(long, conflicts_with = "steps")]
    seconds: Option<f64>,
    /// Stop after this many steps
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Computing per step in microseconds; measured at the start
    #[arg(long, default_value_t = 1.0)]
    compute_us: f64,
    /// Computing per step in rounds, for the same work in all copies
    #[arg(long, conflicts_with = "compute_us")]
    compute_work: Option<u64>,
    /// Computing of one of the two ranks, in turn, is longer by so many per cent: the other one waits
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    imbalance: u32,
    /// Sleep so many milliseconds after every 1000 steps, as if somebody thought
    #[arg(long, value_name = "MS")]
    think_ms: Option<u64>,
    /// When to start, in seconds since 1970, so that several copies start together
    #[arg(long, value_name = "UNIX_SECONDS")]
    start_at: Option<f64>,
    /// Print how far it is: PROGRESS steps unix_time
    #[arg(long)]
    progress: bool,
}

/// When to stop.
#[derive(Clone, Copy)]
enum Until {
    Time(Instant),
    Steps(u64),
}

/// Two words of the partner's last step: its number and whether the partner stops after it. Two
/// slots are enough: a rank writes step s + 2 only when it has the partner's step s + 1, which the
/// partner sent after reading step s.
struct Exchange<'w, 'c> {
    window: &'w Window<'c>,
    partner: u32,
    work: Work,
    think: Option<Duration>,
}

/// Rounds of computing in a step.
#[derive(Clone, Copy)]
struct Work {
    rounds: u64,
    /// In the steps of the longer half.
    longer: u64,
    /// Which half of the steps is longer for this rank.
    half: u64,
}

/// Steps for which one rank has more to do.
const LONGER_FOR: u64 = 8;
/// Steps between two pauses in which somebody thinks.
const BUSY: u64 = 1_000;

impl Work {
    fn of(&self, step: u64) -> u64 {
        if step / LONGER_FOR % 2 == self.half { self.longer } else { self.rounds }
    }
}

fn main() -> ExitCode {
    run(|context, options: &Options| {
        let duration = check(options)?;
        let rounds = options.compute_work.unwrap_or_else(|| calibrate(options.compute_us));
        let window = context.window(32)?;
        let (rank, ranks) = (context.rank(), context.ranks());
        // The last of an odd number of ranks is its own partner.
        let partner = if rank ^ 1 < ranks { rank ^ 1 } else { rank };
        let longer = rounds.saturating_mul(100 + u64::from(options.imbalance)) / 100;
        let work = Work { rounds, longer, half: u64::from(rank % 2) };
        let think = options.think_ms.map(Duration::from_millis);
        let exchange = Exchange { window: &window, partner, work, think };
        context.barrier()?;
        let begin = wait_for_start(context, options.start_at)?;
        let until = options.steps.map_or(Until::Time(begin + duration), Until::Steps);
        let (steps, verified) = exchange.run(until, Progress::new(context, options.progress))?;
        let seconds = begin.elapsed().as_secs_f64();
        let mut least = [steps, u64::from(verified)];
        context.allreduce(Op::Min, &mut least)?;
        if rank == 0 {
            report(context, rounds, steps, least[0], least[1] == 1, seconds);
        }
        Ok(least[1] == 1)
    })
}

fn check(options: &Options) -> Result<Duration, UsageError> {
    let seconds = options.seconds.unwrap_or(1.0);
    if !(0.0..=1e6).contains(&seconds) {
        return Err(UsageError(format!("--seconds {seconds}: 0 to 1000000")));
    }
    if !(0.0..=1e6).contains(&options.compute_us) {
        let text = format!("--compute-us {}: 0 to 1000000", options.compute_us);
        return Err(UsageError(text));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Sleeps until the time asked for; refuses one that has passed for any rank, since the copies
/// would then not run at the same time. Returns the moment of the start.
fn wait_for_start(context: &Context, start_at: Option<f64>) -> anyhow::Result<Instant> {
    let Some(start_at) = start_at else { return Ok(Instant::now()) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let left = start_at - now.as_secs_f64();
    let mut good = [u8::from((0.0..86_400.0).contains(&left))];
    context.allreduce(Op::Min, &mut good)?;
    if good[0] == 0 {
        let text = format!("--start-at {start_at}: not a time ahead, within a day");
        return Err(UsageError(text).into());
    }
    let left = Duration::from_secs_f64(left);
    let begin = Instant::now() + left;
    std::thread::sleep(left);
    Ok(begin)
}

impl Exchange<'_, '_> {
    /// Steps until this rank or its partner stops; how many, and whether the partner's words were
    /// always those of the same step.
    fn run(&self, until: Until, mut progress: Progress) -> Result<(u64, bool), kumi_mem::Error> {
        let mut verified = true;
        let mut step = 0_u64;
        loop {
            compute(self.work.of(step));
            let stop = match until {
                Until::Steps(steps) => step + 1 >= steps,
                Until::Time(end) => step.is_multiple_of(CLOCK_EVERY) && Instant::now() >= end,
            };
            let slot = (step % 2) as usize * 16;
            let mut words = [0; 16];
            words[..8].copy_from_slice(&step.to_le_bytes());
            words[8..].copy_from_slice(&u64::from(stop).to_le_bytes());
            self.window.put_notify(self.partner, slot, &words, 0)?;
            step += 1;
            self.window.wait_notify(0, step)?;
            verified &= self.window.load_u64(slot)? == step - 1;
            if step.is_multiple_of(CLOCK_EVERY) {
                progress.add(CLOCK_EVERY);
            }
            if step.is_multiple_of(BUSY) {
                self.think.into_iter().for_each(std::thread::sleep);
            }
            // Both know both flags, so both stop after the same step.
            if stop || self.window.load_u64(slot + 8)? != 0 {
                return Ok((step, verified));
            }
        }
    }
}

fn report(context: &Context, rounds: u64, steps: u64, least: u64, verified: bool, seconds: f64) {
    let per_second = steps as f64 / seconds;
    let outcome = Outcome {
        name: "lockstep",
        class: "-",
        verified,
        seconds,
        operations: steps as f64,
        repeat: 1,
    };
    println!("{rounds} rounds of computing per step; the slowest pair made {least} steps");
    println!(" Steps per second = {per_second:.1}");
    println!("{} steps={steps} steps_per_s={per_second:.1}", outcome.line(context.ranks()));
}
