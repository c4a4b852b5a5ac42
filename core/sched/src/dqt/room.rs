//! Room for a job in the partitions of a queue tree.

use alloc::vec::Vec;

use super::shape::Shape;
use crate::demand::{Demand, PartSize};
use crate::inventory::{AmountBasis, Inventory};

/// What a partition must have for a job.
pub(super) enum Room {
    /// So many processors.
    Processors(u32),
    /// So many parts of the job's demand.
    Parts(PartsRoom),
}

/// Parts of a job that fit into each partition of one height.
pub(super) struct PartsRoom {
    wanted: u32,
    /// For each tree node of that height, the parts that fit into it; for each above, the most in any of that height below.
    most: Vec<u32>,
}

impl Room {
    /// What fits now into partitions of this height.
    pub(super) fn of(shape: &Shape, inventory: &Inventory, demand: &Demand, height: u8) -> Self {
        let most = parts(shape, inventory, demand, height, AmountBasis::Free);
        Self::Parts(PartsRoom { wanted: demand.parts, most })
    }

    /// Whether the job fits into this partition, which has the height and so many processors.
    pub(super) fn fits(&self, partition: u32, up: u32) -> bool {
        self.may_fit(partition, up)
    }

    /// Whether it fits into a partition of the height below this tree node, the widest of which has so many processors.
    pub(super) fn may_fit(&self, node: u32, widest: u32) -> bool {
        match self {
            Self::Processors(wanted) => widest >= *wanted,
            Self::Parts(room) => room.most[node as usize] >= room.wanted,
        }
    }
}

/// The least height of partitions into which the job fits, if there is no other job.
pub(super) fn height_for(shape: &Shape, inventory: &Inventory, demand: &Demand) -> Option<u8> {
    let least = match demand.size {
        PartSize::Processors(_) => demand.count(1),
        PartSize::WholeNode { least } => demand.parts.saturating_mul(least.max(1)),
    };
    let large = |height: &u8| shape.size(*height) >= least;
    let fits = |height: &u8| {
        let most = parts(shape, inventory, demand, *height, AmountBasis::Total);
        most.first().is_some_and(|&most| most >= demand.parts)
    };
    (0..=shape.height).filter(large).find(fits)
}

/// For each tree node of the height, the parts of a job that fit into it; for each above, the most in any below.
fn parts(
    shape: &Shape,
    inventory: &Inventory,
    demand: &Demand,
    height: u8,
    counting: AmountBasis,
) -> Vec<u32> {
    let above = if height == shape.height { 0 } else { shape.count_from(height + 1) };
    let mut most = alloc::vec![0; shape.count_from(height)];
    for node in (above..most.len()).rev() {
        most[node] = inventory.parts(demand, shape.leaves(node as u32), counting);
    }
    for node in (0..above).rev() {
        let children = shape.children(node as u32);
        let below = &most[children.start as usize..children.end as usize];
        most[node] = below.iter().copied().max().unwrap_or(0);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::{Amounts, NodeResources};

    #[test]
    fn the_smallest_partition_that_has_the_parts() {
        let mut inventory = Inventory::default();
        for node in 0..4 {
            let amounts = Amounts([if node == 3 { 9 } else { 4 }, 0, 0, 0, 0, 0, 0, 0]);
            inventory.add(&NodeResources { processors: 4 * node..4 * node + 4, amounts });
        }
        let shape = Shape::over(2, 16);
        let height = |parts, size, spread, amount| {
            let amounts = Amounts([amount, 0, 0, 0, 0, 0, 0, 0]);
            height_for(&shape, &inventory, &Demand { parts, size, spread, amounts })
        };
        use PartSize::{Processors, WholeNode};
        assert_eq!(height(2, Processors(2), false, 0), Some(2));
        assert_eq!(height(2, Processors(3), false, 0), Some(3), "one of each node");
        assert_eq!(height(2, Processors(1), true, 0), Some(3));
        assert_eq!(height(3, WholeNode { least: 1 }, false, 0), Some(4));
        assert_eq!(height(2, Processors(1), false, 3), Some(1), "the last node has so much twice");
        assert_eq!(height(4, Processors(1), false, 3), Some(3));
        assert_eq!(height(6, Processors(1), false, 3), Some(4));
        assert_eq!(height(7, Processors(1), false, 3), None);
    }
}
