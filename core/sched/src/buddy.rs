//! Binary buddy allocator: blocks of 2^level nodes, each beginning at a multiple of its length.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::batch::pool::Pool;
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
    Block(Block, u32),
    /// A job on nodes that another policy chose.
    Nodes(Vec<ProcessorId>),
}

impl Default for BuddyAllocator {
    fn default() -> Self {
        Self { levels: 0, blocks: vec![Node::default(); 2], allocations: BTreeMap::new() }
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

    /// The level of jobs that want `wanted` nodes; `None` if fewer are up.
    pub(crate) fn level_for(&self, wanted: u32) -> Option<u32> {
        if wanted > self.up(self.whole()) {
            return None;
        }
        let fits = |level: &u32| self.of_level(*level).any(|block| self.up(block) >= wanted);
        (level_of(wanted)..=self.levels).find(fits)
    }

    /// The first nodes of a block that are up.
    pub(crate) fn first_nodes(&self, block: Block, wanted: u32) -> Vec<ProcessorId> {
        let up = |&node: &u32| self.up(Block { level: 0, position: node }) > 0;
        block.range().filter(up).take(wanted as usize).map(ProcessorId).collect()
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

    /// The free block of this level, with enough nodes up, that lies in the smallest free block;
    /// the first of several.
    fn find(&self, level: u32, wanted: u32) -> Option<Block> {
        let able = self.blocks[1].free >> level << level;
        if able == 0 {
            return None;
        }
        let around = self.first_free(able.trailing_zeros());
        let first = Block { level, position: around.position << (around.level - level) };
        if self.up(first) >= wanted {
            return Some(first);
        }
        let fits = |block: &Block| self.up(*block) >= wanted;
        let free = |block: Block| self.free_around(block).map(|level| (level, block));
        self.of_level(level).filter(fits).filter_map(free).min().map(|(_, block)| block)
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
    fn add_node(&mut self, node: ProcessorId) -> bool {
        self.leaf(node, |leaf| leaf.up = 1);
        self.free_around(Block { level: 0, position: node.0 }).is_some()
    }

    fn remove_node(&mut self, node: ProcessorId) {
        self.leaf(node, |leaf| leaf.up = 0);
    }

    fn possible(&self, wanted: u32) -> bool {
        wanted <= self.up(self.whole())
    }

    fn take(&mut self, job: JobId, wanted: u32) -> Option<Vec<ProcessorId>> {
        let block = self.find(self.level_for(wanted)?, wanted)?;
        self.change(block, |node| node.own += 1);
        self.allocations.insert(job, Allocation::Block(block, wanted));
        Some(self.first_nodes(block, wanted))
    }

    fn claim(&mut self, job: JobId, nodes: &[ProcessorId]) {
        for &node in nodes {
            self.leaf(node, |leaf| leaf.own += 1);
        }
        self.allocations.insert(job, Allocation::Nodes(nodes.to_vec()));
    }

    fn release(&mut self, job: JobId, nodes: &[ProcessorId]) -> u32 {
        match self.allocations.remove(&job) {
            Some(Allocation::Block(block, _)) => self.change(block, |node| node.own -= 1),
            Some(Allocation::Nodes(nodes)) => {
                nodes.into_iter().for_each(|node| self.leaf(node, |leaf| leaf.own -= 1));
            }
            None => return 0,
        }
        let free = |node: &&ProcessorId| {
            let leaf = Block { level: 0, position: node.0 };
            self.up(leaf) > 0 && self.free_around(leaf).is_some()
        };
        nodes.iter().filter(free).count() as u32
    }

    fn filling(&self) -> u32 {
        let filling = |claim: &Allocation| match claim {
            Allocation::Block(block, wanted) => self.up(*block).saturating_sub(*wanted),
            Allocation::Nodes(_) => 0,
        };
        self.allocations.values().map(filling).sum()
    }
}
