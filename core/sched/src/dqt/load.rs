//! Load values of a queue tree. The task allocation policies use them to choose a partition
//! (SCore-D paper, §7.1.3).
//!
//! The values count placed jobs, including those that are starting or suspended. A change travels
//! upwards only, from its node to the root.

use alloc::vec::Vec;
use core::cmp::Ordering;

use super::config::AllocationPolicy;
use super::room::Room;
use super::shape::Shape;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Jobs in this node's queue (the paper's L).
    pub(super) jobs: u32,
    /// Leaves below that take jobs.
    pub(super) up: u32,
    /// The longest and the shortest sum of queue lengths from here down to a leaf (M, N); the
    /// shortest only over leaves that take jobs.
    pub(super) most: u32,
    pub(super) least: u32,
    /// Queue lengths times leaves that take jobs, here and below (A).
    pub(super) amount: u64,
}

/// Values by height, for each tree node of that height or more.
type Levels = Vec<Vec<u32>>;

#[derive(Clone, Debug)]
pub(super) struct Loads {
    shape: Shape,
    pub(super) nodes: Vec<Load>,
    /// The shortest queue at a height below a node, among partitions with a leaf that takes jobs
    /// (`u32::MAX` if there is none).
    shortest: Levels,
    /// The most leaves that take jobs in any partition of a height below a node.
    widest: Levels,
}

impl Loads {
    pub(super) fn new(shape: Shape) -> Self {
        let levels = |value: u32| -> Levels {
            (0..=shape.height).map(|height| alloc::vec![value; shape.count_from(height)]).collect()
        };
        let nodes = alloc::vec![Load::default(); shape.count()];
        Self { shape, nodes, shortest: levels(u32::MAX), widest: levels(0) }
    }

    /// The tree gets taller or wider.
    pub(super) fn grow(&mut self, larger: Shape) {
        let (old, shape) = (core::mem::replace(self, Self::new(larger)), larger);
        for (index, load) in old.nodes.iter().enumerate() {
            let to = old.shape.renumber(&shape, index as u32) as usize;
            self.nodes[to] = *load;
        }
        for leaf in 0..old.shape.width() {
            self.info(self.shape.leaf(leaf));
        }
    }

    /// Sets the number of jobs in the queue of `node`.
    pub(super) fn set_jobs(&mut self, node: u32, jobs: u32) {
        self.nodes[node as usize].jobs = jobs;
        let lowest = usize::from(self.shape.height_of(node));
        if self.nodes[node as usize].up > 0 {
            self.shortest[lowest][node as usize] = jobs;
        }
        self.recount(node);
        let mut at = node;
        while let Some(up) = self.shape.parent(at) {
            at = up;
            self.recount(at);
            // Of the queues below, only that of this height has changed.
            let children = self.shape.children(at);
            let shortest = &mut self.shortest[lowest];
            let least = shortest[children.start as usize..children.end as usize].iter().min();
            shortest[at as usize] = least.copied().unwrap_or(u32::MAX);
        }
    }

    /// Sets whether the leaf takes jobs. Returns whether that is new.
    pub(super) fn set_up(&mut self, leaf: u32, up: bool) -> bool {
        let load = &mut self.nodes[leaf as usize];
        let new = load.up != u32::from(up);
        load.up = u32::from(up);
        if new {
            self.info(leaf);
        }
        new
    }

    /// Message info, sent when a leaf begins or stops taking jobs: all values from `node` up to the
    /// root may change.
    fn info(&mut self, node: u32) {
        let lowest = usize::from(self.shape.height_of(node));
        let (mut at, mut height) = (Some(node), lowest);
        while let Some(node) = at {
            self.update(node, height, lowest);
            at = self.shape.parent(node);
            height += 1;
        }
    }

    /// Computes one node's values from its own and its children's; by height only from `lowest` on.
    fn update(&mut self, node: u32, height: usize, lowest: usize) {
        let index = node as usize;
        let children = self.shape.children(node);
        let range = children.start as usize..children.end as usize;
        if height > 0 {
            self.nodes[index].up = self.nodes[range.clone()].iter().map(|child| child.up).sum();
        }
        self.recount(node);
        let Load { up, jobs, .. } = self.nodes[index];
        self.widest[height][index] = up;
        self.shortest[height][index] = if up > 0 { jobs } else { u32::MAX };
        for (shortest, widest) in
            self.shortest[..height].iter_mut().zip(&mut self.widest).skip(lowest)
        {
            shortest[index] = shortest[range.clone()].iter().copied().min().unwrap_or(u32::MAX);
            widest[index] = widest[range.clone()].iter().copied().max().unwrap_or(0);
        }
    }

