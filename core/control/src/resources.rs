//! What each rank of a job takes of its node, and how ranks are laid out over nodes.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Resources of a job. What it leaves open is as the cluster is configured; a job that the head has accepted says all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Processors of each rank, at least 1.
    pub processors_per_rank: Option<u32>,
    /// Bytes of memory of each rank; 0 reserves none and does not limit.
    pub memory_per_rank: Option<u64>,
    /// Exactly so many ranks on each node; the last may have fewer.
    pub ranks_per_node: Option<u32>,
    /// Whether its nodes have no other job in its turns.
    pub exclusive: bool,
    /// Devices of each rank, by name.
    pub devices: Vec<DeviceCount>,
    /// The processors on which a rank may run.
    pub binding: Option<Binding>,
    /// Whether the job may run on processors that others leave idle in their turns.
    pub fill: Option<bool>,
}

impl Resources {
    /// Takes over from the cluster's configuration what is left open.
    pub(crate) fn complete(&mut self, cluster: &Self) {
        self.processors_per_rank = self.processors_per_rank.or(cluster.processors_per_rank);
        self.memory_per_rank = self.memory_per_rank.or(cluster.memory_per_rank);
        self.binding = self.binding.or(cluster.binding);
        self.fill = self.fill.or(cluster.fill);
    }
}

/// So many devices of a name, as `gpu`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCount {
    /// Name in the host file.
    pub name: String,
    /// How many.
    pub count: u32,
}

/// The processors on which a rank may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Binding {
    /// All that its node gives to ranks: the operating system chooses.
    None,
    /// Its own.
    #[default]
    Core,
    /// All of its job on the node that are of the same NUMA places as its own.
    Numa,
    /// All of its job on the node.
    Cpuset,
}
