//! Numbers of processors: each node has a block of numbers of its own.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::{Column, JobId, NodeId, ProcessorColumn, ProcessorId};

/// The processors of each node by number.
///
/// A node's block begins at a multiple of the smallest power of the policy's arity that is not below its size. So a partition
/// of a tree over the numbers is a part of one node, or consists of whole nodes. Numbers in between have no processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbering {
    blocks: BTreeMap<NodeId, Range<u32>>,
    /// The node of each block, by its first number.
    nodes: BTreeMap<u32, NodeId>,
}

impl Numbering {
    /// Numbers for nodes with so many processors each (0 counts as 1), in order of the nodes.
    pub fn new(arity: u32, nodes: impl IntoIterator<Item = (NodeId, u32)>) -> Self {
        let sizes: BTreeMap<NodeId, u32> = nodes.into_iter().collect();
        let mut numbering = Self::default();
        let mut from: u32 = 0;
        for (node, size) in sizes {
            let size = size.max(1);
            let first = from.checked_next_multiple_of(block_of(arity, size)).unwrap_or(u32::MAX);
            from = first.saturating_add(size);
            numbering.blocks.insert(node, first..from);
            numbering.nodes.insert(first, node);
        }
        numbering
    }

    /// The numbers of a node's processors; none for an unknown node.
    pub fn processors(&self, node: NodeId) -> Range<u32> {
        self.blocks.get(&node).cloned().unwrap_or(0..0)
    }

    /// All processors.
    pub fn count(&self) -> u32 {
        self.blocks.values().map(|block| block.end - block.start).fold(0, u32::saturating_add)
    }

    /// All nodes with the numbers of their processors, ascending.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, Range<u32>)> + '_ {
        self.blocks.iter().map(|(&node, block)| (node, block.clone()))
    }

    /// The node of a processor, and the processor's place in it.
    pub fn place(&self, processor: ProcessorId) -> Option<(NodeId, u32)> {
        let (first, &node) = self.nodes.range(..=processor.0).next_back()?;
        let block = self.blocks.get(&node)?;
        block.contains(&processor.0).then(|| (node, processor.0 - first))
    }

    /// The columns of nodes, from those of all their processors.
    pub fn columns(&self, columns: &[ProcessorColumn]) -> Vec<Column> {
        let cycle = columns.first().map_or(0, |column| column.slots.len());
        let mut nodes: BTreeMap<NodeId, Vec<BTreeSet<JobId>>> = BTreeMap::new();
        for column in columns {
            let Some((node, _)) = self.place(column.processor) else { continue };
            let slots = nodes.entry(node).or_insert_with(|| vec![BTreeSet::new(); cycle]);
            for (jobs, job) in slots.iter_mut().zip(&column.slots) {
                jobs.extend(job);
            }
        }
        let slots = |slots: Vec<BTreeSet<JobId>>| {
            slots.into_iter().map(|jobs| jobs.into_iter().collect()).collect()
        };
        nodes.into_iter().map(|(node, jobs)| Column { node, slots: slots(jobs) }).collect()
    }
}

/// The smallest power of `arity` that is at least `size`.
fn block_of(arity: u32, size: u32) -> u32 {
    let mut block: u32 = 1;
    while block < size {
        block = block.saturating_mul(arity.max(2));
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbering(arity: u32, sizes: &[u32]) -> Numbering {
        Numbering::new(arity, (0..).map(NodeId).zip(sizes.iter().copied()))
    }

    #[test]
    fn nodes_begin_at_multiples_of_their_block() {
        let blocks = |arity, sizes: &[u32]| -> Vec<Range<u32>> {
            numbering(arity, sizes).nodes().map(|(_, block)| block).collect()
        };
        assert_eq!(blocks(2, &[1, 1, 1]), [0..1, 1..2, 2..3]);
        assert_eq!(blocks(2, &[6, 6, 2, 1, 4]), [0..6, 8..14, 14..16, 16..17, 20..24]);
        assert_eq!(blocks(3, &[2, 4]), [0..2, 9..13]);
    }

    #[test]
    fn processors_have_places() {
        let numbering = numbering(2, &[3, 3]);
        assert_eq!(numbering.processors(NodeId(1)), 4..7);
        assert_eq!(numbering.place(ProcessorId(5)), Some((NodeId(1), 1)));
        assert_eq!(numbering.place(ProcessorId(3)), None, "between two nodes");
        assert_eq!(numbering.place(ProcessorId(7)), None, "after the last");
        assert_eq!(numbering.processors(NodeId(2)), 0..0);
    }

    #[test]
    fn columns_of_nodes_have_each_job_once() {
        let (a, b) = (JobId(1), JobId(2));
        let column = |processor, slots: &[Option<JobId>]| ProcessorColumn {
            processor: ProcessorId(processor),
            slots: slots.to_vec(),
        };
        let columns = [
            column(0, &[Some(a), Some(b)]),
            column(1, &[Some(a), None]),
            column(4, &[Some(b), None]),
            column(5, &[Some(a), None]),
        ];
        let nodes = numbering(2, &[3, 3]).columns(&columns);
        let slots = |node: usize| &nodes[node].slots;
        assert_eq!((nodes[0].node, slots(0)), (NodeId(0), &vec![vec![a], vec![b]]));
        assert_eq!((nodes[1].node, slots(1)), (NodeId(1), &vec![vec![a, b], vec![]]));
    }
}
