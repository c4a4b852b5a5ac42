//! The tree's geometry: a complete tree of some arity over as many leaves as its height gives.
//!
//! Tree nodes are numbered breadth first from the root, as in the paper (§7.1.2), so that those of
//! a height or more are the first ones.

use core::ops::Range;

/// More than the heights of any tree whose nodes 32 bits can number.
const HEIGHTS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) arity: u32,
    /// Height of the root; leaves have 0.
    pub(super) height: u8,
    /// By height the number of the first tree node that has it.
    first: [u32; HEIGHTS],
}

impl Shape {
    /// The tree of that height.
    pub(super) fn of(arity: u32, height: u8) -> Self {
        let mut shape = Self { arity, height, first: [0; HEIGHTS] };
        let mut from = 0;
        for at in (0..=height).rev() {
            shape.first[usize::from(at)] = from;
            from += shape.size(height - at);
        }
        shape
    }

    /// The lowest tree of at least `leaves` leaves.
    pub(super) fn over(arity: u32, leaves: u32) -> Self {
        let mut height = 0;
        while arity.checked_pow(u32::from(height)).is_some_and(|size| size < leaves) {
            height += 1;
        }
        Self::of(arity, height)
    }

    /// Leaves of a partition of that height.
    pub(super) fn size(&self, height: u8) -> u32 {
        self.arity.pow(u32::from(height))
    }

    /// How many tree nodes have that height or more.
    pub(super) fn count_from(&self, height: u8) -> usize {
        let first = self.first[usize::from(height)];
        (first + self.size(self.height - height)) as usize
    }

    /// All tree nodes.
    pub(super) fn count(&self) -> usize {
        self.count_from(0)
    }

    pub(super) fn parent(&self, node: u32) -> Option<u32> {
        // A division by a number that is not known beforehand costs more than all the rest.
        let up = |node: u32| if self.arity == 2 { (node - 1) / 2 } else { (node - 1) / self.arity };
        (node > 0).then(|| up(node))
    }

    /// A tree node's children; a leaf has none.
    pub(super) fn children(&self, node: u32) -> Range<u32> {
        if node >= self.first[0] {
            return 0..0;
        }
        let first = node * self.arity + 1;
        first..first + self.arity
    }

    pub(super) fn leaf(&self, number: u32) -> u32 {
        self.first[0] + number
    }

    pub(super) fn height_of(&self, node: u32) -> u8 {
        let lower = self.first[..usize::from(self.height)].iter().take_while(|&&at| at > node);
        lower.count() as u8
    }

    /// The leaves below a tree node, by number.
    pub(super) fn leaves(&self, node: u32) -> Range<u32> {
        let height = self.height_of(node);
        let (size, at) = (self.size(height), node - self.first[usize::from(height)]);
        at * size..(at + 1) * size
    }

    /// The number in `taller` of the tree node that is `node` here: this tree is its left corner.
    pub(super) fn renumber(&self, taller: &Self, node: u32) -> u32 {
        let height = usize::from(self.height_of(node));
        taller.first[height] + node - self.first[height]
    }
}
