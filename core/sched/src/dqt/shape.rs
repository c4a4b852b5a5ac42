//! Geometry of a queue tree: the left part of a complete tree of some arity, as wide as the
//! machine.
//!
//! Tree nodes are numbered breadth first from the root, as in the SCore-D paper (§7.1.2). So the
//! nodes of a height or more are the first ones.

use core::ops::Range;

/// More than the height of any tree whose nodes have 32-bit numbers.
const HEIGHTS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) arity: u32,
    /// Height of the root; leaves have 0.
    pub(super) height: u8,
    /// For each height, the number of its first tree node and the number after its last.
    levels: [(u32, u32); HEIGHTS],
}

impl Shape {
    /// A tree of that height with this many leaves, at most as many as it can have. A tree of arity
    /// 2 always has all of them: then parents and children are found without looking up the height.
    pub(super) fn of(arity: u32, height: u8, leaves: u32) -> Self {
        let mut shape = Self { arity, height, levels: [(0, 0); HEIGHTS] };
        let leaves = if arity == 2 { u32::MAX } else { leaves }.min(shape.size(height));
        let mut from = 0;
        for at in (0..=height).rev() {
            let to = from + leaves.div_ceil(shape.size(at));
            shape.levels[usize::from(at)] = (from, to);
            from = to;
        }
        shape
    }

    /// The lowest tree of at least `leaves` leaves, rounded up to a power of two. So a machine may
    /// grow node by node, and only some of the new nodes need a larger tree.
    pub(super) fn over(arity: u32, leaves: u32) -> Self {
        let mut height = 0;
        while arity.checked_pow(u32::from(height)).is_some_and(|size| size < leaves) {
            height += 1;
        }
        Self::of(arity, height, leaves.checked_next_power_of_two().unwrap_or(u32::MAX))
    }

    /// Leaves of a whole partition of that height.
    pub(super) fn size(&self, height: u8) -> u32 {
        self.arity.saturating_pow(u32::from(height))
    }

    /// All leaves.
    pub(super) fn width(&self) -> u32 {
        let (from, to) = self.levels[0];
        to - from
    }

    /// How many tree nodes have that height or more.
    pub(super) fn count_from(&self, height: u8) -> usize {
        self.levels[usize::from(height)].1 as usize
    }

    /// All tree nodes.
    pub(super) fn count(&self) -> usize {
        self.count_from(0)
    }

    pub(super) fn parent(&self, node: u32) -> Option<u32> {
        if node == 0 || self.arity == 2 {
            return node.checked_sub(1).map(|node| node / 2);
        }
        let height = usize::from(self.height_of(node));
        Some(self.levels[height + 1].0 + (node - self.levels[height].0) / self.arity)
    }

    /// A tree node's children; a leaf has none.
    pub(super) fn children(&self, node: u32) -> Range<u32> {
        if node >= self.levels[0].0 {
            return 0..0;
        }
        if self.arity == 2 {
            return 2 * node + 1..2 * node + 3;
        }
        let height = usize::from(self.height_of(node));
        let (from, to) = self.levels[height - 1];
        let first = from + (node - self.levels[height].0) * self.arity;
        first..to.min(first + self.arity)
    }

    pub(super) fn leaf(&self, number: u32) -> u32 {
        self.levels[0].0 + number
    }

    pub(super) fn height_of(&self, node: u32) -> u8 {
        if self.arity == 2 {
            return self.height - (node + 1).ilog2() as u8;
        }
        let lower = self.levels[..usize::from(self.height)].iter();
        lower.take_while(|(first, _)| *first > node).count() as u8
    }

    /// The leaves below a tree node, by number.
    pub(super) fn leaves(&self, node: u32) -> Range<u32> {
        let height = self.height_of(node);
        let (size, at) = (self.size(height), node - self.levels[usize::from(height)].0);
        at * size..(at + 1).saturating_mul(size).min(self.width())
    }

    /// The number in `larger` of the tree node that is `node` here; this tree is the left corner of
    /// `larger`.
    pub(super) fn renumber(&self, larger: &Self, node: u32) -> u32 {
        let height = usize::from(self.height_of(node));
        larger.levels[height].0 + node - self.levels[height].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn trees_are_as_wide_as_the_machine() {
        for (arity, leaves) in [(2, 1), (2, 5), (3, 10), (7, 300), (63, 64), (64, 300_000)] {
            let shape = Shape::over(arity, leaves);
            assert!(shape.width() >= leaves && shape.width() < 2 * leaves, "{arity} {leaves}");
            assert!(shape.count() < 4 * leaves as usize);
            assert_eq!(shape.leaves(0), 0..shape.width());
            for node in 1..shape.count() as u32 {
                let parent = shape.parent(node).unwrap();
                assert!(shape.children(parent).contains(&node));
                assert_eq!(shape.height_of(parent), shape.height_of(node) + 1);
            }
            for node in 0..shape.count() as u32 - shape.width() {
                let (below, leaves) = (shape.children(node), shape.leaves(node));
                assert_eq!(shape.leaves(below.start).start, leaves.start);
                assert_eq!(shape.leaves(below.end - 1).end, leaves.end);
            }
        }
    }
}
