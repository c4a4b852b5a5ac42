//! What jobs need, and what nodes have.

use core::ops::Range;

use crate::ProcessorId;

/// Kinds of things that are counted beside processors. The caller says which kind is what: bytes of memory, or devices.
pub const KINDS: usize = 8;

/// So much of each kind. Placed jobs keep theirs until they leave, whether they have their turns or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amounts(pub [u64; KINDS]);

impl Amounts {
    /// Nothing of any kind.
    pub const NONE: Self = Self([0; KINDS]);

    /// How many times `part` is in this.
    pub(crate) fn parts(&self, part: &Self) -> u32 {
        let times = |(&have, &each): (&u64, &u64)| have.checked_div(each).unwrap_or(u64::MAX);
        let least = self.0.iter().zip(&part.0).map(times).min();
        u32::try_from(least.unwrap_or(u64::MAX)).unwrap_or(u32::MAX)
    }

    /// So many times this.
    #[must_use]
    pub fn times(&self, count: u32) -> Self {
        Self(self.0.map(|each| each.saturating_mul(count.into())))
    }

    /// Adds so much of each kind.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.saturating_sub(*theirs);
        }
    }
}

/// Processors of one part of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartSize {
    /// So many, at least 1.
    Processors(u32),
    /// All of a node that has at least so many.
    WholeNode {
        /// Fewest processors of the node.
        least: u32,
    },
}

/// What a job needs, all at once: equal parts, each on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// How many parts.
    pub parts: u32,
    /// Processors of each.
    pub size: PartSize,
    /// Whether no two parts may be on one node.
    pub spread: bool,
    /// What else each takes of its node.
    pub amounts: Amounts,
}

impl Demand {
    /// So many processors, wherever they are.
    pub fn processors(count: u32) -> Self {
        let size = PartSize::Processors(1);
        Self { parts: count, size, spread: false, amounts: Amounts::NONE }
    }

    /// Whether any processors will do.
    pub(crate) fn is_plain(&self) -> bool {
        self.size == PartSize::Processors(1) && !self.spread && self.amounts == Amounts::NONE
    }

    /// Processors of all parts, if nodes have so many.
    pub fn count(&self, node: u32) -> u32 {
        let each = match self.size {
            PartSize::Processors(each) => each.max(1),
            PartSize::WholeNode { least } => node.max(least).max(1),
        };
        self.parts.saturating_mul(each)
    }
}

/// A node as policies see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResources {
    /// The numbers of its processors: see [`crate::Numbering`].
    pub processors: Range<u32>,
    /// What else it has.
    pub amounts: Amounts,
}

impl NodeResources {
    /// A node with this one processor and nothing else.
    pub fn single(processor: ProcessorId) -> Self {
        Self { processors: processor.0..processor.0.saturating_add(1), amounts: Amounts::NONE }
    }

    /// Its first processor.
    pub fn first(&self) -> ProcessorId {
        ProcessorId(self.processors.start)
    }
}
