//! One simulation in a process of its own: its time, its memory and its results.
#![forbid(unsafe_code)]

use clap::Parser;
use kumi_sim::generate::{Poisson, Service, Sizes, WorkloadMix};
use kumi_sim::{Instant, Monitor, Options, Report, Workload, engine, policies, swf};
use std::path::PathBuf;

/// Simulates jobs, each with a mean service of 1,000 units and of any power of two as likely.
#[derive(Parser)]
struct Args {
    /// The policy's name
    #[arg(long)]
    policy: String,
    /// Processors of the machine
    #[arg(long)]
    procs: u32,
    /// A trace in the Standard Workload Format, instead of such jobs
    #[arg(long)]
    swf: Option<PathBuf>,
    /// Share of the machine that is busy if nothing is lost
    #[arg(long, default_value_t = 0.8)]
    load: f64,
    /// How many units are simulated
    #[arg(long, default_value_t = 1_000_000)]
    units: u64,
}

fn workload(args: &Args) -> Result<Workload, Box<dyn std::error::Error>> {
    if let Some(path) = &args.swf {
        return Ok(swf::read(path, true)?);
    }
    let service = Service::Exponential { mean: 1000.0 };
    let mix =
        WorkloadMix { procs: args.procs, sizes: Sizes::Uniform, largest: None, service, seed: 1 };
    let (load, units) = (args.load, args.units);
    Ok(Poisson { mix, load, arrivals: units, units: Some(units) }.workload()?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let begin = std::time::Instant::now();
    let workload = workload(&args)?;
    let mut policy = policies::by_name(&args.policy)?;
    // The order of events of simulators that keep them in a list.
    let options = Options { instant: Instant::Single, ..Options::new(args.procs) };
    let monitor = Monitor::default();
    let outcome = engine::run(&args.policy, policy.as_mut(), &workload, &options, &monitor)?;
    let report = Report::new(&args.policy, Some(1), &workload, &options, &outcome);
    println!("seconds {}", begin.elapsed().as_secs_f64());
    println!("jobs {}", report.jobs);
    println!("slots {}", report.slots);
    println!("mean_wait_s {}", report.mean_wait_s);
    println!("peak_kilobytes {}", peak()?);
    Ok(())
}

/// The peak memory of this process, in kilobytes.
fn peak() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| std::io::Error::other("/proc/self/status has no VmHWM"))
}
