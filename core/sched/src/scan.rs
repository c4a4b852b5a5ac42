//! Scan (Krueger, Lai and Dixit-Radiya, "Job scheduling is more important than processor allocation
//! for hypercube computers", 1994): jobs of one size one after the other.
//!
//! There is a queue for each power of two, up to which sizes are rounded, and buddy partitions. The
//! scan is at one queue and places its jobs, in order of arrival, as partitions come free; jobs of
//! other queues wait even if they would fit, because a machine cut into partitions of one size
//! loses nothing at the borders. When the queue is empty the scan goes on to the next that is not:
//! upwards to larger sizes, and from the largest to the smallest, or downwards. It does not wait
//! for the jobs to end. Jobs for which too few nodes are up are passed over.
//!
//! In `scan-up` and `scan-down` a job that comes to the queue at which the scan is takes part at
//! once, so a size that is never out of jobs keeps all others waiting. In `scan`, which goes
//! upwards, it waits for the next time: the scan leaves when all are placed that were there when
//! it came.

use alloc::vec::Vec;

use crate::batch::pool::Pool;
use crate::batch::queue::{Queue, WaitingJob};
use crate::batch::{Batch, Discipline, Machine};
use crate::buddy::{BuddyAllocator, level_of};
use crate::{JobId, Placement};

/// To larger sizes.
pub(crate) type ScanUp = Batch<SizeScan<true, false>>;

/// To smaller sizes.
pub(crate) type ScanDown = Batch<SizeScan<false, false>>;

/// To larger sizes, in rounds: nobody starves.
pub(crate) type Scan = Batch<SizeScan<true, true>>;

/// Sizes are numbers of 32 bits.
const SIZES: usize = 33;

pub(crate) struct SizeScan<const UP: bool, const ROUNDS: bool> {
    /// By size: the n-th holds jobs of up to 2^n nodes.
    queues: Vec<Queue>,
    /// The queue at which the scan is.
    at: usize,
    /// Jobs of that queue that take part, from the first on.
    taking_part: usize,
}

impl<const UP: bool, const ROUNDS: bool> Default for SizeScan<UP, ROUNDS> {
    fn default() -> Self {
        let queues = (0..SIZES).map(|_| Queue::default()).collect();
        Self { queues, at: 0, taking_part: 0 }
    }
}

impl<const UP: bool, const ROUNDS: bool> SizeScan<UP, ROUNDS> {
    fn after(at: usize) -> usize {
        if UP { (at + 1) % SIZES } else { (at + SIZES - 1) % SIZES }
    }

    /// How many jobs from the first of the queue on are served before the scan goes on.
    fn served(&self) -> usize {
        if ROUNDS { self.taking_part } else { usize::MAX }
    }

    /// Goes to the next job that the scan comes to, which may be where it is.
    fn go_on(&mut self, pool: &BuddyAllocator) -> Option<usize> {
        for _ in 0..=SIZES {
            let mut served = self.queues[self.at].iter().take(self.served());
            if let Some(index) = served.position(|waiting| pool.possible(waiting.nodes)) {
                return Some(index);
            }
            self.at = Self::after(self.at);
            self.taking_part = self.queues[self.at].iter().len();
        }
        None
    }
}

impl<const UP: bool, const ROUNDS: bool> Discipline for SizeScan<UP, ROUNDS> {
    type Pool = BuddyAllocator;

    fn push(&mut self, _machine: &mut Machine<BuddyAllocator>, waiting: WaitingJob) {
        self.queues[level_of(waiting.nodes) as usize].push(waiting);
    }

    fn withdraw(&mut self, _machine: &mut Machine<BuddyAllocator>, job: JobId) {
        let first = self.queues[self.at].iter().take(self.taking_part);
        let took_part = first.filter(|waiting| waiting.job == job).count();
        self.taking_part -= took_part;
        for queue in &mut self.queues {
            queue.withdraw(job);
        }
    }

    fn queued(&self, _machine: &Machine<BuddyAllocator>) -> Vec<JobId> {
        let order = core::iter::successors(Some(self.at), |&at| Some(Self::after(at)));
        let here = self.served().min(self.queues[self.at].iter().len());
        let now = self.queues[self.at].iter().take(here);
        let later = order.take(SIZES).skip(1).flat_map(|at| self.queues[at].iter());
        let last = self.queues[self.at].iter().skip(here);
        now.chain(later).chain(last).map(|waiting| waiting.job).collect()
    }

    fn next(&mut self, machine: &mut Machine<BuddyAllocator>, _now: u64) -> Option<Placement> {
        let index = self.go_on(&machine.pool)?;
        let WaitingJob { job, nodes, .. } = self.queues[self.at][index];
        let nodes = machine.pool.take(job, nodes)?;
        self.queues[self.at].remove(index);
        self.taking_part = self.taking_part.saturating_sub(1);
        Some(Placement { job, nodes })
    }
}
