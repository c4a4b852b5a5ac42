//! View of a queue tree for people: jobs, partitions and their use.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Dqt, DqtState};
use crate::{JobId, ProcessorId};

/// A job in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DqtJob {
    /// The job.
    pub job: JobId,
    /// How many processors of the partition it uses.
    pub processors: u32,
    /// Turns it has in a round.
    pub turns: u16,
    /// Whether it takes turns now.
    pub active: bool,
}

/// A node of the tree, which is a partition, and its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DqtNode {
    /// Its number: the root is 0, then level by level from left to right.
    pub number: u32,
    /// Its parent's number.
    pub parent: Option<u32>,
    /// 0 for a leaf.
    pub height: u8,
    /// The first processor of its partition.
    pub first: ProcessorId,
    /// Processors of its partition, including numbers without one.
    pub size: u32,
    /// Processors of its partition that take jobs.
    pub up: u32,
    /// Its state; [`DqtState::Rounding`] means that the front is here.
    pub state: DqtState,
    /// Its queue: active jobs in the order of their turns, the next one first; then the others.
    pub queue: Vec<DqtJob>,
    /// Jobs in the queues from the root to this one: for a leaf its TQLB (SCore-D paper, §7.1.2).
    pub tqlb: u32,
    /// The largest TQLB of the leaves below.
    pub max_tqlb: u32,
    /// Slots of a round of this node and those below: the largest sum of turns on a path downwards.
    pub round: u64,
}

/// How much of their partitions the jobs use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// Processors that the placed jobs use, summed over the jobs.
    pub used: u64,
    /// Processors of their partitions that take jobs but that the jobs do not use, summed over the jobs.
    /// They are idle in these jobs' turns (internal fragmentation).
    pub unused: u64,
}

impl Dqt {
    /// The tree before the next slot, breadth first: nodes that take or have jobs, and nodes above
    /// these. Costs a walk through the whole tree.
    pub fn tree(&self) -> Vec<DqtNode> {
        let shape = &self.front.shape;
        let queues = self.queues();
        let rounds = self.rounds();
        let mut tqlb = alloc::vec![0; shape.count()];
        let mut tree = Vec::new();
        for (index, (load, queue)) in self.loads.nodes.iter().zip(queues).enumerate() {
            let number = index as u32;
            let parent = shape.parent(number);
            tqlb[index] = load.jobs + parent.map_or(0, |parent| tqlb[parent as usize]);
            if load.up == 0 && load.most == 0 {
                continue;
            }
            let (height, leaves) = (shape.height_of(number), shape.leaves(number));
            tree.push(DqtNode {
                number,
                parent,
                height,
                first: ProcessorId(leaves.start),
                size: shape.size(height),
                up: load.up,
                state: self.front.nodes[index].state,
                queue,
                tqlb: tqlb[index],
                max_tqlb: tqlb[index] - load.jobs + load.most,
                round: rounds[index],
            });
        }
        tree
    }

    /// Every tree node's queue.
    fn queues(&self) -> Vec<Vec<DqtJob>> {
        let rings = &self.front.rings;
        let show = |member: u32| {
            let (entry, held) = (&rings.members[member as usize], &self.held[member as usize]);
            let (job, processors) = (entry.id, held.count());
            DqtJob { job, processors, turns: entry.turns, active: entry.active() }
        };
        let active = |queue| rings.active(queue).into_iter().map(show);
        let mut queues: Vec<Vec<DqtJob>> =
            self.front.queues.iter().map(|queue| active(queue).collect()).collect();
        for &member in self.jobs.values() {
            let entry = &rings.members[member as usize];
            if !entry.active() {
                queues[entry.node as usize].push(show(member));
            }
        }
        queues
    }

    /// Every tree node's round, in slots.
    fn rounds(&self) -> Vec<u64> {
        let mut rounds = alloc::vec![0; self.front.queues.len()];
        for (index, queue) in self.front.queues.iter().enumerate().rev() {
            let below = self.front.shape.children(index as u32);
            let longest = below.map(|child| rounds[child as usize]).max().unwrap_or(0);
            rounds[index] = self.front.rings.round(queue) + longest;
        }
        rounds
    }

    /// The largest TQLB: placed jobs in the queues from the root to the busiest leaf. With one turn
    /// for each job it is the length of a round: every active job runs at least once in this many
    /// slots (SCore-D paper, §7.1.2). Takes constant time.
    pub fn max_tqlb(&self) -> u32 {
        self.loads.nodes[0].most
    }

    /// The smallest TQLB among nodes that take jobs. Takes constant time.
    pub fn min_tqlb(&self) -> u32 {
        self.loads.nodes[0].least
    }

    /// Rounds that the root has begun.
    pub fn rounds_begun(&self) -> u64 {
        self.front.rounds
    }

    /// Processors lost because jobs do not fill their partitions.
    pub fn fragmentation(&self) -> Fragmentation {
        let mut sum = Fragmentation::default();
        for &member in self.jobs.values() {
            let used = u64::from(self.held[member as usize].count());
            let node = self.front.rings.members[member as usize].node;
            let up = u64::from(self.loads.nodes[node as usize].up);
            sum.used += used;
            sum.unused += up.saturating_sub(used);
        }
        sum
    }
}
