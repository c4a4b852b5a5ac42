//! Numbers of the processors of the cluster, as the policy in force knows them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kumi_sched::{
    Amounts, Demand, NodeId, NodeResources, Numbering, PartSize, Placement, ProcessorId,
};

use super::capacity::Kinds;
use super::membership::Membership;
use super::sizing::NodeShare;
use crate::message::{JobRecord, NodeDescription, NodeRanks};

/// Processors of all configured nodes, and the kinds of things that are counted beside them.
///
/// A node that never attached counts as large as the largest known. If another size turns out, numbers change, and the head
/// makes its policy anew.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NodeNumbers {
    numbering: Numbering,
    kinds: Kinds,
}

impl NodeNumbers {
    /// Numbers by what the nodes said of themselves, and what jobs have of nodes that have not said anything yet.
    pub(super) fn new<'a>(
        arity: u32,
        membership: &Membership,
        placed: impl Iterator<Item = &'a JobRecord>,
    ) -> Self {
        let sizes: Vec<(NodeId, Option<u32>)> = membership
            .descriptions()
            .map(|(node, said)| (node, said.map(|said| said.processors.max(1))))
            .collect();
        let in_use = placed.flat_map(|record| &record.spec.layout);
        let in_use =
            in_use.filter_map(|part| Some((part.node.0, part.processors.iter().max()? + 1)));
        let in_use: Vec<(u32, u32)> = in_use.collect();
        let most = in_use.iter().map(|&(_, used)| used);
        let known = sizes.iter().filter_map(|(_, size)| *size);
        let assumed = known.chain(most).max().unwrap_or(1);
        let sizes = sizes.into_iter().map(|(node, size)| (node, size.unwrap_or(assumed)));
        let known = membership.descriptions().filter_map(|(_, said)| said);
        Self { numbering: Numbering::new(arity, sizes), kinds: Kinds::of(known) }
    }

    pub(super) fn numbering(&self) -> &Numbering {
        &self.numbering
    }

    /// What is counted beside processors.
    pub(super) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// A node as policies see it.
    pub(super) fn resources(&self, node: &NodeDescription) -> NodeResources {
        let processors = self.numbering.processors(node.node);
        NodeResources { processors, amounts: self.kinds.of_node(node) }
    }

    /// The first processor of a node, which stands for it.
    pub(super) fn first(&self, node: NodeId) -> ProcessorId {
        ProcessorId(self.numbering.processors(node).start)
    }

    /// The numbers of a job's processors.
    pub(super) fn processors(&self, layout: &[NodeRanks]) -> Vec<ProcessorId> {
        let of_part = |part: &NodeRanks| -> Vec<ProcessorId> {
            let node = self.numbering.processors(part.node);
            if part.processors.is_empty() {
                return node.map(ProcessorId).collect();
            }
            let numbers = part.processors.iter().map(|place| node.start.saturating_add(*place));
            let there: Vec<_> = numbers.filter(|number| node.contains(number)).collect();
            // A node that has become smaller: the job is somewhere on it.
            let there = if there.is_empty() { node.take(1).collect() } else { there };
            there.into_iter().map(ProcessorId).collect()
        };
        layout.iter().flat_map(of_part).collect()
    }

    /// Nodes that are not attached and have something of a placed job, as far as they are known.
    pub(super) fn away<'a>(
        &self,
        membership: &Membership,
        placed: impl Iterator<Item = &'a JobRecord>,
    ) -> Vec<NodeResources> {
        let parts = placed.flat_map(|record| &record.spec.layout);
        let away: BTreeSet<NodeId> =
            parts.map(|part| part.node).filter(|&node| !membership.is_attached(node)).collect();
        let known = away.into_iter().map(|node| self.numbering.processors(node));
        let known = known.filter(|processors| !processors.is_empty());
        known.map(|processors| NodeResources { processors, amounts: Amounts::NONE }).collect()
    }

    /// What a job takes that has its nodes.
    pub(super) fn placed_demand(&self, record: &JobRecord) -> Demand {
        let (layout, request) = (&record.spec.layout, &record.spec.request);
        let resources = &request.resources;
        let each = resources.processors_per_rank.unwrap_or(1).max(1);
        let memory = resources.memory_per_rank.unwrap_or(0);
        let rank = self.kinds.amounts(memory, &resources.devices);
        let has = |part: &NodeRanks| match part.processors.len() {
            0 => self.numbering.processors(part.node).len(),
            some => some,
        };
        let shared = layout.iter().any(|part| part.count as usize * each as usize > has(part));
        if !shared {
            let size = PartSize::Processors(each);
            return Demand { parts: request.ranks, size, spread: false, amounts: rank };
        }
        // Ranks share processors: each node is one part.
        let most = layout.iter().map(|part| part.count).max().unwrap_or(0);
        let amounts = Amounts(rank.0.map(|each| each.saturating_mul(most.into())));
        let parts = u32::try_from(layout.len()).unwrap_or(u32::MAX);
        Demand { parts, size: PartSize::WholeNode { least: 1 }, spread: true, amounts }
    }

    /// The processors of a placement by node, ascending.
    pub(super) fn shares(&self, placement: &Placement, membership: &Membership) -> Vec<NodeShare> {
        let mut shares: Vec<NodeShare> = Vec::new();
        for &processor in &placement.processors {
            let Some((node, place)) = self.numbering.place(processor) else { continue };
            match shares.last_mut().filter(|share| share.node == node) {
                Some(share) => share.processors.push(place),
                None => {
                    let range = self.numbering.processors(node);
                    let said = membership.description(node);
                    shares.push(NodeShare {
                        node,
                        processors: Vec::from([place]),
                        of: range.end - range.start,
                        max_ranks: said.map_or(u32::MAX, |said| said.max_ranks),
                    });
                }
            }
        }
        shares
    }
}

/// Records of jobs that have nodes.
pub(super) fn placed<'a>(
    jobs: impl Iterator<Item = &'a super::job::Job>,
) -> impl Iterator<Item = &'a JobRecord> {
    jobs.filter(|job| job.is_placed()).map(|job| &job.record)
}
