//! Batch scheduling: a job waits until it gets nodes of its own, and keeps them until it ends.
//!
//! This module holds everything that the policies share; a [`Discipline`] chooses the next waiting
//! job. Decisions are made only in [`Policy::next_placement`], from the events reported so far. So
//! placements depend on when the caller asks. The simulator reports all ends and arrivals of an
//! instant before it asks; another caller may ask after each event. docs/guide/scheduling.md shows
//! how much this changes.

mod backfill;
mod fcfs;
pub(crate) mod placed_jobs;
pub(crate) mod pool;
mod profile;
pub(crate) mod queue;
mod running_jobs;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

pub(crate) use backfill::{Conservative, Easy, RESERVATIONS};
pub(crate) use fcfs::{Fcfs, FcfsBuddy, FirstFit};

use crate::demand::NodeResources;
use crate::policy::held_up_by_first;
use crate::shares::QueueRank;
use crate::{
    ArriveError, ClusterTime, JobId, Obstacle, Placement, Policy, ProcessorColumn, ProcessorId,
    Request, Sharing,
};
use placed_jobs::PlacedJobs;
use pool::Pool;
use queue::{Queue, WaitingJob};

/// The machine as a discipline sees it.
#[derive(Default)]
pub(crate) struct Machine<P> {
    pub(crate) pool: P,
    pub(crate) placed: PlacedJobs,
    /// Jobs that wait, unless the discipline has queues of its own.
    pub(crate) queue: Queue,
}

/// Queueing discipline: which of the waiting jobs is next.
pub(crate) trait Discipline: Default {
    type Pool: Pool;

    /// Jobs must say how long they run.
    const PLANS: bool = false;

    /// A job arrives.
    fn push(&mut self, machine: &mut Machine<Self::Pool>, waiting: WaitingJob) {
        machine.queue.push(waiting);
    }

    /// Removes a waiting job.
    fn withdraw(&mut self, machine: &mut Machine<Self::Pool>, job: JobId) {
        machine.queue.withdraw(job);
    }

    /// Jobs that wait, in order.
    fn queued(&self, machine: &Machine<Self::Pool>) -> Vec<JobId> {
        machine.queue.iter().map(|waiting| waiting.job).collect()
    }

    /// Puts those that wait in the order of these ranks. Returns whether that is another order.
    fn reorder(
        &mut self,
        machine: &mut Machine<Self::Pool>,
        rank: &mut dyn FnMut(JobId) -> QueueRank,
    ) -> bool {
        machine.queue.reorder(rank)
    }

    /// Why each of them waits: [`Policy::obstacles`].
    fn obstacles(&self, machine: &Machine<Self::Pool>) -> Vec<(JobId, Obstacle)> {
        let fit = |waiting: &WaitingJob| machine.pool.fit(&waiting.demand);
        held_up_by_first(machine.queue.iter().map(|waiting| (waiting.job, fit(waiting))))
    }

    /// Takes the next job from those that wait, and its nodes from the pool.
    fn next(&mut self, machine: &mut Machine<Self::Pool>, now: u64) -> Option<Placement>;

    /// A job was taken over that already runs.
    fn restored(&mut self, _job: JobId, _processors: usize, _estimate: Option<u64>, _now: u64) {}

    /// A placed job has ended, and the machine no longer lists it. `freed`: nodes that became free,
    /// where the job's end changed nothing else.
    fn ended(&mut self, _job: JobId, _freed: Option<u32>, _now: u64) {}

    /// A node came. `fresh`: its processors, if all are free.
    fn node_added(&mut self, _fresh: Option<u32>) {}

    fn node_removed(&mut self) {}
}

/// A policy that shares space only.
#[derive(Default)]
pub(crate) struct Batch<D: Discipline> {
    machine: Machine<D::Pool>,
    discipline: D,
    waiting: BTreeSet<JobId>,
    /// No job found a place, and nothing has changed since.
    stuck: bool,
}

