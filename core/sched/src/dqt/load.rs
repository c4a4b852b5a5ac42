//! What the tree's nodes know of the load below them: the values of the task allocation policies
//! (paper 0, §7.1.3).
//!
//! Counted are the jobs that are placed, also those that are being prepared or suspended. A change
//! travels upwards only, from the node where it is to the root.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

use super::config::Tap;
use super::shape::Shape;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Jobs in this node's queue (the paper's L).
    pub(super) jobs: u32,
    /// Leaves below that take jobs.
    pub(super) up: u32,
    /// The longest and the shortest sum of queue lengths from here down to a leaf (M, N); the
    /// shortest among leaves that take jobs.
    pub(super) most: u32,
    pub(super) least: u32,
    /// Queue lengths times leaves that take jobs, here and below (A).
    pub(super) amount: u64,
}

/// What has changed at a tree node.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// The length of its queue.
    Jobs,
    /// Which leaves take jobs.
    Leaves,
}

/// By height a value for each tree node of that height or more.
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

    /// The tree gets taller.
    pub(super) fn grow(&mut self, taller: Shape) {
        let (old, shape) = (core::mem::replace(self, Self::new(taller)), taller);
        for (index, load) in old.nodes.iter().enumerate() {
            let to = old.shape.renumber(&shape, index as u32) as usize;
            self.nodes[to] = *load;
        }
        for leaf in 0..old.shape.size(old.shape.height) {
            self.info(self.shape.leaf(leaf), Change::Leaves);
        }
    }

    /// So many jobs are in the queue of `node`.
    pub(super) fn set_jobs(&mut self, node: u32, jobs: u32) {
        self.nodes[node as usize].jobs = jobs;
        self.info(node, Change::Jobs);
    }

    /// The leaf takes jobs, or no longer. Returns whether that is new.
    pub(super) fn set_up(&mut self, leaf: u32, up: bool) -> bool {
        let load = &mut self.nodes[leaf as usize];
        let new = load.up != u32::from(up);
        load.up = u32::from(up);
        if new {
            self.info(leaf, Change::Leaves);
        }
        new
    }

    /// The message info: values change from `node` up to the root. A change of a queue concerns above it only what is
    /// known of queues of its height, so it costs the height of the tree.
    fn info(&mut self, node: u32, change: Change) {
        let lowest = usize::from(self.shape.height_of(node));
        let heights = match change {
            Change::Jobs => lowest..lowest + 1,
            Change::Leaves => lowest..usize::from(self.shape.height),
        };
        let (mut at, mut height) = (Some(node), lowest);
        while let Some(node) = at {
            self.update(node, height, &heights);
            at = self.shape.parent(node);
            height += 1;
        }
    }

    /// One node's values from its own and its children's, by height only those of these `heights`.
    fn update(&mut self, node: u32, height: usize, heights: &Range<usize>) {
        let index = node as usize;
        let mut load = self.nodes[index];
        if height > 0 {
            load.up = 0;
        }
        (load.most, load.least, load.amount) = (0, u32::MAX, 0);
        for child in self.shape.children(node) {
            let below = &self.nodes[child as usize];
            load.up += below.up;
            load.most = load.most.max(below.most);
            load.amount += below.amount;
            if below.up > 0 {
                load.least = load.least.min(below.least);
            }
        }
        load.most += load.jobs;
        load.least = if load.least == u32::MAX { 0 } else { load.least } + load.jobs;
        load.amount += u64::from(load.jobs) * u64::from(load.up);
        self.nodes[index] = load;
        self.widest[height][index] = load.up;
        self.shortest[height][index] = if load.up > 0 { load.jobs } else { u32::MAX };
        let below = heights.start.min(height)..heights.end.min(height);
        let widest = &mut self.widest[below.clone()];
        for (shortest, widest) in self.shortest[below].iter_mut().zip(widest) {
            let children = self.shape.children(node);
            let range = children.start as usize..children.end as usize;
            shortest[index] = shortest[range.clone()].iter().copied().min().unwrap_or(u32::MAX);
            widest[index] = widest[range].iter().copied().max().unwrap_or(0);
        }
    }

    /// The height of the smallest partition in which so many leaves take jobs.
    pub(super) fn height_for(&self, wanted: u32) -> Option<u8> {
        (0..=self.shape.height).find(|&height| self.widest[usize::from(height)][0] >= wanted)
    }

    /// The partition that gets a job (the way of the message add_task): of that height, with so
    /// many leaves that take jobs, and with no leaf that would have more than `limit` jobs.
    pub(super) fn choose(&self, tap: Tap, height: u8, wanted: u32, limit: u32) -> Option<u32> {
        self.descend(0, self.shape.height, 0, &Goal { tap, height, wanted, limit })
    }

    fn descend(&self, node: u32, height: u8, above: u32, goal: &Goal) -> Option<u32> {
        let load = &self.nodes[node as usize];
        if height == goal.height {
            let fits = load.up >= goal.wanted && above.saturating_add(load.most) < goal.limit;
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

    /// The best child after `tried`, in the policy's order, in which the job may fit.
    fn best_after(&self, tried: Option<u32>, node: u32, above: u32, goal: &Goal) -> Option<u32> {
        let widest = &self.widest[usize::from(goal.height)];
        let fits = |&child: &u32| {
            let least = self.nodes[child as usize].least;
            let later = tried.is_none_or(|tried| self.compare(goal, tried, child).is_lt());
            later
                && widest[child as usize] >= goal.wanted
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
        let order = match goal.tap {
            Tap::Max => a.most.cmp(&b.most),
            Tap::Min => a.least.cmp(&b.least),
            Tap::Apa => amounts(),
            Tap::Ff => shortest(one).cmp(&shortest(two)),
            Tap::FfApa => shortest(one).cmp(&shortest(two)).then_with(amounts),
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

    /// The partition of that height with so many leaves that take jobs whose busiest leaf is the
    /// least busy, if that has fewer than `limit` jobs.
    pub(super) fn least_busy(&self, height: u8, wanted: u32, limit: u32) -> Option<u32> {
        let mut best = None;
        let mut goal = Goal { tap: Tap::Min, height, wanted, limit };
        while let Some(found) = self.descend(0, self.shape.height, 0, &goal) {
            goal.limit = self.above(found) + self.nodes[found as usize].most;
            best = Some(found);
        }
        best
    }
}

struct Goal {
    tap: Tap,
    height: u8,
    wanted: u32,
    limit: u32,
}
