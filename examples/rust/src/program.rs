//! The frame of every program around its kernel: read the options, join the job, report.

use std::fmt;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};
use kumi_mem::{Context, Op};

/// Exit code for wrong options.
pub const USAGE: u8 = 64;

/// The options do not fit: the program ends with code 64. All ranks must find the same.
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Size of a NAS kernel's problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Class {
    /// Small, for tests.
    #[value(name = "S")]
    S,
    /// Workstation.
    #[value(name = "W")]
    W,
    /// The smallest that is measured.
    #[value(name = "A")]
    A,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Options of the NAS kernels.
#[derive(Debug, Parser)]
#[command(about = "A NAS Parallel Benchmarks kernel; run it with `kumi run -n RANKS`")]
pub struct NasOptions {
    /// Size of the problem
    #[arg(long, value_enum, default_value = "S")]
    pub class: Class,
    /// Run the timed section this many times
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub repeat: u32,
    /// Print how far it is: PROGRESS steps unix_time
    #[arg(long)]
    pub progress: bool,
}

/// Shows how far a program is: rank 0 prints `PROGRESS <steps so far> <seconds since 1970>`, at
/// most every 50 ms.
#[derive(Debug)]
pub struct Progress {
    shows: bool,
    steps: u64,
    shown: f64,
}

impl Progress {
    /// Shows nothing if it is not asked for.
    #[must_use]
    pub fn new(context: &Context, asked: bool) -> Self {
        Self { shows: asked && context.rank() == 0, steps: 0, shown: 0.0 }
    }

    /// Counts this many more steps.
    #[inline]
    pub fn add(&mut self, steps: u64) {
        self.steps += steps;
        if self.shows {
            self.show();
        }
    }

    fn show(&mut self) {
        const INTERVAL: f64 = 0.05;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        if now >= self.shown + INTERVAL {
            self.shown = now;
            println!("PROGRESS {} {now:.6}", self.steps);
        }
    }
}

/// Reads the options `A`, joins the job, runs `body`. The exit code is 0 if `body` says that its
/// result is verified, 1 if not or if it fails, 64 for wrong options.
pub fn run<A: Parser>(body: impl FnOnce(&Context, &A) -> anyhow::Result<bool>) -> ExitCode {
    let options = match A::try_parse() {
        Ok(options) => options,
        Err(error) => return explain(&error),
    };
    let context = match Context::init() {
        Ok(context) => context,
        Err(error) => return fail(&error.into()),
    };
    let outcome = body(&context, &options).and_then(|verified| {
        // Nobody leaves while others may still want something of this rank.
        context.barrier()?;
        Ok(verified)
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if error.is::<UsageError>() => {
            say_once(&context, || eprintln!("{}: {error:#}", name()));
            ExitCode::from(USAGE)
        }
        Err(error) => fail(&error),
    }
}

/// Says why the program ends.
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("{}: {error:#}", name());
    ExitCode::FAILURE
}

/// Reports an error that all ranks find, by one of them. The others wait: a rank that ends with an
/// error code ends the whole job, perhaps before rank 0 has reported.
fn say_once(context: &Context, say: impl FnOnce()) {
    if context.rank() == 0 {
        say();
    }
    if let Err(error) = context.barrier() {
        eprintln!("{}: {error}", name());
    }
}

/// Prints help or what is wrong with the options, in a job once and not by every rank.
fn explain(error: &clap::Error) -> ExitCode {
    let print = || {
        if let Err(error) = error.print() {
            eprintln!("{}: {error}", name());
        }
    };
    match Context::init() {
        Ok(context) => say_once(&context, print),
        // Outside a job: this process is all there is.
        Err(_) => print(),
    }
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

fn name() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let file = std::path::Path::new(&path).file_name().unwrap_or_default();
    file.to_string_lossy().into_owned()
}

/// The largest `seconds` of all ranks. Collective.
///
/// # Errors
/// An error of the runtime.
pub fn slowest(context: &Context, seconds: f64) -> anyhow::Result<f64> {
    let mut time = [seconds];
    context.allreduce(Op::Max, &mut time)?;
    Ok(time[0])
}

/// The outcome of a program.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'n> {
    /// The program's name.
    pub name: &'n str,
    /// The class, or "-".
    pub class: &'n str,
    /// Whether the result is right.
    pub verified: bool,
    /// Seconds of all repeats of the timed section.
    pub seconds: f64,
    /// Combination of all repeats.
    pub operations: f64,
    /// Repeats of the timed section.
    pub repeat: u32,
}

impl Outcome<'_> {
    /// The last line of the program's output; `ranks` ran it.
    #[must_use]
    pub fn line(&self, ranks: u32) -> String {
        let mops = if self.seconds > 0.0 { self.operations / self.seconds / 1e6 } else { 0.0 };
        format!(
            "RESULT name={} class={} verified={} seconds={:.6} mops={mops:.2} ranks={ranks} repeat={}",
            self.name,
            self.class,
            if self.verified { "yes" } else { "no" },
            self.seconds,
            self.repeat,
        )
    }

    /// Prints the outcome of a NAS kernel (rank 0); returns `verified`.
    pub fn print(&self, context: &Context) -> bool {
        if context.rank() == 0 {
            let word = if self.verified { "SUCCESSFUL" } else { "UNSUCCESSFUL" };
            println!(" Time in seconds = {:24.6}", self.seconds);
            println!(" Verification    = {word:>24}");
            println!("{}", self.line(context.ranks()));
        }
        self.verified
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_the_agreed_fields() {
        let outcome = Outcome {
            name: "EP",
            class: "W",
            verified: true,
            seconds: 0.5,
            operations: 1e6,
            repeat: 3,
        };
        assert_eq!(
            outcome.line(2),
            "RESULT name=EP class=W verified=yes seconds=0.500000 mops=2.00 ranks=2 repeat=3"
        );
    }

    #[test]
    fn nas_options_are_checked() {
        assert!(NasOptions::try_parse_from(["ep", "--class", "Q"]).is_err());
        assert!(NasOptions::try_parse_from(["ep", "--repeat", "0"]).is_err());
        let options = NasOptions::try_parse_from(["ep", "--class", "A", "--repeat", "7"]).unwrap();
        assert_eq!((options.class, options.repeat), (Class::A, 7));
    }
}
