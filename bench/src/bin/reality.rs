//! The same list of jobs simulated and run on a local cluster, and the reasons for differences.
#![forbid(unsafe_code)]

use clap::Parser;
use kumi_bench::error::BenchError;
use kumi_bench::interrupt;
use kumi_bench::reality::report::Report;
use kumi_bench::reality::{Plan, compare};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs a list of jobs on a local cluster of one-processor nodes and simulates it.
#[derive(Parser)]
#[command(name = "kumi-bench-reality", version, about)]
struct Args {
    /// Scheduling policy of both
    #[arg(long, default_value = "dqt:ff-apa")]
    policy: String,
    /// Nodes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=254))]
    nodes: u32,
    /// For how long jobs arrive, in units
    #[arg(long, default_value_t = 1500)]
    units: u64,
    /// A unit, which is also a slice, in milliseconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    unit_ms: u64,
    /// Load of the last step
    #[arg(long, default_value_t = 0.665)]
    peak: f64,
    /// Where random numbers begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where everything is written, each job's times too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = interrupt::catch() {
        eprintln!("kumi-bench-reality: an interrupt will leave the cluster up: {error}");
    }
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumi-bench-reality: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<(), BenchError> {
    let plan = Plan {
        policy: args.policy,
        nodes: args.nodes,
        units: args.units,
        unit_ns: args.unit_ms * 1_000_000,
        peak: args.peak,
        seed: args.seed,
    };
    let report = Report::new(&compare(plan)?);
    print!("{report}");
    args.json.map_or(Ok(()), |path| write(&path, &report))
}

fn write(path: &Path, report: &Report) -> Result<(), BenchError> {
    let failed = |source| BenchError::File { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(report).map_err(|error| failed(error.into()))?;
    std::fs::write(path, text + "\n").map_err(failed)
}
