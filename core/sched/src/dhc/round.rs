//! Layout of a round of distributed hierarchical control.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::bits::Bits;
use crate::buddy::Block;
use crate::{JobId, ProcessorId};

/// A job at its controller.
#[derive(Clone, Debug)]
pub(super) struct Gang {
    job: JobId,
    block: Block,
    nodes: Bits,
    /// Number of its nodes.
    size: u32,
    /// Controllers whose blocks contain one of these nodes are disabled while it runs.
    disables: Bits,
}

impl Gang {
    /// With selective disabling it disables the controllers of its own nodes, otherwise of its
    /// block.
    pub(super) fn new(job: JobId, block: Block, nodes: &[ProcessorId], selective: bool) -> Self {
        let size = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let nodes = Bits::from_nodes(nodes);
        let mut disables = nodes.clone();
        if !selective {
            block.range().for_each(|node| disables.insert(ProcessorId(node)));
        }
        Self { job, block, nodes, size, disables }
    }

    pub(super) fn job(&self) -> JobId {
        self.job
    }

    /// The block of its controller.
    pub(super) fn block(&self) -> Block {
        self.block
    }

    /// Ascending.
    pub(super) fn nodes(&self) -> impl Iterator<Item = ProcessorId> + '_ {
        self.nodes.iter()
    }
}

/// Which gangs run in which slot.
#[derive(Debug)]
pub(super) struct Round<'a> {
    slots: Vec<Slot<'a>>,
    /// Gangs of each controller.
    gangs: BTreeMap<Block, Vec<&'a Gang>>,
    /// Blocks that have a gang or contain a block that has one.
    populated: BTreeSet<Block>,
    /// Slots of each job.
    turns: BTreeMap<JobId, u32>,
}

#[derive(Debug, Default)]
struct Slot<'a> {
    gangs: Vec<&'a Gang>,
    disabled: Bits,
}

impl<'a> Slot<'a> {
    fn enabled(&self, block: Block) -> bool {
        !self.disabled.any_of(block.range())
    }

    fn run(&mut self, gang: &'a Gang) {
        self.disabled.add_all(&gang.disables);
        self.gangs.push(gang);
    }
}

/// A gang that could fill a free block.
#[derive(Clone, Debug, Default)]
struct FillCandidate<'a> {
    /// Nodes kept busy.
    busy: u32,
    gangs: Vec<&'a Gang>,
}

impl<'a> FillCandidate<'a> {
    fn add(&mut self, other: Self) {
        self.busy += other.busy;
        self.gangs.extend(other.gangs);
    }
}

/// Choices made in one slot; those for different blocks are independent.
type FillCandidates<'a> = BTreeMap<Block, FillCandidate<'a>>;

impl<'a> Round<'a> {
    /// One slot for each gang, from the top level down.
    pub(super) fn of(gangs: impl Iterator<Item = &'a Gang>) -> Self {
        let mut by_block: BTreeMap<Block, Vec<&'a Gang>> = BTreeMap::new();
        gangs.for_each(|gang| by_block.entry(gang.block).or_default().push(gang));
        let mut slots: Vec<Slot<'a>> = Vec::new();
        // Blocks are in order of level.
        for (&block, gangs) in by_block.iter().rev() {
            for &gang in gangs {
                let free = slots.iter().position(|slot| slot.enabled(block));
                let index = free.unwrap_or(slots.len());
                if index == slots.len() {
                    slots.push(Slot::default());
                }
                slots[index].run(gang);
            }
        }
        let turns = slots.iter().flat_map(|slot| &slot.gangs).map(|gang| (gang.job, 1)).collect();
        Self { slots, gangs: by_block, populated: BTreeSet::new(), turns }
    }

    /// The number of slots in which this block cannot run a gang.
    pub(super) fn busy(&self, block: Block) -> usize {
        self.slots.iter().filter(|slot| !slot.enabled(block)).count()
    }

    /// Gives a block that is idle in a slot to the gangs that keep most of its nodes busy.
    pub(super) fn fill(&mut self, whole: Block) {
        let blocks = self.gangs.keys();
        let around = |&block: &Block| (block.level..=whole.level).map(move |to| block.parent(to));
        self.populated = blocks.flat_map(around).collect();
        for index in 0..self.slots.len() {
            for gang in self.additional(&self.slots[index], whole) {
                self.slots[index].run(gang);
                *self.turns.entry(gang.job).or_default() += 1;
            }
        }
    }

    /// Gangs that can also run in a slot.
    fn additional(&self, slot: &Slot<'a>, whole: Block) -> Vec<&'a Gang> {
        let mut found = Vec::new();
        let mut choices = BTreeMap::new();
        let mut open = Vec::from([whole]);
        while let Some(block) = open.pop() {
            if !self.populated.contains(&block) {
                continue;
            }
            if slot.enabled(block) {
                found.extend(self.best(block, &mut choices).gangs);
            } else {
                open.extend(block.halves().into_iter().flatten());
            }
        }
        found
    }

    /// The gangs that keep most of a block busy, if the whole block is free for them.
    fn best(&self, block: Block, choices: &mut FillCandidates<'a>) -> FillCandidate<'a> {
        if !self.populated.contains(&block) {
            return FillCandidate::default();
        }
        if let Some(known) = choices.get(&block) {
            return known.clone();
        }
        let mut below = FillCandidate::default();
        for half in block.halves().into_iter().flatten() {
            below.add(self.best(half, choices));
        }
        let own = self.own(block, choices);
        let best = if self.rank(&own) > self.rank(&below) { own } else { below };
        choices.insert(block, best.clone());
        best
    }

    /// The largest gang of the controller itself, and the gangs that can run beside it.
    fn own(&self, block: Block, choices: &mut FillCandidates<'a>) -> FillCandidate<'a> {
        let gangs = self.gangs.get(&block).into_iter().flatten();
        let rank = |gang: &&&Gang| (gang.size, Reverse(self.turns[&gang.job]), Reverse(gang.job));
        let Some(&gang) = gangs.max_by_key(rank) else { return FillCandidate::default() };
        let mut choice = FillCandidate { busy: gang.size, gangs: Vec::from([gang]) };
        let mut open: Vec<Block> = block.halves().into_iter().flatten().collect();
        while let Some(part) = open.pop() {
            if !gang.disables.any_of(part.range()) {
                choice.add(self.best(part, choices));
            } else if self.populated.contains(&part) {
                open.extend(part.halves().into_iter().flatten());
            }
        }
        choice
    }

    /// Prefers more busy nodes; among equals, jobs that have had fewer slots.
    fn rank(&self, choice: &FillCandidate) -> (u32, Reverse<u32>) {
        let turns = choice.gangs.iter().map(|gang| self.turns[&gang.job]);
        (choice.busy, Reverse(turns.min().unwrap_or(u32::MAX)))
    }

    /// The jobs of each slot.
    pub(super) fn into_jobs(self) -> Vec<Vec<JobId>> {
        let jobs = |slot: Slot| slot.gangs.into_iter().map(Gang::job).collect();
        self.slots.into_iter().map(jobs).collect()
    }
}
