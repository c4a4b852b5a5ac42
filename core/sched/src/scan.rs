//! Scan (Krueger, Lai and Dixit-Radiya, "Job scheduling is more important than processor allocation
//! for hypercube computers", 1994): jobs of one size one after the other.
//!
//! There are buddy partitions, and a queue for each power of two; sizes are rounded up to the next.
//! The scan is at one queue and places its jobs, in order of arrival, as partitions come free. Jobs
//! of other queues wait even if they would fit, because a machine cut into partitions of one size
//! loses nothing at the borders. When the queue is empty, the scan goes on to the next queue with
//! jobs: upwards (and from the largest size to the smallest), or downwards. It does not wait for
//! jobs to end. Jobs for which too few nodes are up are passed over.
//!
//! In `scan-up` and `scan-down` a job that joins the scan's present queue takes part at once. So a
//! size that always has new jobs keeps all others waiting. In `scan`, which goes upwards, such a
//! job waits for the next time: the scan leaves when it has placed all jobs that were there when it
//! came.

use alloc::vec::Vec;

use crate::batch::pool::Pool;
use crate::batch::queue::{Queue, WaitingJob};
use crate::batch::{Batch, Discipline, Machine};
use crate::buddy::{BuddyAllocator, level_of};
use crate::policy::held_up_by_first;
use crate::shares::QueueRank;
use crate::{JobId, Obstacle, Placement};

/// To larger sizes.
pub(crate) type ScanUp = Batch<SizeScan<true, false>>;

/// To smaller sizes.
pub(crate) type ScanDown = Batch<SizeScan<false, false>>;

/// To larger sizes, in rounds: no job starves.
pub(crate) type Scan = Batch<SizeScan<true, true>>;

/// Sizes are 32-bit numbers.
const SIZES: usize = 33;

pub(crate) struct SizeScan<const UP: bool, const ROUNDS: bool> {
    /// By size: the n-th holds jobs of up to 2^n nodes.
    queues: Vec<Queue>,
    /// The queue at which the scan is now.
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

    /// How many jobs of the queue, from the first on, the scan serves before it goes on.
    fn served(&self) -> usize {
        if ROUNDS { self.taking_part } else { usize::MAX }
    }

    /// Waiting jobs in the scan's order.
    fn in_order(&self) -> impl Iterator<Item = &WaitingJob> {
        let order = core::iter::successors(Some(self.at), |&at| Some(Self::after(at)));
        let here = self.served().min(self.queues[self.at].iter().len());
        let now = self.queues[self.at].iter().take(here);
        let later = order.take(SIZES).skip(1).flat_map(|at| self.queues[at].iter());
        let last = self.queues[self.at].iter().skip(here);
        now.chain(later).chain(last)
    }

    /// Goes to the next job in the scan's order, which may be in the present queue.
    fn go_on(&mut self, pool: &BuddyAllocator) -> Option<usize> {
        for _ in 0..=SIZES {
            let mut served = self.queues[self.at].iter().take(self.served());
            if let Some(index) = served.position(|waiting| pool.possible(&waiting.demand)) {
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
        self.queues[level_of(waiting.count) as usize].push(waiting);
    }

    fn withdraw(&mut self, _machine: &mut Machine<BuddyAllocator>, job: JobId) {
        let first = self.queues[self.at].iter().take(self.taking_part);
        let took_part = first.filter(|waiting| waiting.job == job).count();
        self.taking_part -= took_part;
        for queue in &mut self.queues {
            queue.withdraw(job);
        }
    }

    /// As many take part in the present round as before: the first.
    fn reorder(
        &mut self,
        _machine: &mut Machine<BuddyAllocator>,
        rank: &mut dyn FnMut(JobId) -> QueueRank,
    ) -> bool {
        let mut changed = false;
        for queue in &mut self.queues {
            changed |= queue.reorder(rank);
        }
        changed
    }

    fn queued(&self, _machine: &Machine<BuddyAllocator>) -> Vec<JobId> {
        self.in_order().map(|waiting| waiting.job).collect()
    }

    fn obstacles(&self, machine: &Machine<BuddyAllocator>) -> Vec<(JobId, Obstacle)> {
        let fit = |waiting: &WaitingJob| machine.pool.fit(&waiting.demand);
        held_up_by_first(self.in_order().map(|waiting| (waiting.job, fit(waiting))))
    }

    fn next(&mut self, machine: &mut Machine<BuddyAllocator>, _now: u64) -> Option<Placement> {
        let index = self.go_on(&machine.pool)?;
        let WaitingJob { job, demand, .. } = self.queues[self.at][index];
        let processors = machine.pool.take(job, &demand)?;
        self.queues[self.at].remove(index);
        self.taking_part = self.taking_part.saturating_sub(1);
        Some(Placement { job, processors })
    }
}
