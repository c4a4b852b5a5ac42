//! Options of the simulator of calls.

use crate::parse;
use clap::{Args, ValueEnum};
use kumi_sim::calls::{Discipline, Law, Routine};
use std::path::PathBuf;
use std::time::Duration;

/// Options that describe the model; a model from a file replaces them.
const DESCRIBING: [&str; 16] = [
    "routine",
    "sites",
    "clients",
    "step",
    "probability",
    "think",
    "rate",
    "metaserver",
    "most_waiting",
    "bandwidth",
    "servers",
    "processors",
    "speed",
    "discipline",
    "limit",
    "overhead",
];
/// Options of the simulation and its output; the paper's tables set them themselves.
const SIMULATING: [&str; 9] =
    ["policy", "model", "write_model", "time", "warm_up", "replications", "seed", "json", "csv"];

/// Options of `kumi sim calls`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The options describe sites that are alike and servers that are alike; for anything else \
write a model (--write-model shows its form) and give it with --model."
)]
pub struct CallsArgs {
    /// Policies by which the metaserver chooses servers, by name; several are compared
    #[arg(long, value_name = "NAME", value_delimiter = ',', required_unless_present_any = ["model", "figures"])]
    pub policy: Vec<String>,
    /// Routines to call: linpack:N, ep:M (2^M pairs), const:OPERATIONS or exp:OPERATIONS; of several,
    /// each call takes one at random
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = routine, default_value = "linpack:1000")]
    pub routine: Vec<Routine>,
    /// Number of client sites, each with a network path of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub sites: u32,
    /// Clients at each site
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub clients: u32,
    /// Length of a step: an idle client may call at each step after the end of its last call
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "3s")]
    pub step: Duration,
    /// Probability that an idle client calls at a step
    #[arg(long, value_name = "P", default_value_t = 0.5)]
    pub probability: f64,
    /// Instead of steps: mean of the exponential time that a client waits after each call
    #[arg(long, value_name = "TIME", value_parser = parse::duration, conflicts_with_all = ["rate", "step", "probability"])]
    pub think: Option<Duration>,
    /// Instead of steps: calls per second of each client, as a Poisson stream
    #[arg(long, value_name = "RATE", conflicts_with_all = ["step", "probability"])]
    pub rate: Option<f64>,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub server: ServersArgs,
    /// Time that the metaserver needs for each call; it handles one at a time
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "0s")]
    pub metaserver: Duration,
    /// Most calls that wait at the metaserver [default: any number]
    #[arg(long, value_name = "N")]
    pub most_waiting: Option<usize>,
    /// Read the model from FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = DESCRIBING)]
    pub model: Option<PathBuf>,
    /// Write the model to FILE, as --model reads it; - is standard output
    #[arg(long, value_name = "FILE")]
    pub write_model: Option<PathBuf>,
    /// Simulated time [default: 100000s; for a list of calls: until all are over]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub time: Option<Duration>,
    /// Time at the beginning that is not measured [default: a tenth]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub warm_up: Option<Duration>,
    /// Independent repetitions, for confidence intervals
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub replications: u32,
    /// Seed of the first replication; each further one has the next seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the results to FILE as JSON: an object, or an array for several policies; - is standard
    /// output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a line for each site and routine to FILE
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Simulate the tables of the paper on calls instead, and write them to DIR beside its numbers
    #[arg(long, value_name = "DIR", conflicts_with_all = DESCRIBING, conflicts_with_all = SIMULATING)]
    pub figures: Option<PathBuf>,
    /// With --figures: fewer and shorter replications
    #[arg(long, requires = "figures")]
    pub quick: bool,
}

/// The paths between clients and servers.
#[derive(Clone, Debug, Args)]
pub struct NetworkArgs {
    /// Bandwidth of each site's path in bytes per second, each way [default: unlimited]
    #[arg(long, value_name = "BYTES")]
    pub bandwidth: Option<f64>,
    /// Latency of the path, one way
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "0s", requires = "bandwidth")]
    pub latency: Duration,
    /// How transfers share the path: equally, or first come, first served with exponential times
    #[arg(long, value_enum, default_value_t = DisciplineArg::Ps, requires = "bandwidth")]
    pub network: DisciplineArg,
    /// Share of the bandwidth that background traffic uses
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, requires = "bandwidth")]
    pub background: f64,
    /// Mean size of a background transfer
    #[arg(long, value_name = "BYTES", default_value_t = 100_000.0, requires = "bandwidth")]
    pub background_bytes: f64,
}

