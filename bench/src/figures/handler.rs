//! Effect of the handler thread's scheduling: reads of the memory of a rank that computes, and programs
//! made of such reads (Nakada et al., §4, table 1 and figures 2 to 4).

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

/// Policy of both threads and the handler's priority. The first is a job's default.
const SETTINGS: [&str; 8] =
    ["", "other:high", "fifo:even", "fifo:low", "fifo:high", "rr:even", "rr:low", "rr:high"];
/// Largest permitted ratio of answer times with the handler above and below the computing thread. Below it, a
/// request waits for the whole computation.
const MOST: f64 = 0.1;
/// Number of products of two 400 x 400 matrices while rank 1 reads.
const PRODUCTS: &str = "20";

/// Measurements of one setting, by run.
#[derive(Clone, Default)]
struct Runs {
    mean: Vec<f64>,
    longest: Vec<f64>,
    computing: Vec<f64>,
    programs: [Vec<f64>; 3],
}

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &[])?;
    let mut all = vec![Runs::default(); SETTINGS.len()];
    for _ in 0..runs {
        for (setting, of) in SETTINGS.iter().zip(&mut all) {
            let run = |program: &str| {
                let variable = format!("KUMI_HANDLER={setting}");
                let args = [program, "--products", PRODUCTS];
                let dense = cluster::program("dense")?;
                let job = cluster.start_with(&["--env", &variable], 2, &dense, &args)?;
                cluster::finish(job, program)
            };
            let output = run("reads")?;
            let number = |name: &str| cluster::number(&output, name, "dense reads");
            of.mean.push(number("Mean response")?);
            of.longest.push(number("Longest")?);
            of.computing.push(number("Time in seconds")?);
            for (program, seconds) in ["lu", "product", "sort"].iter().zip(&mut of.programs) {
                seconds.push(cluster::number(&run(program)?, "Time in seconds", program)?);
            }
        }
    }
    Ok(records(&all))
}

fn records(all: &[Runs]) -> Vec<Record> {
    let mut records = Vec::new();
    let default = &all[0];
    for (setting, of) in SETTINGS.iter().zip(all).skip(1) {
        let mut row = |what: &str, unit, ours: &[f64], peer: &[f64]| {
            let peer = Peer::Measured("without a setting", peer);
            records.push(Record::new(&format!("{what}, {setting}"), unit, ours, &peer, Goal::None));
        };
        row("read of 10 KB from a computing rank, mean", "us", &of.mean, &default.mean);
        row("read of 10 KB from a computing rank, longest", "us", &of.longest, &default.longest);
        row("computing meanwhile", "s", &of.computing, &default.computing);
        let programs = of.programs.iter().zip(&default.programs);
        for (name, (ours, peer)) in ["LU", "matrix product", "bitonic sort"].iter().zip(programs) {
            row(name, "s", ours, peer);
        }
    }
    for policy in ["fifo", "rr"] {
        let of = |priority: &str| {
            let name = format!("{policy}:{priority}");
            SETTINGS.iter().position(|setting| *setting == name).map_or(default, |at| &all[at])
        };
        let figure = format!("read from a computing rank, mean, {policy}, handler above");
        let peer = Peer::Measured("handler below", &of("low").mean);
        let goal = Goal::RatioAtMost(MOST);
        records.push(Record::new(&figure, "us", &of("high").mean, &peer, goal));
    }
    records
}
