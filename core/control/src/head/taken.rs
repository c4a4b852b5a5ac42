//! What jobs have of each node, for people and for the reasons of jobs that wait.

use alloc::collections::{BTreeMap, BTreeSet};

use kumi_sched::{Amounts, NodeId};

use super::Head;
use crate::message::NodeUse;

/// What placed jobs have of a node.
#[derive(Debug, Default)]
pub(super) struct ReservedResources {
    /// Places of the processors that a job has.
    processors: BTreeSet<u32>,
    amounts: Amounts,
}

/// What the nodes that are up have together, and how much of it placed jobs have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterUse {
    /// Processors.
    pub processors: u64,
    /// Those that a job has at least.
    pub processors_taken: u64,
    /// Bytes of memory, of the nodes that know theirs.
    pub memory: u64,
    /// Those that are reserved.
    pub memory_taken: u64,
}

impl ReservedResources {
    /// Processors that a job has.
    pub(super) fn processors(&self) -> u32 {
        u32::try_from(self.processors.len()).unwrap_or(u32::MAX)
    }
}

impl Head {
    /// What placed jobs have of each node that has any. The cost is that of a look at all jobs.
    pub(super) fn taken(&self) -> BTreeMap<NodeId, ReservedResources> {
        let mut nodes: BTreeMap<NodeId, ReservedResources> = BTreeMap::new();
        for job in self.jobs.iter().filter(|job| job.is_placed()) {
            let demand = self.scheduler.placed_demand(job);
            for part in &job.record.spec.layout {
                let taken = nodes.entry(part.node).or_default();
                match &part.processors[..] {
                    [] => taken.processors.extend(0..self.processors_of(part.node)),
                    some => taken.processors.extend(some),
                }
                // A part of the demand is a node, or a rank.
                let parts = if demand.spread { 1 } else { part.count };
                taken.amounts.add(&demand.amounts.times(parts));
            }
        }
        nodes
    }

    /// What the nodes that are up have together.
    pub fn cluster_use(&self) -> ClusterUse {
        let (mut all, taken) = (ClusterUse::default(), self.taken());
        let up = self.membership.descriptions().filter(|&(node, _)| self.is_up(node));
        for (node, said) in up.filter_map(|(node, said)| Some((node, said?))) {
            let has = self.node_use(taken.get(&node));
            all.processors += u64::from(said.processors);
            all.processors_taken += u64::from(has.processors.min(said.processors));
            all.memory = all.memory.saturating_add(said.memory);
            all.memory_taken = all.memory_taken.saturating_add(has.memory.min(said.memory));
        }
        all
    }

    fn processors_of(&self, node: NodeId) -> u32 {
        self.membership.description(node).map_or(1, |said| said.processors)
    }

    /// The same of one node as a message.
    pub(super) fn node_use(&self, taken: Option<&ReservedResources>) -> NodeUse {
        let Some(taken) = taken else { return NodeUse::default() };
        let (memory, devices) = self.scheduler.kinds().describe(&taken.amounts);
        NodeUse { processors: taken.processors(), memory, devices }
    }
}
