//! Options of `kumi run` that say what each rank takes of its node.

use crate::cli::OnOff;
use crate::parse;
use clap::{Args, ValueEnum};
use kumi_control::message::{Binding, DeviceCount, Resources};
use kumi_node::config::{self, MOST_PROCESSORS};

/// What ranks take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ResourceArgs {
    /// Processors of each rank [default: as the cluster is configured, or 1]
    #[arg(long, value_name = "N", env = "KUMI_CPUS_PER_RANK",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PROCESSORS)))]
    pub cpus_per_rank: Option<u32>,
    /// Memory of each rank, which no other job gets meanwhile: 512M, 1.5GiB; 0 reserves none [default: as
    /// the cluster is configured]
    #[arg(long, value_name = "SIZE", env = "KUMI_MEM_PER_RANK", value_parser = parse::size)]
    pub mem_per_rank: Option<u64>,
    /// Ranks on each node; the last may have fewer [default: the cluster chooses]
    #[arg(long, value_name = "N", env = "KUMI_RANKS_PER_NODE",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PROCESSORS)))]
    pub ranks_per_node: Option<u32>,
    /// Whether the job has its nodes to itself in its turns [default: off]
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "on",
          env = "KUMI_EXCLUSIVE")]
    pub exclusive: Option<OnOff>,
    /// Devices of each rank, by the name that nodes have for them: gpu=1; may be repeated
    #[arg(long = "resource", value_name = "NAME=N", value_parser = parse::device)]
    pub devices: Vec<DeviceCount>,
    /// The processors on which a rank may run [default: as the cluster is configured, or core]
    #[arg(long, value_name = "WHERE", value_enum, env = "KUMI_BIND")]
    pub bind: Option<Bind>,
    /// Whether the job has what others leave idle in their turns [default: as the cluster is configured]
    #[arg(long, value_enum)]
    pub fill: Option<OnOff>,
}

impl ResourceArgs {
    /// As the head takes them.
    pub fn resources(self) -> Resources {
        Resources {
            processors_per_rank: self.cpus_per_rank,
            memory_per_rank: self.mem_per_rank,
            ranks_per_node: self.ranks_per_node,
            exclusive: self.exclusive == Some(OnOff::On),
            devices: self.devices,
            binding: self.bind.map(|bind| Binding::from(config::Bind::from(bind))),
            fill: self.fill.map(|value| value == OnOff::On),
        }
    }
}

/// Processors on which a rank may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bind {
    /// All that its node gives to ranks: the operating system chooses
    None,
    /// Its own
    Core,
    /// Those of its job on the node that are of the same NUMA places as its own
    Numa,
    /// All of its job on the node
    Cpuset,
}

impl From<Bind> for config::Bind {
    fn from(bind: Bind) -> Self {
        match bind {
            Bind::None => Self::None,
            Bind::Core => Self::Core,
            Bind::Numa => Self::Numa,
            Bind::Cpuset => Self::Cpuset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn read(words: &str) -> Result<Resources, clap::Error> {
        let cli = Cli::try_parse_from(words.split(' '))?;
        let Command::Run(args) = cli.command else { panic!("not run") };
        Ok(args.job.resources.resources())
    }

    #[test]
    fn everything_that_a_rank_takes() {
        let all = "kumi run -n 8 --cpus-per-rank 2 --mem-per-rank 1.5GiB --ranks-per-node 4 --exclusive \
                   --resource gpu=1 --resource fpga=2 --bind numa --fill off prog --bind";
        let device = |name: &str, count| DeviceCount { name: name.into(), count };
        let expected = Resources {
            processors_per_rank: Some(2),
            memory_per_rank: Some(3 << 29),
            ranks_per_node: Some(4),
            exclusive: true,
            devices: vec![device("gpu", 1), device("fpga", 2)],
            binding: Some(Binding::Numa),
            fill: Some(false),
        };
        assert_eq!(read(all).unwrap(), expected);
        assert_eq!(read("kumi run prog").unwrap(), Resources::default(), "the cluster decides");
        assert!(!read("kumi run --exclusive=off prog").unwrap().exclusive);
        assert_eq!(read("kumi run --mem-per-rank 0 prog").unwrap().memory_per_rank, Some(0));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (option, says) in [
            ("--cpus-per-rank 0", "0 is not in 1..=4096"),
            ("--cpus-per-rank 4097", "4097 is not in 1..=4096"),
            ("--ranks-per-node 0", "0 is not in 1..=4096"),
            ("--mem-per-rank 2GB", "\"2GB\" is not a size"),
            ("--mem-per-rank -1", "\"-1\" is not a size"),
            ("--exclusive=maybe", "possible values: on, off"),
            ("--resource gpu", "'gpu' is not a number of devices"),
            ("--resource gpu=0", "'gpu=0' is not a number of devices"),
            ("--resource =1", "'=1' is not a number of devices"),
            ("--bind socket", "possible values: none, core, numa, cpuset"),
        ] {
            let error = read(&format!("kumi run {option} prog")).unwrap_err().to_string();
            assert!(error.contains(says), "{option}: {error}");
        }
    }
}