/// The servers.
#[derive(Clone, Debug, Args)]
pub struct ServersArgs {
    /// Number of servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub servers: u32,
    /// Processors of each server; a call uses one
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub processors: u32,
    /// Operations per second of a processor
    #[arg(long, value_name = "RATE", default_value_t = 200e6)]
    pub speed: f64,
    /// How calls share the processors: equally, or first come, first served
    #[arg(long, value_enum, default_value_t = DisciplineArg::Ps)]
    pub discipline: DisciplineArg,
    /// Most calls that a server gets at a time [default: any number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Additional processor time of each call
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "0s")]
    pub overhead: Duration,
}

/// As [`Discipline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DisciplineArg {
    /// Equal shares
    Ps,
    /// First come, first served
    Fcfs,
}

impl From<DisciplineArg> for Discipline {
    fn from(discipline: DisciplineArg) -> Self {
        match discipline {
            DisciplineArg::Ps => Self::Ps,
            DisciplineArg::Fcfs => Self::Fcfs,
        }
    }
}

/// Largest order of Linpack, and most bits of EP.
const LARGEST: (u64, i32) = (1_000_000, 60);

fn routine(text: &str) -> Result<Routine, String> {
    let plain = |operations: &str, law| {
        let operations = operations.parse().ok()?;
        let name = text.replace('@', "-");
        Some(Routine { name, bytes_out: 0, bytes_back: 0, operations, law })
    };
    let read = match text.split_once(':') {
        Some(("linpack", order)) => {
            order.parse().ok().filter(|order| (1..=LARGEST.0).contains(order)).map(Routine::linpack)
        }
        Some(("ep", bits)) => {
            bits.parse().ok().filter(|bits| (0..=LARGEST.1).contains(bits)).map(Routine::ep)
        }
        Some(("const", operations)) => plain(operations, Law::Constant),
        Some(("exp", operations)) => plain(operations, Law::Exponential),
        _ => None,
    };
    read.ok_or_else(|| {
        "give linpack:N (to 1000000), ep:M (to 60), const:OPERATIONS or exp:OPERATIONS".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routines_by_name() {
        assert_eq!(routine("linpack:600"), Ok(Routine::linpack(600)));
        assert_eq!(routine("ep:24").unwrap().operations, 2f64.powi(25));
        assert_eq!(routine("exp:1e6").unwrap().law, Law::Exponential);
        for text in ["", "linpack", "linpack:0", "linpack:x", "ep:-1", "ep:61", "dgemm:3"] {
            assert!(routine(text).is_err(), "{text}");
        }
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: CallsArgs,
    }

    fn read(line: &str) -> Result<CallsArgs, clap::Error> {
        use clap::Parser;
        Line::try_parse_from(["calls"].into_iter().chain(line.split(' '))).map(|line| line.args)
    }

    #[test]
    fn an_option_that_would_be_ignored_is_refused() {
        for line in ["--policy a", "--model m --seed 3 --policy a,b", "--figures d --quick"] {
            assert!(read(line).is_ok(), "{line}");
        }
        let mut both = vec![
            "--policy a --think 1s --step 2s".to_owned(),
            "--policy a --rate 1 --probability 0.5".to_owned(),
            "--policy a --rate 1 --think 1s".to_owned(),
            "--policy a --latency 1ms".to_owned(),
        ];
        let value = |name: &str| match name {
            "step" | "think" | "metaserver" | "overhead" => "1s",
            "discipline" => "fcfs",
            "routine" => "ep:3",
            "probability" | "rate" => "0.5",
            _ => "4",
        };
        for name in DESCRIBING {
            let option = format!("--{} {}", name.replace('_', "-"), value(name));
            both.push(format!("--model m {option}"));
            both.push(format!("--figures d {option}"));
        }
        for name in
            ["policy a", "model m", "write-model m", "json j", "csv c", "seed 1", "replications 2"]
        {
            both.push(format!("--figures d --{name}"));
        }
        both.push("--figures d --time 1s".to_owned());
        both.push("--figures d --warm-up 1s".to_owned());
        for line in both {
            let error = read(&line).map(|_| ()).expect_err(&line);
            assert_eq!(
                error.kind(),
                if line.contains("latency") {
                    clap::error::ErrorKind::MissingRequiredArgument
                } else {
                    clap::error::ErrorKind::ArgumentConflict
                },
                "{line}"
            );
        }
    }
}
