//! Numbers of processors: each node has a block of numbers of its own.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::timetable::{repeats, shortest_period};
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
        self.renew_columns(columns, Vec::new(), 0).columns
    }

    /// The same where `last` were the columns until now, of whose slots `ticks` have passed. Columns that go on as they were are
    /// taken from there.
    pub fn renew_columns(
        &self,
        columns: &[ProcessorColumn],
        last: Vec<Column>,
        ticks: u64,
    ) -> RenewedColumns {
        let mut last: BTreeMap<NodeId, Column> =
            last.into_iter().map(|column| (column.node, column)).collect();
        let mut renewed = RenewedColumns::default();
        let mut slots = NodeSlots::default();
        for (node, of_node) in self.by_node(columns) {
            let period = slots.period(&of_node);
            match last.remove(&node) {
                Some(mut before) if slots.go_on(&of_node, period, &before, ticks) => {
                    before.pass(ticks);
                    renewed.columns.push(before);
                }
                _ => {
                    renewed.changed.push(node);
                    renewed.columns.push(slots.column(node, &of_node, period));
                }
            }
        }
        renewed.changed.extend(last.into_keys());
        renewed.changed.sort_unstable();
        renewed
    }

    /// The columns of each node's processors, nodes ascending.
    fn by_node<'c>(
        &self,
        columns: &'c [ProcessorColumn],
    ) -> BTreeMap<NodeId, Vec<&'c ProcessorColumn>> {
        let mut nodes: BTreeMap<NodeId, Vec<&ProcessorColumn>> = BTreeMap::new();
        // Processors of a node follow one another.
        let mut rest = columns;
        while let Some(first) = rest.first() {
            let Some((node, _)) = self.place(first.processor) else {
                rest = &rest[1..];
                continue;
            };
            let block = self.processors(node);
            let here = |column: &&ProcessorColumn| block.contains(&column.processor.0);
            let count = rest.iter().take_while(here).count();
            nodes.entry(node).or_default().extend(&rest[..count]);
            rest = &rest[count..];
        }
        nodes
    }
}

/// Columns of nodes that replace others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenewedColumns {
    /// All, sorted by node.
    pub columns: Vec<Column>,
    /// The nodes whose columns do not go on as they were, ascending: also those that have none any more.
    pub changed: Vec<NodeId>,
}

/// Makes slots of nodes of those of their processors. Its memory is used again for each.
#[derive(Default)]
struct NodeSlots {
    jobs: Vec<JobId>,
}

impl NodeSlots {
    /// The jobs of a slot, ascending.
    fn jobs(&mut self, of_node: &[&ProcessorColumn], slot: usize) -> &[JobId] {
        self.jobs.clear();
        for job in of_node.iter().filter_map(|column| *column.slots.get(slot)?) {
            if self.jobs.last() != Some(&job) {
                self.jobs.push(job);
            }
        }
        self.jobs.sort_unstable();
        self.jobs.dedup();
        &self.jobs
    }

    /// After how many slots those of all processors of a node repeat; whole times that in their length.
    fn period(&self, of_node: &[&ProcessorColumn]) -> usize {
        let length = of_node.first().map_or(0, |column| column.slots.len());
        shortest_period(length, |period| {
            of_node.iter().all(|column| repeats(&column.slots, period))
        })
    }

    /// Whether the slots are those of `before` after so many ticks, for ever.
    fn go_on(
        &mut self,
        of_node: &[&ProcessorColumn],
        period: usize,
        before: &Column,
        ticks: u64,
    ) -> bool {
        let length = before.slots.len();
        // Whoever goes on has slots that repeat as often, since both are as short as can be. Those of processors may repeat
        // after several times as many.
        if length == 0 || !period.is_multiple_of(length) {
            return false;
        }
        let first = before.place_of(ticks);
        (0..period).all(|slot| self.jobs(of_node, slot) == before.slots[(first + slot) % length])
    }

    /// The column, as short as can be.
    fn column(&mut self, node: NodeId, of_node: &[&ProcessorColumn], period: usize) -> Column {
        let slots: Vec<Vec<JobId>> =
            (0..period).map(|slot| self.jobs(of_node, slot).to_vec()).collect();
        let mut column = Column { node, slots };
        column.shorten();
        column
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
    use alloc::vec;

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

    fn processor(processor: u32, slots: &[u64]) -> ProcessorColumn {
        let job = |&job: &u64| (job > 0).then_some(JobId(job));
        ProcessorColumn {
            processor: ProcessorId(processor),
            slots: slots.iter().map(job).collect(),
        }
    }

    fn slots(column: &Column) -> Vec<Vec<u64>> {
        column.slots.iter().map(|slot| slot.iter().map(|job| job.0).collect()).collect()
    }

    #[test]
    fn columns_are_as_short_as_can_be() {
        let of = |columns: &[ProcessorColumn]| slots(&numbering(2, &[2]).columns(columns)[0]);
        assert_eq!(of(&[processor(0, &[1, 1, 1, 1])]), [[1]]);
        assert_eq!(of(&[processor(0, &[1, 2, 1, 2])]), [[1], [2]]);
        assert_eq!(of(&[processor(0, &[1, 2, 1])]), [[1], [2], [1]], "it is cut");
        let change_places = [processor(0, &[1, 2]), processor(1, &[2, 1])];
        assert_eq!(of(&change_places), [[1, 2]], "both run all the time");
    }

    #[test]
    fn only_columns_that_go_on_otherwise_change() {
        let numbering = numbering(1, &[1, 1, 1, 1]);
        let renew = |old: &[ProcessorColumn], new: &[ProcessorColumn], ticks| {
            let renewed = numbering.renew_columns(new, numbering.columns(old), ticks);
            assert_eq!(renewed.columns, numbering.columns(new), "the same as without the last");
            renewed.changed.into_iter().map(|node| node.0).collect::<Vec<u32>>()
        };
        let old = [processor(0, &[1, 2]), processor(1, &[3, 3]), processor(2, &[4, 0])];
        assert_eq!(renew(&old, &old, 0), []);
        assert_eq!(renew(&old, &old, 4), []);
        assert_eq!(renew(&old, &old, 3), [0, 2], "one is constant");
        let longer = [processor(0, &[2, 1, 2, 1]), processor(1, &[3, 5, 3, 6])];
        assert_eq!(renew(&old, &longer, 1), [1, 2], "one has changed and one has gone");
        assert_eq!(renew(&longer, &old, 1), [1, 2]);
        assert_eq!(renew(&[], &old, 7), [0, 1, 2]);
        assert_eq!(renew(&old, &[], u64::MAX), [0, 1, 2]);
    }
}
