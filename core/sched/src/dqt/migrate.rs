//! Migration of jobs in a queue tree, to even out the load.

use alloc::vec::Vec;

use super::Dqt;
use crate::Placement;

impl Dqt {
    /// Moves an active job away from the busiest leaf, into a partition whose leaves all have fewer
    /// jobs than that afterwards. It tries small partitions first, as they cost least to move.
    /// Within a queue it takes the job whose turn is furthest away.
    ///
    /// Only jobs move that take any processors and nothing else.
    ///
    /// Each move lowers the max-TQLB, or the number of leaves that have it. So moves come to an
    /// end, and no job goes back and forth.
    pub(super) fn even_out(&mut self) -> Option<Placement> {
        if self.max_tqlb() == self.min_tqlb() {
            return None;
        }
        for node in self.busiest_way().into_iter().rev() {
            let members = self.front.rings.active(&self.front.queues[node as usize]);
            let moved = members.into_iter().rev().find_map(|member| self.try_to_move(member, node));
            if moved.is_some() {
                return moved;
            }
        }
        None
    }

    /// The tree nodes from the root to the busiest leaf.
    fn busiest_way(&self) -> Vec<u32> {
        let most = |&node: &u32| self.loads.nodes[node as usize].most;
        let below = |&node: &u32| {
            let best = |best, child| if most(&child) > most(&best) { child } else { best };
            self.front.shape.children(node).reduce(best)
        };
        core::iter::successors(Some(0), below).collect()
    }

    fn try_to_move(&mut self, member: u32, from: u32) -> Option<Placement> {
        if self.bound.contains(&self.front.rings.members[member as usize].id) {
            return None;
        }
        let wanted = self.held[member as usize].count();
        let height = self.loads.height_for(wanted)?;
        let limit = (self.max_tqlb() - 1).min(self.config.max_jobs_per_processor.max(1));
        let jobs = self.loads.nodes[from as usize].jobs;
        self.loads.set_jobs(from, jobs - 1);
        let Some(to) = self.loads.least_busy(height, wanted, limit) else {
            self.loads.set_jobs(from, jobs);
            return None;
        };
        self.loads.set_jobs(to, self.loads.nodes[to as usize].jobs + 1);
        self.front.migrate(member, to);
        self.stuck = false;
        let nodes = self.first_in(to, wanted);
        let placement = Placement {
            job: self.front.rings.members[member as usize].id,
            processors: nodes.iter().collect(),
        };
        self.held[member as usize] = nodes;
        Some(placement)
    }
}
