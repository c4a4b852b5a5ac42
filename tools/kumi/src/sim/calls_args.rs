//! What can be asked of the simulator of calls.

use crate::parse;
use clap::{Args, ValueEnum};
use kumi_sim::calls::{Discipline, Law, Routine};
use std::path::PathBuf;
use std::time::Duration;

/// Options that say what is simulated, which a model from a file says instead.
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
/// Options that say how it is simulated and what comes out, which the paper's tables have of their own.
const SIMULATING: [&str; 9] =
    ["policy", "model", "write_model", "time", "warm_up", "replications", "seed", "json", "csv"];

/// Options of `kumi sim calls`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The options describe sites that are alike and servers that are alike; for anything else \
write a model (--write-model shows its form) and give it with --model."
)]
pub struct CallsArgs {
    /// How the metaserver chooses servers, by name; several, separated by commas, are compared
    #[arg(long, value_name = "NAME", value_delimiter = ',', required_unless_present_any = ["model", "figures"])]
    pub policy: Vec<String>,
    /// What is called: linpack:N, ep:M (2^M pairs), const:OPERATIONS or exp:OPERATIONS; one of several
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = routine, default_value = "linpack:1000")]
    pub routine: Vec<Routine>,
    /// Sites of clients, each with a path of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub sites: u32,
    /// Clients at each site
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub clients: u32,
    /// A client without a call under way may call at each step of this length, counted from the end of its last call
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "3s")]
    pub step: Duration,
    /// How likely it is to
    #[arg(long, value_name = "P", default_value_t = 0.5)]
    pub probability: f64,
    /// Instead, a client thinks after each call, for an exponential time with this mean
    #[arg(long, value_name = "TIME", value_parser = parse::duration, conflicts_with_all = ["rate", "step", "probability"])]
    pub think: Option<Duration>,
    /// Instead, each client's calls are a Poisson stream of this rate a second
    #[arg(long, value_name = "RATE", conflicts_with_all = ["step", "probability"])]
    pub rate: Option<f64>,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub server: ServersArgs,
    /// What each call costs at the metaserver, which does one at a time
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
    /// How long is simulated [default: 100000s; calls of a list: until all are over]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub time: Option<Duration>,
    /// What of it is not measured [default: a tenth]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub warm_up: Option<Duration>,
    /// Independent repetitions, from which intervals are made
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub replications: u32,
    /// Where random numbers begin; each replication has the next seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the figures to FILE: an object, of several policies an array; - is standard output
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
    /// Bytes per second of each site's path, each way [default: calls take no time on their way]
    #[arg(long, value_name = "BYTES")]
    pub bandwidth: Option<f64>,
    /// From one end to the other
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "0s", requires = "bandwidth")]
    pub latency: Duration,
    /// The path is shared equally, or first come, first served with exponential times
    #[arg(long, value_enum, default_value_t = DisciplineArg::Ps, requires = "bandwidth")]
    pub network: DisciplineArg,
    /// Share of the bandwidth that others use
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, requires = "bandwidth")]
    pub background: f64,
    /// Mean size of what the others send
    #[arg(long, value_name = "BYTES", default_value_t = 100_000.0, requires = "bandwidth")]
    pub background_bytes: f64,
}

/// The servers.
#[derive(Clone, Debug, Args)]
pub struct ServersArgs {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub servers: u32,
    /// Processors of each; a call uses one
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub processors: u32,
    /// Operations per second of a processor
    #[arg(long, value_name = "RATE", default_value_t = 200e6)]
    pub speed: f64,
    /// Processors are shared equally, or calls wait for one in turn
    #[arg(long, value_enum, default_value_t = DisciplineArg::Ps)]
    pub discipline: DisciplineArg,
    /// Most calls that the metaserver gives a server at a time [default: any number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Processor time that each call costs besides
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "0s")]
    pub overhead: Duration,
}

/// As [`Discipline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DisciplineArg {
    /// Equal parts
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
