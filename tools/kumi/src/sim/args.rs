//! Options of the job simulator.

use crate::parse;
use clap::{Args, ValueEnum};
use kumi_sim::figures::Formats;
use kumi_sim::generate::{Service, Sizes};
use std::path::PathBuf;
use std::time::Duration;

/// Options of `kumi sim jobs`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Several policies, loads or seeds (separated by commas; seeds also as \
FIRST..LAST) make a sweep: every combination, on all cores. One unit is one second.")]
pub struct JobsArgs {
    /// Scheduling policies, by name; the error for a wrong name lists them
    #[arg(long, value_name = "NAME", required = true, value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Processors of the machine [default for a trace: as its header says]
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub procs: Option<u32>,
    #[command(flatten)]
    pub nodes: NodeArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub synthetic: SyntheticArgs,
    /// Seed of the random numbers; a list or a range makes a sweep
    #[arg(long, value_name = "N", default_value = "1", value_delimiter = ',', value_parser = seeds)]
    pub seed: Vec<Seeds>,
    #[command(flatten)]
    pub costs: CostArgs,
    /// When to ask the policy for placements if several events have the same time
    #[arg(long, value_enum, default_value_t = InstantArg::Batched)]
    pub instant: InstantArg,
    /// Let jobs of users who have spent less go first, where half of what was spent is forgotten in this time, as 12h or 1d
    /// [default: users do not count]
    #[arg(long, value_name = "TIME", value_parser = parse::estimate)]
    pub half_life: Option<Duration>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How processors are in nodes, and what jobs want of one node.
#[derive(Clone, Copy, Debug, Args)]
pub struct NodeArgs {
    /// Processors of a node; the last has the rest
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub cpus_per_node: u32,
    /// Processors of each rank of a job, all on one node; the jobs' processors are rounded up to whole ranks
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub cpus_per_rank: u32,
    /// Memory of a node, of which jobs take what the trace says for each processor [default: it limits no job]
    #[arg(long, value_name = "SIZE", value_parser = parse::size, conflicts_with_all = ["load", "gradient"])]
    pub memory_per_node: Option<u64>,
}

/// Options of `kumi sim figures`.
#[derive(Clone, Debug, Args)]
pub struct FiguresArgs {
    /// Directory to write to; made if there is none
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Quick trial: fewer seeds, shorter times, smaller machines
    #[arg(long)]
    pub quick: bool,
    /// Format of the figures
    #[arg(long, value_enum, default_value_t = FormatArg::Both)]
    pub format: FormatArg,
}

/// Sources of jobs.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct SourceArgs {
    /// A trace in the Standard Workload Format; also compressed, as FILE.gz
    #[arg(long, value_name = "FILE")]
    pub swf: Option<PathBuf>,
    /// Poisson arrivals at this share of the machine's power
    #[arg(long, value_name = "L", value_delimiter = ',', allow_negative_numbers = true)]
    pub load: Vec<f64>,
    /// Load that rises in 20 steps to --peak
    #[arg(long)]
    pub gradient: bool,
    /// Jobs that a cluster has run: the output of `kumi ps --all --json`
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
}

/// Properties of synthetic jobs.
#[derive(Clone, Debug, Args)]
pub struct SyntheticArgs {
    /// Units to simulate [default: 1000000, with --gradient 2200000]
    #[arg(long, value_name = "U", value_parser = clap::value_parser!(u64).range(1..))]
    pub units: Option<u64>,
    /// Units in which jobs arrive [default: all of them, with --gradient 10 of 11]
    #[arg(long, value_name = "U", value_parser = clap::value_parser!(u64).range(1..))]
    pub arrivals: Option<u64>,
    /// Simulate until the last job is over instead of a number of units
    #[arg(long, conflicts_with_all = ["swf", "history"])]
    pub drain: bool,
    /// Distribution of the sizes, which are powers of two up to --max-size
    #[arg(long, value_enum, default_value_t = SizesArg::Uniform)]
    pub sizes: SizesArg,
    /// The largest size [default: the largest power of two below P]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_size: Option<u32>,
    /// Service times: exp:MEAN or uniform:LOW:HIGH, in units [default: exp:1000, with --gradient uniform:500:19999]
    #[arg(long, value_name = "LAW", value_parser = service)]
    pub service: Option<Service>,
    /// Load of the last step of --gradient
    #[arg(long, value_name = "L", default_value_t = 1.33, requires = "gradient")]
    pub peak: f64,
}

