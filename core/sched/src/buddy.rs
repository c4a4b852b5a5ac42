//! Binary buddy allocator: blocks of 2^level processors, each beginning at a multiple of its length.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::batch::pool::Pool;
use crate::demand::{Demand, NodeResources};
use crate::inventory::{AmountBasis, Inventory};
use crate::policy::ResourceFit;
use crate::{JobId, ProcessorId};

/// A block: nodes `position << level` and up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Block {
    pub(crate) level: u32,
    pub(crate) position: u32,
}

impl Block {
    /// The numbers of its nodes.
    pub(crate) fn range(self) -> core::ops::Range<u32> {
        let first = self.position << self.level;
        first..first + (1 << self.level)
    }

    /// The smallest block with both nodes.
    pub(crate) fn around(first: ProcessorId, last: ProcessorId) -> Self {
        let level = u32::BITS - (first.0 ^ last.0).leading_zeros();
        Self { level, position: first.0 >> level }
    }

    /// The block of a level above, or itself, that contains it.
    pub(crate) fn parent(self, level: u32) -> Self {
        Self { level, position: self.position >> (level - self.level) }
    }

    /// Left and right; nothing if it is a single node.
    pub(crate) fn halves(self) -> Option<[Self; 2]> {
        let level = self.level.checked_sub(1)?;
        let position = self.position * 2;
        Some([Self { level, position }, Self { level, position: position + 1 }])
    }
}

/// The least level whose blocks have room for so many nodes.
pub(crate) fn level_of(nodes: u32) -> u32 {
    u32::BITS - (nodes.max(1) - 1).leading_zeros()
}

/// All blocks of a machine. It grows to the next power of two when a node beyond its end joins.
///
/// The number of nodes need not be a power of two, and some may be down: a block counts by its
/// nodes that are up. A job's level is the least at which some block, free or not, has enough
/// nodes. On a whole machine that is the size rounded up to a power of two.
#[derive(Debug)]
pub(crate) struct BuddyAllocator {
    /// The level of the block that is the whole machine.
    levels: u32,
    /// A heap: block (level, position) at (1 << (levels - level)) + position.
    blocks: Vec<Node>,
    inventory: Inventory,
    allocations: BTreeMap<JobId, Allocation>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Nodes that are up.
    up: u32,
    /// Jobs that have exactly this block.
    own: u32,
    /// Jobs that have this block or one inside it.
    within: u32,
    /// Levels of the largest free blocks inside, one bit each.
    free: u64,
}

#[derive(Debug)]
enum Allocation {
    /// With how many of its processors the job has.
    Block(Block, u32),
    /// A job on processors that another policy chose.
    Processors(Vec<ProcessorId>),
}

impl Default for BuddyAllocator {
    fn default() -> Self {
        Self {
            levels: 0,
            blocks: vec![Node::default(); 2],
            inventory: Inventory::default(),
            allocations: BTreeMap::new(),
        }
    }
}

impl BuddyAllocator {
    /// The block that is the whole machine.
    pub(crate) fn whole(&self) -> Block {
        Block { level: self.levels, position: 0 }
    }

    /// Blocks of this level, ascending.
    pub(crate) fn of_level(&self, level: u32) -> impl Iterator<Item = Block> + use<> {
        let count = self.levels.checked_sub(level).map_or(0, |depth| 1 << depth);
        (0..count).map(move |position| Block { level, position })
    }

    fn index(&self, block: Block) -> usize {
        (1 << (self.levels - block.level)) + block.position as usize
    }

    /// How many nodes of a block are up.
    pub(crate) fn up(&self, block: Block) -> u32 {
        self.blocks[self.index(block)].up
    }

    /// Whether a processor takes jobs.
    pub(crate) fn is_up(&self, processor: ProcessorId) -> bool {
        let leaf = Block { level: 0, position: processor.0 };
        self.blocks.get(self.index(leaf)).is_some_and(|node| node.up > 0)
    }

