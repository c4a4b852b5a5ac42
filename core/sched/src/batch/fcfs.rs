//! First come, first served, and first fit.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::pool::{FreeProcessors, Pool};
use super::queue::WaitingJob;
use super::{Batch, Discipline, Machine};
use crate::buddy::BuddyAllocator;
use crate::{JobId, Obstacle, Placement};

/// First come, first served: no job overtakes an earlier one. Only a job that needs more nodes than
/// are up is passed over, since no other job's end would help it. Jobs get the free nodes with the
/// lowest numbers.
pub(crate) type Fcfs = Batch<ArrivalOrder<FreeProcessors>>;

/// First come, first served, in partitions of a binary buddy system. A job gets the smallest block
/// of 2^k nodes, beginning at a multiple of 2^k, that has as many nodes as it wants. The rest of a
/// block stays idle ([`crate::Policy::filling_nodes`]).
pub(crate) type FcfsBuddy = Batch<ArrivalOrder<BuddyAllocator>>;

/// First fit: the first waiting job that fits, in order of arrival. Nodes are seldom idle, but a large job may wait for ever.
pub(crate) type FirstFit = Batch<FirstThatFits>;

#[derive(Default)]
pub(crate) struct ArrivalOrder<P>(PhantomData<P>);

impl<P: Pool> Discipline for ArrivalOrder<P> {
    type Pool = P;

    fn next(&mut self, machine: &mut Machine<P>, _now: u64) -> Option<Placement> {
        let index = machine.queue.position(|waiting| machine.pool.possible(&waiting.demand))?;
        let WaitingJob { job, demand, .. } = machine.queue[index];
        let processors = machine.pool.take(job, &demand)?;
        machine.queue.remove(index);
        Some(Placement { job, processors })
    }
}

#[derive(Default)]
pub(crate) struct FirstThatFits;

impl Discipline for FirstThatFits {
    type Pool = FreeProcessors;

    fn obstacles(&self, machine: &Machine<FreeProcessors>) -> Vec<(JobId, Obstacle)> {
        let obstacle = |waiting: &WaitingJob| Obstacle::of_first(machine.pool.fit(&waiting.demand));
        machine.queue.iter().map(|waiting| (waiting.job, obstacle(waiting))).collect()
    }

    fn next(&mut self, machine: &mut Machine<FreeProcessors>, _now: u64) -> Option<Placement> {
        let free = machine.pool.free();
        if free == 0 {
            return None;
        }
        let index = machine
            .queue
            .position(|waiting| waiting.count <= free && machine.pool.fits(&waiting.demand))?;
        let WaitingJob { job, demand, .. } = machine.queue[index];
        let processors = machine.pool.take(job, &demand)?;
        machine.queue.remove(index);
        Some(Placement { job, processors })
    }
}