/// The machine's costs.
#[derive(Clone, Debug, Args)]
pub struct CostArgs {
    /// Length of a time slice, for policies that share time
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "1s")]
    pub slice: Duration,
    /// Cost of switching back to a job
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "0s")]
    pub switch_cost: Duration,
    /// Cost of starting a job
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "0s")]
    pub launch_cost: Duration,
    /// Cost of moving a job to other processors
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "0s")]
    pub migration_cost: Duration,
}

/// Outputs and their files.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// Stop at the first malformed line of a trace, or record of a history, instead of only counting it
    #[arg(long, conflicts_with_all = ["load", "gradient"])]
    pub strict: bool,
    /// Write the results to FILE as JSON: an object, or an array for a sweep; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a line for every job to FILE
    #[arg(long, value_name = "FILE")]
    pub jobs_csv: Option<PathBuf>,
    /// Write the state of the machine over time to FILE
    #[arg(long, value_name = "FILE")]
    pub timeline_csv: Option<PathBuf>,
    /// Write the list of synthetic jobs to FILE as a trace in the Standard Workload Format; one load and one seed only
    #[arg(long, value_name = "FILE", conflicts_with_all = ["swf", "history"])]
    pub write_swf: Option<PathBuf>,
    /// Interval of --timeline-csv, in seconds [default: a thousandth of the time, at least 1]
    #[arg(long, value_name = "SECONDS", requires = "timeline_csv",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub sample: Option<u64>,
}

/// As [`kumi_sim::Instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InstantArg {
    /// After all events of an instant
    Batched,
    /// After each event
    Single,
}

/// As [`Formats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Vector graphics, for web pages
    Svg,
    /// Bitmaps of 1600 by 1000 pixels
    Png,
    /// Both SVG and PNG
    Both,
}

impl From<FormatArg> for Formats {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Svg => Self::Svg,
            FormatArg::Png => Self::Png,
            FormatArg::Both => Self::Both,
        }
    }
}

/// As [`Sizes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SizesArg {
    /// All sizes are equally likely
    Uniform,
    /// A size is twice as likely as its half
    Proportional,
    /// A size is half as likely as its half
    Inverse,
}

impl From<SizesArg> for Sizes {
    fn from(sizes: SizesArg) -> Self {
        match sizes {
            SizesArg::Uniform => Self::Uniform,
            SizesArg::Proportional => Self::Proportional,
            SizesArg::Inverse => Self::Inverse,
        }
    }
}

/// One seed or a range of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// Most simulations of a sweep; more are probably a typing error.
const MOST_SEEDS: u64 = 100_000;

fn seeds(text: &str) -> Result<Seeds, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last && last - first < MOST_SEEDS => {
            Ok(Seeds { first, last })
        }
        _ => Err("give a number, or FIRST..LAST with at most 100000 of them".to_owned()),
    }
}

fn service(text: &str) -> Result<Service, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let read = match parts[..] {
        ["exp", mean] => mean.parse().ok().map(|mean| Service::Exponential { mean }),
        ["uniform", low, high] => match (low.parse(), high.parse()) {
            (Ok(low), Ok(high)) => Some(Service::Uniform { low, high }),
            _ => None,
        },
        _ => None,
    };
    read.ok_or_else(|| "give exp:MEAN or uniform:LOW:HIGH, in units".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_numbers_and_ranges() {
        assert_eq!(seeds("7"), Ok(Seeds { first: 7, last: 7 }));
        assert_eq!(seeds("1..20"), Ok(Seeds { first: 1, last: 20 }));
        for text in ["", "x", "3..1", "1..", "-1", "0..100000"] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn laws_of_service() {
        assert_eq!(service("exp:1000"), Ok(Service::Exponential { mean: 1000.0 }));
        assert_eq!(service("uniform:5:9"), Ok(Service::Uniform { low: 5, high: 9 }));
        for text in ["", "exp", "exp:x", "uniform:1", "uniform:1:2:3", "normal:1", "uniform:-1:2"] {
            assert!(service(text).is_err(), "{text}");
        }
    }
}
