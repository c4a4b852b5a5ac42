//! First come, first served, and first fit.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::pool::{FreeNodes, Pool};
use super::queue::{Queue, Waiting};
use super::{Batch, Discipline, Machine};
use crate::buddy::Buddies;
use crate::{JobId, Placement};

/// First come, first served: nobody is placed before somebody who came earlier. Only a job for
/// which too few nodes are up is passed over, since no end of a job would help it. Jobs get any
/// free nodes, those of the lowest numbers.
pub(crate) type Fcfs = Batch<Order<FreeNodes>>;

/// First come, first served, in partitions of a binary buddy system: a job gets the smallest block
/// of 2^k nodes, beginning at a multiple of 2^k, that has as many nodes as it wants.
/// What a block has beyond that stays idle ([`crate::Policy::filling_nodes`]).
pub(crate) type FcfsBuddy = Batch<Order<Buddies>>;

/// Whoever fits, in order of arrival. Nodes are seldom idle, but a large job may wait for ever.
pub(crate) type FirstFit = Batch<Fitting>;

#[derive(Default)]
pub(crate) struct Order<P> {
    queue: Queue,
    pool: PhantomData<P>,
}

impl<P: Pool> Discipline for Order<P> {
    type Pool = P;

    fn push(&mut self, waiting: Waiting) {
        self.queue.push(waiting);
    }

    fn withdraw(&mut self, job: JobId) {
        self.queue.withdraw(job);
    }

    fn queued(&self) -> Vec<JobId> {
        self.queue.iter().map(|waiting| waiting.job).collect()
    }

    fn next(&mut self, machine: &mut Machine<P>, _now: u64) -> Option<Placement> {
        let index = self.queue.position(|waiting| machine.pool.possible(waiting.nodes))?;
        let Waiting { job, nodes, .. } = self.queue[index];
        let nodes = machine.pool.take(job, nodes)?;
        self.queue.remove(index);
        Some(Placement { job, nodes })
    }
}

#[derive(Default)]
pub(crate) struct Fitting(Queue);

impl Discipline for Fitting {
    type Pool = FreeNodes;

    fn push(&mut self, waiting: Waiting) {
        self.0.push(waiting);
    }

    fn withdraw(&mut self, job: JobId) {
        self.0.withdraw(job);
    }

    fn queued(&self) -> Vec<JobId> {
        self.0.iter().map(|waiting| waiting.job).collect()
    }

    fn next(&mut self, machine: &mut Machine<FreeNodes>, _now: u64) -> Option<Placement> {
        let free = machine.pool.free();
        if free == 0 {
            return None;
        }
        let index = self.0.position(|waiting| waiting.nodes <= free)?;
        let Waiting { job, nodes, .. } = self.0[index];
        let nodes = machine.pool.take(job, nodes)?;
        self.0.remove(index);
        Some(Placement { job, nodes })
    }
}