    /// Computes the sums of one node from its own values and its children's.
    fn recount(&mut self, node: u32) {
        let mut load = self.nodes[node as usize];
        (load.most, load.least, load.amount) = (0, u32::MAX, 0);
        for child in self.shape.children(node) {
            let below = &self.nodes[child as usize];
            load.most = load.most.max(below.most);
            load.amount += below.amount;
            if below.up > 0 {
                load.least = load.least.min(below.least);
            }
        }
        load.most += load.jobs;
        load.least = if load.least == u32::MAX { 0 } else { load.least } + load.jobs;
        load.amount += u64::from(load.jobs) * u64::from(load.up);
        self.nodes[node as usize] = load;
    }

    /// The height of the smallest partition in which this many leaves take jobs.
    pub(super) fn height_for(&self, wanted: u32) -> Option<u8> {
        (0..=self.shape.height).find(|&height| self.widest[usize::from(height)][0] >= wanted)
    }

    /// The partition that gets a job (path of the message add_task). It has that height and room for the job,
    /// and no leaf would have more than `limit` jobs.
    pub(super) fn choose(
        &self,
        allocation: AllocationPolicy,
        height: u8,
        room: &Room,
        limit: u32,
    ) -> Option<u32> {
        self.descend(0, self.shape.height, 0, &Goal { allocation, height, room, limit })
    }

    fn descend(&self, node: u32, height: u8, above: u32, goal: &Goal<'_>) -> Option<u32> {
        let load = &self.nodes[node as usize];
        if height == goal.height {
            let fits =
                goal.room.fits(node, load.up) && above.saturating_add(load.most) < goal.limit;
            return fits.then_some(node);
        }
        let above = above.saturating_add(load.jobs);
        let mut tried = None;
        loop {
            let child = self.best_after(tried, node, above, goal)?;
            let found = self.descend(child, height - 1, above, goal);
            if found.is_some() {
                return found;
            }
            tried = Some(child);
        }
    }

    /// The best child after `tried`, in the policy's order, that may have room for the job.
    fn best_after(
        &self,
        tried: Option<u32>,
        node: u32,
        above: u32,
        goal: &Goal<'_>,
    ) -> Option<u32> {
        let widest = &self.widest[usize::from(goal.height)];
        let fits = |&child: &u32| {
            let least = self.nodes[child as usize].least;
            let later = tried.is_none_or(|tried| self.compare(goal, tried, child).is_lt());
            later
                && goal.room.may_fit(child, widest[child as usize])
                && above.saturating_add(least) < goal.limit
        };
        let children = self.shape.children(node).filter(fits);
        children.reduce(
            |best, child| {
                if self.compare(goal, child, best).is_lt() { child } else { best }
            },
        )
    }

    /// The order of two children; never equal, because the left one comes first.
    fn compare(&self, goal: &Goal, one: u32, two: u32) -> Ordering {
        let [a, b] = [one, two].map(|node| &self.nodes[node as usize]);
        let shortest = |node: u32| self.shortest[usize::from(goal.height)][node as usize];
        let amounts = || {
            let per_leaf = |load: &Load, other: &Load| load.amount * u64::from(other.up);
            per_leaf(a, b).cmp(&per_leaf(b, a))
        };
        let order = match goal.allocation {
            AllocationPolicy::Max => a.most.cmp(&b.most),
            AllocationPolicy::Min => a.least.cmp(&b.least),
            AllocationPolicy::Apa => amounts(),
            AllocationPolicy::Ff => shortest(one).cmp(&shortest(two)),
            AllocationPolicy::FfApa => shortest(one).cmp(&shortest(two)).then_with(amounts),
        };
        order.then(one.cmp(&two))
    }

    /// Queue lengths from `node`, exclusive, up to the root.
    pub(super) fn above(&self, node: u32) -> u32 {
        let (mut sum, mut at) = (0, self.shape.parent(node));
        while let Some(node) = at {
            sum += self.nodes[node as usize].jobs;
            at = self.shape.parent(node);
        }
        sum
    }

    /// The partition of that height, with enough leaves that take jobs, whose busiest leaf has the
    /// fewest jobs; `None` if that leaf has `limit` jobs or more.
    pub(super) fn least_busy(&self, height: u8, wanted: u32, limit: u32) -> Option<u32> {
        let mut best = None;
        let room = &Room::Processors(wanted);
        let mut goal = Goal { allocation: AllocationPolicy::Min, height, room, limit };
        while let Some(found) = self.descend(0, self.shape.height, 0, &goal) {
            goal.limit = self.above(found) + self.nodes[found as usize].most;
            best = Some(found);
        }
        best
    }
}

struct Goal<'a> {
    allocation: AllocationPolicy,
    height: u8,
    room: &'a Room,
    limit: u32,
}
