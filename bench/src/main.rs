//! `kumi-bench`: runs benchmarks, prints their tables, writes their records, lists missed goals.
#![forbid(unsafe_code)]

use clap::Parser;
use kumi_bench::error::BenchError;
use kumi_bench::figures::{ALL, Setting};
use kumi_bench::interrupt;
use kumi_bench::origin::{self, Origin};
use kumi_bench::peer::Peers;
use kumi_bench::record::{self, Record};
use kumi_bench::report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures Kumi beside its peers.
#[derive(Parser)]
#[command(version, about)]
struct Args {
    /// Which benchmarks: all, or some of those that are there; report writes docs/benchmarks.md from the records
    #[arg(required = true, value_parser = names())]
    benchmarks: Vec<String>,
    /// Folder of the built peers
    #[arg(long, value_name = "DIR", default_value = "target/bench/peers")]
    peers: PathBuf,
    /// Folder of the records
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Runs for each figure, instead of each benchmark's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Repository whose docs/benchmarks.md and README.md `report` writes
    #[arg(long, value_name = "DIR", default_value = ".")]
    docs: PathBuf,
    /// Fewer and shorter measurements of the tables of calls over sites
    #[arg(long)]
    quick: bool,
    /// The sizes of today instead of small ones in the benchmarks of programs over shared memory, and more nodes
    #[arg(long)]
    scaled: bool,
    /// Sources of pyss, a job simulator in Python, for `sched`: the folder with `schedulers` in it
    #[arg(long, value_name = "DIR")]
    src: Option<PathBuf>,
    /// The interpreter for them
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
}

/// Refuses to measure if the results would not be those of the named programs.
fn ready(args: &Args) -> Result<(), BenchError> {
    if args.benchmarks.iter().all(|asked| asked == "report") {
        return Ok(());
    }
    origin::require_release(origin::PROFILE)?;
    let calls = |asked: &String| asked == "all" || asked.starts_with("call") || asked == "engines";
    if args.benchmarks.iter().any(calls) { origin::require_package(&args.python) } else { Ok(()) }
}

fn written(result: Result<(), BenchError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumi-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn names() -> Vec<&'static str> {
    let mut names = vec!["all", "report"];
    names.extend(ALL.iter().map(|benchmark| benchmark.name));
    names
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = ready(&args) {
        eprintln!("kumi-bench: {error}");
        return ExitCode::FAILURE;
    }
    if args.benchmarks.iter().any(|asked| asked == "report") {
        return written(report::write(&args.out, &args.docs));
    }
    if let Err(error) = interrupt::catch() {
        eprintln!("kumi-bench: an interrupt will leave its clusters up: {error}");
    }
    let runs = args.runs.map(|runs| runs as usize);
    let setting = Setting {
        peers: Peers::find(&args.peers),
        runs,
        simulator: args.src.clone(),
        python: args.python.clone(),
        out: args.out.clone(),
        quick: args.quick,
        scaled: args.scaled,
    };
    let origin = Origin::now(&setting.peers, &args.python);
    let asked = |name: &str| args.benchmarks.iter().any(|asked| asked == name || asked == "all");
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for benchmark in ALL.iter().filter(|benchmark| asked(benchmark.name)) {
        println!("== {}: {}", benchmark.name, benchmark.about);
        let written = benchmark.measure(&setting).and_then(|records| {
            println!("{}", record::table(&records));
            record::write(&args.out, benchmark.name, &origin, &records)?;
            Ok(records)
        });
        match written {
            Ok(records) => all.extend(records),
            Err(error) => {
                eprintln!("kumi-bench: {}: {error}", benchmark.name);
                failed.push(benchmark.name);
            }
        }
    }
    summary(&all);
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("could not be measured: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// The figures that miss their goal, and those that could not be compared.
fn summary(records: &[Record]) {
    let goals = records.iter().filter(|record| record.goal.is_some());
    let (met, rest): (Vec<&Record>, Vec<&Record>) = goals.partition(|r| r.met == Some(true));
    let (missed, absent): (Vec<&Record>, Vec<&Record>) =
        rest.into_iter().partition(|record| record.met.is_some());
    for record in absent {
        println!("not compared: {} ({})", record.figure, record.peer_name);
    }
    if missed.is_empty() {
        println!("no figure misses its goal; {} goals are met", met.len());
        return;
    }
    println!("{} goals are met; figures that miss their goal:", met.len());
    for record in missed {
        let goal = record.goal.as_deref().unwrap_or_default();
        let is = match record.ratio {
            Some(ratio) => format!("ratio {ratio:.3} to {}", record.peer_name),
            None => format!("{:.3} {}", record.ours, record.unit),
        };
        println!("  {}: {is}, goal {goal}", record.figure);
    }
}
