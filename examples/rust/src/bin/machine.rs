//! Shows the part of the cluster's state that every rank can read without a request: the load of all
//! nodes, the jobs of this one, and the activity of its own job's ranks.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use kumi_examples::program::run;
use kumi_mem::Machine;

#[derive(Debug, Parser)]
#[command(about = "Shows the load of all nodes and what the ranks of this job do")]
struct Options {
    /// Wait so many seconds at most until something was heard of every node
    #[arg(long, default_value_t = 10.0)]
    patience: f64,
}

fn main() -> ExitCode {
    run(|context, options: &Options| {
        let machine = context.machine().context("nothing is disclosed here; use `kumi run`")?;
        let patience = Duration::try_from_secs_f64(options.patience).context("--patience")?;
        let complete = wait_for_all(&machine, context.ranks(), patience);
        if context.rank() == 0 {
            show(&machine, context.ranks());
        }
        context.barrier()?;
        Ok(complete)
    })
}

/// Waits until something is known of every node and rank; whether it is.
fn wait_for_all(machine: &Machine<'_>, ranks: u32, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        let nodes = (0..machine.nodes()).all(|node| machine.node(node).is_some());
        let known = |rank| machine.rank(rank).is_some_and(|known| known.age_us.is_some());
        let complete = nodes && (0..ranks).all(known);
        if complete || Instant::now() >= end {
            return complete;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn show(machine: &Machine<'_>, ranks: u32) {
    let seconds = |us: u64| Duration::from_micros(us).as_secs_f64();
    for node in 0..machine.nodes() {
        match machine.node(node) {
            Some(load) => println!(
                "node {node}: {} of {} processors wanted, {:.0}% used, {} of {} MiB, {:.3} MB/s, {:.2} s ago",
                load.runnable,
                load.processors,
                f64::from(load.busy_permille) / 10.0,
                load.memory_used >> 20,
                load.memory_total >> 20,
                load.network_bytes as f64 / 1e6,
                seconds(load.age_us)
            ),
            None => println!("node {node}: nothing was heard of it"),
        }
    }
    for job in machine.jobs() {
        let name = job.job.map_or_else(|| "others".to_owned(), |job| job.to_string());
        let turn = if job.scheduled { "scheduled" } else { "stopped" };
        println!("job {name} here: {} ranks, {} runnable, {turn}", job.ranks, job.runnable);
    }
    for rank in 0..ranks {
        let Some(known) = machine.rank(rank) else { continue };
        let age = known
            .age_us
            .map_or_else(|| "never heard".to_owned(), |us| format!("{:.2} s ago", seconds(us)));
        println!("rank {rank} on node {}: {:?}, {age}", known.node, known.state);
    }
}
