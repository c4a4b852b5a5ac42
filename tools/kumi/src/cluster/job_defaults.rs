//! Options of `kumi cluster init` and `up` for what jobs take that do not say.

use crate::parse;
use crate::run::Bind;
use clap::Args;
use kumi_node::config::{JobDefaults, MOST_PROCESSORS};

/// What ranks take of their nodes.
#[derive(Clone, Debug, Default, Args)]
pub struct JobDefaultArgs {
    /// Processors of each rank, unless `kumi run` says otherwise [default: 1]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PROCESSORS)))]
    pub cpus_per_rank: Option<u32>,
    /// Memory of each rank, unless `kumi run` says otherwise: 512M, 1.5GiB
    #[arg(long, value_name = "SIZE", value_parser = parse::size_text)]
    pub mem_per_rank: Option<String>,
    /// The processors on which a rank may run, unless `kumi run` says otherwise [default: core]
    #[arg(long, value_name = "WHERE", value_enum)]
    pub bind: Option<Bind>,
}

impl JobDefaultArgs {
    /// Puts them into the configuration.
    pub fn fill(&self, job: JobDefaults) -> JobDefaults {
        JobDefaults {
            cpus_per_rank: self.cpus_per_rank,
            memory_per_rank: self.mem_per_rank.clone(),
            bind: self.bind.map(Into::into),
            ..job
        }
    }
}
