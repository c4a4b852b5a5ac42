//! A policy whose waiting jobs are in the order of fair shares.

use alloc::vec::Vec;
use core::ops::DerefMut;

use super::{FairShares, QueueRank};
use crate::demand::NodeResources;
use crate::{
    ArriveError, ClusterTime, DqtNode, JobId, Obstacle, Placement, Policy, ProcessorColumn,
    ProcessorId, Request, Round, Sharing,
};

/// A policy with an account of its users, or without one. It hears what the policy hears, and puts the queue in order before the
/// policy says who is next.
#[derive(Clone, Debug)]
pub struct FairPolicy<P> {
    policy: P,
    shares: Option<FairShares>,
}

impl<P: DerefMut<Target: Policy>> FairPolicy<P> {
    /// The policy, which has neither nodes nor jobs yet. Without shares it does what it does by itself.
    pub fn new(policy: P, shares: Option<FairShares>) -> Self {
        Self { policy, shares }
    }

    /// The account.
    pub fn shares(&self) -> Option<&FairShares> {
        self.shares.as_ref()
    }

    /// The account, to add what the policy does not hear of.
    pub fn shares_mut(&mut self) -> Option<&mut FairShares> {
        self.shares.as_mut()
    }
}

impl<P: DerefMut<Target: Policy>> Policy for FairPolicy<P> {
    fn sharing(&self) -> Sharing {
        self.policy.sharing()
    }

    fn add_node(&mut self, node: &NodeResources) {
        self.policy.add_node(node);
        if let Some(shares) = &mut self.shares {
            shares.add_node(node);
        }
    }

    fn remove_node(&mut self, first: ProcessorId) {
        self.policy.remove_node(first);
        if let Some(shares) = &mut self.shares {
            shares.remove_node(first);
        }
    }

    fn arrive(&mut self, request: &Request, now: ClusterTime) -> Result<(), ArriveError> {
        self.policy.arrive(request, now)?;
        if let Some(shares) = &mut self.shares {
            // It may have come earlier: the time does not go on by it.
            shares.arrive(request, now.0);
        }
        Ok(())
    }

    fn restore(
        &mut self,
        request: &Request,
        processors: &[ProcessorId],
        now: ClusterTime,
    ) -> Result<(), ArriveError> {
        self.policy.restore(request, processors, now)?;
        let sharing = self.sharing();
        if let Some(shares) = &mut self.shares {
            shares.set_time(now.0);
            shares.restore(request, processors.len(), sharing);
        }
        Ok(())
    }

    fn leave(&mut self, job: JobId, now: ClusterTime) {
        self.policy.leave(job, now);
        if let Some(shares) = &mut self.shares {
            shares.set_time(now.0);
            shares.leave(job);
        }
    }

    fn set_active(&mut self, job: JobId, active: bool) {
        self.policy.set_active(job, active);
        let sharing = self.sharing();
        if let Some(shares) = &mut self.shares {
            shares.set_active(job, active, sharing);
        }
    }

    fn set_time(&mut self, now: ClusterTime) {
        self.policy.set_time(now);
        if let Some(shares) = &mut self.shares {
            shares.set_time(now.0);
        }
    }

    fn next_placement(&mut self, now: ClusterTime) -> Option<Placement> {
        if let Some(shares) = &mut self.shares {
            shares.set_time(now.0);
            shares.order(&mut *self.policy);
        }
        let placement = self.policy.next_placement(now)?;
        let sharing = self.sharing();
        if let Some(shares) = &mut self.shares {
            shares.place(placement.job, placement.processors.len(), sharing);
        }
        Some(placement)
    }

    fn next_migration(&mut self, now: ClusterTime) -> Option<Placement> {
        self.policy.next_migration(now)
    }

    fn queued(&self) -> Vec<JobId> {
        self.policy.queued()
    }

    fn reorder(&mut self, rank: &mut dyn FnMut(JobId) -> QueueRank) {
        self.policy.reorder(rank);
    }

    fn obstacles(&self) -> Vec<(JobId, Obstacle)> {
        self.policy.obstacles()
    }

    fn run_slot(&mut self, run: &mut dyn FnMut(JobId)) {
        self.policy.run_slot(run);
    }

    fn advance(&mut self, slots: u64) {
        self.policy.advance(slots);
    }

    fn next_round(&mut self, most: u64, round: &mut Round) -> bool {
        self.policy.next_round(most, round)
    }

    fn columns(&self) -> Vec<ProcessorColumn> {
        self.policy.columns()
    }

    fn filling_processors(&self) -> u32 {
        self.policy.filling_processors()
    }

    fn arity(&self) -> u32 {
        self.policy.arity()
    }

    fn plans(&self) -> bool {
        self.policy.plans()
    }

    fn migrates(&self) -> bool {
        self.policy.migrates()
    }

    fn tree(&self, slots: u64) -> Option<Vec<DqtNode>> {
        self.policy.tree(slots)
    }
}