    /// The level of such jobs; `None` if the nodes that are up have too little.
    pub(crate) fn level_for(&self, demand: &Demand) -> Option<u32> {
        if !self.possible(demand) {
            return None;
        }
        let fits = |level: &u32| self.of_level(*level).any(|block| self.is_able(block, demand));
        (level_of(demand.count(1))..=self.levels).find(fits)
    }

    /// Whether a block has enough for such a job, if there is no other.
    pub(crate) fn is_able(&self, block: Block, demand: &Demand) -> bool {
        if demand.is_plain() {
            return self.up(block) >= demand.parts;
        }
        self.inventory.parts(demand, block.range(), AmountBasis::Total) >= demand.parts
    }

    /// The first processors of a block that such a job may have.
    pub(crate) fn first_of(&self, block: Block, demand: &Demand) -> Option<Vec<ProcessorId>> {
        let up = |number| self.is_up(ProcessorId(number));
        if demand.is_plain() {
            let wanted = demand.parts as usize;
            let numbers = block.range().filter(|&number| up(number)).take(wanted);
            let processors: Vec<ProcessorId> = numbers.map(ProcessorId).collect();
            return (processors.len() == wanted).then_some(processors);
        }
        self.inventory.choose(demand, block.range(), |processor| up(processor.0), |_| 0)
    }

    /// The job takes from their nodes what it needs beside these processors.
    pub(crate) fn take_amounts(&mut self, job: JobId, demand: &Demand, on: &[ProcessorId]) {
        self.inventory.take(job, demand, on);
    }

    /// The job has left.
    pub(crate) fn give_back_amounts(&mut self, job: JobId) {
        self.inventory.give_back(job);
    }

    /// Updates a block from its two halves.
    fn sum(&mut self, index: usize, level: u32) {
        let (left, right) = if level == 0 {
            (Node::default(), Node::default())
        } else {
            (self.blocks[2 * index], self.blocks[2 * index + 1])
        };
        let node = &mut self.blocks[index];
        if level > 0 {
            node.up = left.up + right.up;
        }
        node.within = node.own + left.within + right.within;
        node.free = match node {
            Node { own: 1.., .. } | Node { up: 0, .. } => 0,
            Node { within: 0, .. } => 1 << level,
            _ => left.free | right.free,
        };
    }

    /// Changes a block and updates the blocks around it.
    fn change(&mut self, block: Block, change: impl Fn(&mut Node)) {
        let mut index = self.index(block);
        change(&mut self.blocks[index]);
        for level in block.level..=self.levels {
            self.sum(index, level);
            index /= 2;
        }
    }

    /// Grows the machine until it includes this node; the node is not up yet.
    pub(crate) fn reach(&mut self, node: ProcessorId) {
        while u64::from(node.0) >= 1 << self.levels {
            self.grow();
        }
    }

    fn leaf(&mut self, node: ProcessorId, change: impl Fn(&mut Node)) {
        self.reach(node);
        self.change(Block { level: 0, position: node.0 }, change);
    }

    /// Doubles the machine: it becomes the left half.
    fn grow(&mut self) {
        let mut blocks = vec![Node::default(); self.blocks.len() * 2];
        for depth in 0..=self.levels {
            let first = 1 << depth;
            blocks[2 * first..3 * first].copy_from_slice(&self.blocks[first..2 * first]);
        }
        self.blocks = blocks;
        self.levels += 1;
        self.sum(1, self.levels);
    }

    /// The free block of this level, with enough for such a job, that lies in the smallest free block;
    /// the first of several.
    fn find(&self, level: u32, demand: &Demand) -> Option<Block> {
        let able = self.blocks[1].free >> level << level;
        if able == 0 {
            return None;
        }
        let around = self.first_free(able.trailing_zeros());
        let first = Block { level, position: around.position << (around.level - level) };
        let fits = |block: &Block| self.has_now(*block, demand);
        if fits(&first) {
            return Some(first);
        }
        let free = |block: Block| self.free_around(block).map(|level| (level, block));
        self.of_level(level).filter(fits).filter_map(free).min().map(|(_, block)| block)
    }