impl<D: Discipline> Batch<D> {
    /// An empty machine with this discipline.
    fn with(discipline: D) -> Self {
        Self { discipline, ..Self::default() }
    }

    fn check(&self, job: JobId, nodes: usize) -> Result<(), ArriveError> {
        let known = self.waiting.contains(&job) || self.machine.placed.contains(job);
        ArriveError::check(job, nodes, known)
    }
}

impl<D: Discipline> Policy for Batch<D> {
    fn sharing(&self) -> Sharing {
        Sharing::Space
    }

    fn add_node(&mut self, node: &NodeResources) {
        self.stuck = false;
        let fresh = self.machine.pool.add_node(node);
        self.discipline.node_added(fresh);
    }

    fn remove_node(&mut self, first: ProcessorId) {
        self.stuck = false;
        self.machine.pool.remove_node(first);
        self.discipline.node_removed();
    }

    fn arrive(&mut self, request: &Request, now: ClusterTime) -> Result<(), ArriveError> {
        self.check(request.job, request.demand.parts as usize)?;
        if D::PLANS && request.estimate_ns.is_none() {
            return Err(ArriveError::NoEstimate(request.job));
        }
        self.waiting.insert(request.job);
        self.stuck = false;
        let count = self.machine.pool.count(&request.demand);
        self.discipline.push(&mut self.machine, WaitingJob::new(request, count, now));
        Ok(())
    }

    fn restore(
        &mut self,
        request: &Request,
        processors: &[ProcessorId],
        now: ClusterTime,
    ) -> Result<(), ArriveError> {
        let processors: BTreeSet<ProcessorId> = processors.iter().copied().collect();
        let processors: Vec<ProcessorId> = processors.into_iter().collect();
        self.check(request.job, processors.len())?;
        self.machine.pool.claim(request.job, &request.demand, &processors);
        let count = processors.len();
        self.machine.placed.put(request.job, processors);
        self.discipline.restored(request.job, count, request.estimate_ns, now.0);
        Ok(())
    }

    fn leave(&mut self, job: JobId, now: ClusterTime) {
        self.stuck = false;
        if self.waiting.remove(&job) {
            self.discipline.withdraw(&mut self.machine, job);
        } else if let Some(processors) = self.machine.placed.remove(job) {
            let freed = self.machine.pool.release(job, &processors);
            let all = (freed as usize == processors.len()).then_some(freed);
            self.discipline.ended(job, all, now.0);
        }
    }

    fn set_active(&mut self, job: JobId, active: bool) {
        self.machine.placed.set_active(job, active);
    }

    fn next_placement(&mut self, now: ClusterTime) -> Option<Placement> {
        if self.stuck {
            return None;
        }
        let Some(placement) = self.discipline.next(&mut self.machine, now.0) else {
            // With reservations, time alone can make room.
            self.stuck = !D::PLANS;
            return None;
        };
        self.waiting.remove(&placement.job);
        self.machine.placed.put(placement.job, placement.processors.clone());
        Some(placement)
    }

    fn queued(&self) -> Vec<JobId> {
        self.discipline.queued(&self.machine)
    }

    fn reorder(&mut self, rank: &mut dyn FnMut(JobId) -> QueueRank) {
        if self.discipline.reorder(&mut self.machine, rank) {
            self.stuck = false;
        }
    }

    fn obstacles(&self) -> Vec<(JobId, Obstacle)> {
        self.discipline.obstacles(&self.machine)
    }

    fn run_slot(&mut self, run: &mut dyn FnMut(JobId)) {
        self.machine.placed.run_slot(run);
    }

    fn advance(&mut self, slots: u64) {
        self.machine.placed.advance(slots);
    }

    fn columns(&self) -> Vec<ProcessorColumn> {
        self.machine.placed.columns()
    }

    fn filling_processors(&self) -> u32 {
        self.machine.pool.filling()
    }

    fn plans(&self) -> bool {
        D::PLANS
    }
}
