//! The simulated machine: processors, in nodes.

use kumi_sched::{Amounts, Demand, NodeId, NodeResources, Numbering, PartSize, ProcessorId};
use std::ops::Range;

use crate::engine::Options;
use crate::job::Job;

/// Processors by number. Nodes of several are numbered as the head of a cluster numbers them, so some numbers have no
/// processor.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// The numbers of processors, ascending: those of each node, or of all at once where nodes have one each.
    blocks: Vec<Range<u32>>,
    single: bool,
    options: Options,
}

impl Machine {
    /// The machine of these options. `arity` is that of the policy's partitions. If its processors do not fill its nodes, the
    /// last has the rest.
    pub(crate) fn new(options: &Options, arity: u32) -> Self {
        let &Options { procs, node_procs, .. } = options;
        let single = node_procs <= 1;
        let blocks = if single {
            std::iter::once(0..procs).collect()
        } else {
            let sizes = (0..procs).step_by(node_procs as usize);
            let sizes = sizes.map(|first| node_procs.min(procs - first));
            let numbering = Numbering::new(arity, (0..).map(NodeId).zip(sizes));
            numbering.nodes().map(|(_, block)| block).collect()
        };
        Self { blocks, single, options: *options }
    }

    /// Nodes as policies see them.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeResources> + '_ {
        let amounts = amounts(self.options.node_memory);
        let all = self.blocks.iter().flat_map(|block| {
            let step = if self.single { 1 } else { block.len().max(1) };
            block.clone().step_by(step).map(move |first| first..first + step as u32)
        });
        all.map(move |processors| NodeResources { processors, amounts })
    }

    /// The number after the last processor's.
    pub(crate) fn end(&self) -> u32 {
        self.blocks.last().map_or(0, |block| block.end)
    }

    /// Numbers below the end that no processor has.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.blocks.windows(2).map(|pair| pair[0].end..pair[1].start)
    }

    /// How many processors have a number in this range.
    pub(crate) fn count(&self, range: &Range<u32>) -> u32 {
        let first = self.blocks.partition_point(|block| block.end <= range.start);
        let blocks = self.blocks[first..].iter().take_while(|block| block.start < range.end);
        let inside = |block: &Range<u32>| block.end.min(range.end) - block.start.max(range.start);
        blocks.map(inside).sum()
    }

    /// What a job demands: its processors wherever they are, or ranks with several on one node each.
    pub(crate) fn demand(&self, job: &Job) -> Demand {
        let each = self.options.rank_procs.max(1);
        let memory = if self.options.node_memory == 0 { 0 } else { job.memory };
        Demand {
            parts: job.size.div_ceil(each),
            size: PartSize::Processors(each),
            spread: false,
            amounts: amounts(memory.saturating_mul(each.into())),
        }
    }

    /// Whether jobs may be on other processors than the first free ones of a partition.
    fn is_plain(&self) -> bool {
        self.single && self.options.rank_procs <= 1 && self.options.node_memory == 0
    }

    /// The partition of a job on these processors, where partitions are powers of `arity`: that of its size, or the smallest
    /// that has them all.
    pub(crate) fn partition(&self, arity: u32, processors: &[ProcessorId]) -> Option<Range<u32>> {
        let (first, last) = (processors.first()?.0, processors.last()?.0);
        let mut width = crate::policies::partition_of(arity, processors.len() as u32);
        loop {
            let from = first / width * width;
            let to = from.saturating_add(width);
            if last < to || self.is_plain() || to == u32::MAX {
                return Some(from..to);
            }
            width = width.saturating_mul(arity.max(2));
        }
    }
}

/// So much memory and nothing else.
fn amounts(memory: u64) -> Amounts {
    let mut amounts = Amounts::NONE;
    amounts.0[0] = memory;
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(procs: u32, node_procs: u32) -> Machine {
        Machine::new(&Options { node_procs, ..Options::new(procs) }, 2)
    }

    #[test]
    fn nodes_are_numbered_as_a_cluster_numbers_them() {
        let nodes = |machine: &Machine| -> Vec<Range<u32>> {
            machine.nodes().map(|node| node.processors).collect()
        };
        assert_eq!(nodes(&machine(3, 1)), [0..1, 1..2, 2..3]);
        let sixes = machine(14, 6);
        assert_eq!(nodes(&sixes), [0..6, 8..14, 14..16]);
        assert_eq!((sixes.end(), sixes.gaps().collect::<Vec<_>>()), (16, vec![6..8, 14..14]));
        assert_eq!([0..16, 4..9, 6..8, 13..100].map(|range| sixes.count(&range)), [14, 3, 0, 3]);
    }

    #[test]
    fn partitions_end_where_the_machine_does() {
        // A machine of 100: jobs of 33 in its left 64 and in the remaining 36, one of 70.
        let plain = machine(100, 1);
        let of = |(first, size)| {
            let processors: Vec<ProcessorId> = (first..first + size).map(ProcessorId).collect();
            plain.partition(2, &processors).map(|range| plain.count(&range))
        };
        let given = [(0, 33), (64, 33), (0, 70), (96, 3), (99, 1)].map(of);
        assert_eq!(given, [64, 36, 100, 4, 1].map(Some));
        // Eight of nodes of six do not fit eight numbers.
        let sixes = machine(12, 6);
        let eight = [0, 1, 2, 3, 4, 5, 8, 9].map(ProcessorId);
        assert_eq!(sixes.partition(2, &eight), Some(0..16));
        assert_eq!(sixes.partition(2, &[]), None);
    }
}