    /// Whether a block has enough for such a job beside what other jobs have taken of its nodes.
    fn has_now(&self, block: Block, demand: &Demand) -> bool {
        if demand.is_plain() {
            return self.up(block) >= demand.parts;
        }
        self.inventory.parts(demand, block.range(), AmountBasis::Free) >= demand.parts
    }

    /// The first free block of this level inside the largest free block.
    fn first_free(&self, level: u32) -> Block {
        let mut block = self.whole();
        while block.level > level {
            let left = Block { level: block.level - 1, position: block.position * 2 };
            let right = Block { position: left.position + 1, ..left };
            let there = self.blocks[self.index(left)].free >> level & 1 == 1;
            block = if there { left } else { right };
        }
        block
    }

    /// The level of the largest free block around this one, if this one is free.
    fn free_around(&self, block: Block) -> Option<u32> {
        let mut index = self.index(block);
        if self.blocks[index].within > 0 {
            return None;
        }
        let mut around = block.level;
        for level in block.level + 1..=self.levels {
            index /= 2;
            if self.blocks[index].own > 0 {
                return None;
            }
            if self.blocks[index].within == 0 {
                around = level;
            }
        }
        Some(around)
    }
}

impl Pool for BuddyAllocator {
    fn add_node(&mut self, node: &NodeResources) -> Option<u32> {
        self.inventory.add(node);
        let numbers = || node.processors.clone();
        numbers().for_each(|number| self.leaf(ProcessorId(number), |leaf| leaf.up = 1));
        let free = |position| self.free_around(Block { level: 0, position }).is_some();
        numbers().all(free).then(|| node.processors.end - node.processors.start)
    }

    fn remove_node(&mut self, first: ProcessorId) {
        for number in self.inventory.remove(first) {
            self.leaf(ProcessorId(number), |leaf| leaf.up = 0);
        }
    }

    fn count(&self, demand: &Demand) -> u32 {
        self.inventory.count(demand)
    }

    fn possible(&self, demand: &Demand) -> bool {
        if demand.is_plain() {
            return demand.parts <= self.up(self.whole());
        }
        self.inventory.possible(demand)
    }

    fn fit(&self, demand: &Demand) -> ResourceFit {
        self.inventory.fit(demand, self.possible(demand))
    }

    fn fits(&self, demand: &Demand) -> bool {
        self.level_for(demand).and_then(|level| self.find(level, demand)).is_some()
    }

    fn take(&mut self, job: JobId, demand: &Demand) -> Option<Vec<ProcessorId>> {
        let block = self.find(self.level_for(demand)?, demand)?;
        let processors = self.first_of(block, demand)?;
        self.inventory.take(job, demand, &processors);
        self.change(block, |node| node.own += 1);
        let taken = u32::try_from(processors.len()).unwrap_or(u32::MAX);
        self.allocations.insert(job, Allocation::Block(block, taken));
        Some(processors)
    }

    fn claim(&mut self, job: JobId, demand: &Demand, processors: &[ProcessorId]) {
        for &processor in processors {
            self.leaf(processor, |leaf| leaf.own += 1);
        }
        self.inventory.take(job, demand, processors);
        self.allocations.insert(job, Allocation::Processors(processors.to_vec()));
    }

    fn release(&mut self, job: JobId, processors: &[ProcessorId]) -> u32 {
        self.inventory.give_back(job);
        match self.allocations.remove(&job) {
            Some(Allocation::Block(block, _)) => self.change(block, |node| node.own -= 1),
            Some(Allocation::Processors(list)) => {
                list.into_iter().for_each(|one| self.leaf(one, |leaf| leaf.own -= 1));
            }
            None => return 0,
        }
        let free = |processor: &&ProcessorId| {
            let leaf = Block { level: 0, position: processor.0 };
            self.up(leaf) > 0 && self.free_around(leaf).is_some()
        };
        processors.iter().filter(free).count() as u32
    }

    fn filling(&self) -> u32 {
        let filling = |claim: &Allocation| match claim {
            Allocation::Block(block, taken) => self.up(*block).saturating_sub(*taken),
            Allocation::Processors(_) => 0,
        };
        self.allocations.values().map(filling).sum()
    }
}
