//! Policy that records where it places each job.

use kumi_sched::{
    ArriveError, ClusterTime, DqtNode, JobId, NodeResources, Placement, Policy, ProcessorColumn,
    ProcessorId, QueueRank, Request, Round, Sharing,
};
use std::collections::BTreeMap;

/// Passes every call on to a policy and records its placements.
pub struct RecordingPolicy {
    policy: Box<dyn Policy + Send>,
    /// The nodes of each job.
    pub nodes: BTreeMap<JobId, Vec<u32>>,
}

impl RecordingPolicy {
    /// Records the placements of a policy.
    pub fn new(policy: Box<dyn Policy + Send>) -> Self {
        Self { policy, nodes: BTreeMap::new() }
    }

    fn note(&mut self, placement: Option<Placement>) -> Option<Placement> {
        if let Some(placement) = &placement {
            let nodes = placement.processors.iter().map(|node| node.0).collect();
            self.nodes.insert(placement.job, nodes);
        }
        placement
    }
}

impl Policy for RecordingPolicy {
    fn sharing(&self) -> Sharing {
        self.policy.sharing()
    }

    fn add_node(&mut self, node: &NodeResources) {
        self.policy.add_node(node);
    }

    fn remove_node(&mut self, node: ProcessorId) {
        self.policy.remove_node(node);
    }

    fn arrive(&mut self, request: &Request, now: ClusterTime) -> Result<(), ArriveError> {
        self.policy.arrive(request, now)
    }

    fn restore(
        &mut self,
        request: &Request,
        nodes: &[ProcessorId],
        now: ClusterTime,
    ) -> Result<(), ArriveError> {
        self.policy.restore(request, nodes, now)
    }

    fn leave(&mut self, job: JobId, now: ClusterTime) {
        self.policy.leave(job, now);
    }

    fn set_active(&mut self, job: JobId, active: bool) {
        self.policy.set_active(job, active);
    }

    fn next_placement(&mut self, now: ClusterTime) -> Option<Placement> {
        let placement = self.policy.next_placement(now);
        self.note(placement)
    }

    fn next_migration(&mut self, now: ClusterTime) -> Option<Placement> {
        let placement = self.policy.next_migration(now);
        self.note(placement)
    }

    fn queued(&self) -> Vec<JobId> {
        self.policy.queued()
    }

    fn reorder(&mut self, rank: &mut dyn FnMut(JobId) -> QueueRank) {
        self.policy.reorder(rank);
    }

    fn next_round(&mut self, most: u64, round: &mut Round) -> bool {
        self.policy.next_round(most, round)
    }

    fn run_slot(&mut self, run: &mut dyn FnMut(JobId)) {
        self.policy.run_slot(run);
    }

    fn advance(&mut self, slots: u64) {
        self.policy.advance(slots);
    }

    fn columns(&self) -> Vec<ProcessorColumn> {
        self.policy.columns()
    }

    fn filling_processors(&self) -> u32 {
        self.policy.filling_processors()
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
