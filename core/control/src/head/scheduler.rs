//! Scheduler of the head: decides which of the queued jobs runs next, and on which nodes.
//!
//! The decision itself is the policy's ([`kumi_sched`]). The scheduler finds out on how many nodes a
//! queued job goes, offers the job to the policy, and takes placements from it.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use kumi_sched::registry::Limits;
use kumi_sched::{
    ArriveError, ClusterTime, Column, DqtNode, JobId, NodeId, Numbering, Obstacle, Placement,
    Policy, ProcessorId, Sharing,
};

use super::idle::IdleJobs;
use super::job::Job;
use super::job_table::JobTable;
use super::membership::{Capacity, Membership};
use super::policy::{self, PolicyError};
use super::time::HeadTime;
use super::{HeadConfig, refusal};
use crate::message::{JobRequest, JobState, NodeRanks, Refusal, RefusalKind};

/// Most bytes of a policy's name that a client may ask for: it is shown to everybody.
const LONGEST_NAME: usize = 64;

/// The policy in force, and the queued jobs that it does not know of.
pub(super) struct Scheduler {
    policy: Box<dyn Policy + Send>,
    name: String,
    limits: Limits,
    /// Processors of the configured nodes.
    numbering: Numbering,
    /// Nodes came or went, or are no longer expected.
    nodes_changed: bool,
    /// Queued jobs that the policy has not been told of.
    undecided: BTreeSet<JobId>,
}

/// Ranks in blocks over the nodes, ascending; the first nodes have one more if it does not divide.
pub(super) fn layout(ranks: u32, nodes: &[NodeId]) -> Vec<NodeRanks> {
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
    let (each, more) = (ranks / count, ranks % count);
    let mut first = 0;
    let mut layout = Vec::with_capacity(nodes.len());
    for (index, &node) in (0..).zip(nodes) {
        let count = each + u32::from(index < more);
        layout.push(NodeRanks { node, first, count, processors: Vec::new() });
        first += count;
    }
    layout
}

/// On how many nodes a job goes: as many as it asks for, or as many as have a processor for each
/// rank, or all that are attached. Just after the start of the head its nodes are still attaching;
/// a job that leaves the number open waits for them.
///
/// # Errors
/// `Ok(None)` while it cannot be said. An error when the job can never fit.
pub(super) fn wanted_nodes(
    request: &JobRequest,
    capacity: &Capacity,
) -> Result<Option<u32>, Refusal> {
    let Some((processors, max_ranks)) = capacity.smallest_node else { return Ok(None) };
    let fewest = request.ranks.div_ceil(max_ranks);
    let most = request.nodes.unwrap_or(capacity.nodes);
    if most < fewest {
        let message = format!(
            "{} ranks on {most} nodes need {} ranks on one node, and a node takes at most \
             {max_ranks}; ask for fewer ranks{}",
            request.ranks,
            request.ranks.div_ceil(most.max(1)),
            if fewest <= capacity.nodes { " or more nodes" } else { "" }
        );
        return Err(refusal(RefusalKind::TooLarge, message));
    }
    if request.nodes.is_some() {
        return Ok(request.nodes);
    }
    if capacity.attached == 0 || capacity.growing {
        return Ok(None);
    }
    Ok(Some(request.ranks.div_ceil(processors).min(capacity.attached).max(fewest)))
}

/// Tells a policy of a job that has nodes.
fn restore(
    policy: &mut dyn Policy,
    job: &Job,
    membership: &Membership,
    idle: &IdleJobs,
    time: &HeadTime,
) -> Result<(), ArriveError> {
    let nodes = job.parts.keys().copied();
    let nodes: Vec<ProcessorId> = nodes
        .filter(|&node| membership.is_configured(node))
        .map(|node| ProcessorId(node.0))
        .collect();
    policy.restore(&job.remaining_demand(time.wall_ms()), &nodes, time.cluster())?;
    policy.set_active(job.id(), idle.takes_turns(job));
    Ok(())
}

impl Scheduler {
    /// # Errors
    /// No scheduling policy has the name in `config`, or clusters cannot use it.
    pub(super) fn new(config: &HeadConfig) -> Result<Self, PolicyError> {
        let limits = policy::limits(config);
        Ok(Self {
            policy: policy::by_name(&config.policy, limits)?,
            name: config.policy.clone(),
            limits,
            numbering: Numbering::new(
                2,
                (0..).zip(&config.nodes).map(|(node, _)| (NodeId(node), 1)),
            ),
            nodes_changed: false,
            undecided: BTreeSet::new(),
        })
    }

    /// Name of the policy.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether jobs must say how long they run.
    pub(super) fn plans(&self) -> bool {
        self.policy.plans()
    }

    /// The resource that jobs share.
    pub(super) fn sharing(&self) -> Sharing {
        self.policy.sharing()
    }

    /// Most jobs on one node, where they share time.
    pub(super) fn jobs_per_node(&self) -> u32 {
        self.limits.jobs_per_node
    }

    /// Why jobs wait of which the policy knows.
    pub(super) fn obstacles(&self) -> Vec<(JobId, Obstacle)> {
        self.policy.obstacles()
    }

    /// Slots of every node, to come.
    pub(super) fn columns(&self) -> Vec<Column> {
        let columns = self.policy.columns();
        self.numbering.columns(&columns)
    }

    /// The policy's tree of queues after so many slots, if it has one.
    pub(super) fn tree(&self, slots: u64) -> Option<Vec<DqtNode>> {
        self.policy.tree(slots)
    }

    /// The nodes of a placement, ascending.
    pub(super) fn nodes(&self, placement: &Placement) -> Vec<NodeId> {
        let places =
            placement.nodes.iter().filter_map(|&processor| self.numbering.place(processor));
        places.map(|(node, _)| node).collect()
    }

    pub(super) fn pass_slots(&mut self, slots: u64) {
        self.policy.advance(slots);
    }

    /// The job takes part in the rotation, or no longer.
    pub(super) fn set_active(&mut self, job: JobId, active: bool) {
        self.policy.set_active(job, active);
    }

    /// The job is over.
    pub(super) fn remove_job(&mut self, job: JobId, now: ClusterTime) {
        self.undecided.remove(&job);
        self.policy.leave(job, now);
    }

    pub(super) fn add_node(&mut self, node: NodeId) {
        self.policy.add_node(ProcessorId(node.0));
    }

    pub(super) fn remove_node(&mut self, node: NodeId) {
        self.policy.remove_node(ProcessorId(node.0));
    }

    /// Nodes came or went, or are no longer expected: jobs may want another number of them.
    pub(super) fn set_nodes_changed(&mut self) {
        self.nodes_changed = true;
    }

    /// A queued job comes.
    pub(super) fn enqueue(&mut self, job: JobId) {
        self.undecided.insert(job);
    }

    /// At the first event: the policy takes back the placed jobs of an earlier head.
    pub(super) fn restore_jobs(
        &mut self,
        jobs: &mut JobTable,
        membership: &Membership,
        idle: &IdleJobs,
        time: &HeadTime,
    ) {
        for job in jobs.iter_mut().filter(|job| job.is_placed()) {
            // Refused if none of its nodes is configured any more; then it is about to end.
            job.scheduled = restore(&mut *self.policy, job, membership, idle, time).is_ok();
        }
    }

    /// Whether nodes changed, so that all undecided jobs must be offered again. A job that was just
    /// submitted is offered at once otherwise.
    pub(super) fn has_changed_nodes(&self) -> bool {
        self.nodes_changed
    }

    /// If nodes changed: the undecided jobs, each to be offered with [`Scheduler::offer`].
    pub(super) fn take_changed(
        &mut self,
        jobs: &mut JobTable,
        capacity: &Capacity,
        now: ClusterTime,
    ) -> Vec<JobId> {
        if !core::mem::take(&mut self.nodes_changed) {
            return Vec::new();
        }
        self.reconsider(jobs, capacity, now);
        self.undecided.iter().copied().collect()
    }

    /// Queued jobs that left their number of nodes open may want another now. If one does, all
    /// queue again in the order in which they were submitted.
    fn reconsider(&mut self, jobs: &mut JobTable, capacity: &Capacity, now: ClusterTime) {
        let queued = |job: &&Job| job.scheduled && job.record.state == JobState::Queued;
        let queued: Vec<&Job> = jobs.iter().filter(queued).collect();
        let other = |job: &&Job| {
            let request = &job.record.spec.request;
            request.nodes.is_none()
                && wanted_nodes(request, capacity).is_ok_and(|wanted| wanted != Some(job.wanted))
        };
        if !queued.iter().any(other) {
            return;
        }
        let queued: Vec<JobId> = queued.into_iter().map(Job::id).collect();
        for id in queued {
            // Those that wait have no slot.
            self.policy.leave(id, now);
            if let Some(job) = jobs.get_mut(id) {
                job.scheduled = false;
            }
            self.undecided.insert(id);
        }
    }

    /// Offers a job to the policy, once it can be said how many nodes it wants: what that depends on
    /// changes only when nodes come or go. Returns why the job is refused, if it is.
    pub(super) fn offer(
        &mut self,
        id: JobId,
        jobs: &mut JobTable,
        capacity: &Capacity,
        time: &HeadTime,
    ) -> Option<Refusal> {
        let queued = |job: &&mut Job| !job.scheduled && job.record.state == JobState::Queued;
        let Some(request) = jobs.get(id).map(|job| &job.record.spec.request) else {
            self.undecided.remove(&id);
            return None;
        };
        let wanted = wanted_nodes(request, capacity);
        if wanted == Ok(None) {
            return None;
        }
        self.undecided.remove(&id);
        let job = jobs.get_mut(id).filter(queued)?;
        match wanted {
            Ok(nodes) => {
                (job.scheduled, job.wanted) = (true, nodes.unwrap_or_default());
                let arrived = self.policy.arrive(&job.demand(), job.arrival(time));
                arrived.err().map(|error| policy::arrive_refusal(&error))
            }
            Err(refusal) => Some(refusal),
        }
    }

    /// The next job that gets its nodes now, if any does.
    pub(super) fn next_placement(&mut self, now: ClusterTime) -> Option<Placement> {
        self.policy.next_placement(now)
    }

    /// The policy of this name with all jobs taken over: placed ones stay where they are, those that
    /// wait queue again in the order in which they were submitted. Nothing is changed yet.
    ///
    /// # Errors
    /// There is no such policy, clusters cannot use it, or it cannot take a job that there is.
    pub(super) fn prepare_change(
        &self,
        name: &str,
        jobs: &JobTable,
        membership: &Membership,
        idle: &IdleJobs,
        time: &HeadTime,
    ) -> Result<Box<dyn Policy + Send>, Refusal> {
        let bad = |message: String| refusal(RefusalKind::BadRequest, message);
        if name.len() > LONGEST_NAME {
            return Err(bad(format!(
                "a scheduling policy's name has at most {LONGEST_NAME} bytes, not {}",
                name.len()
            )));
        }
        let policy = policy::by_name(name, self.limits);
        let mut policy = policy.map_err(|error| bad(error.to_string()))?;
        membership.tree().routes().nodes().for_each(|node| policy.add_node(ProcessorId(node.0)));
        for job in jobs.iter().filter(|job| !job.is_over()) {
            let unknown = job.record.spec.request.estimate_ns.is_none();
            let taken = match (job.is_placed(), job.scheduled) {
                (true, true) => restore(&mut *policy, job, membership, idle, time),
                (false, true) => policy.arrive(&job.demand(), job.arrival(time)),
                // It is not known yet how many nodes it wants.
                (false, false) if unknown && policy.plans() => {
                    Err(ArriveError::NoEstimate(job.id()))
                }
                (_, false) => Ok(()),
            };
            taken.map_err(|error| {
                bad(format!("policy {name} cannot take over: {error}; end the job first"))
            })?;
        }
        Ok(policy)
    }

    /// Puts a policy in force that [`Scheduler::prepare_change`] has made.
    pub(super) fn change(&mut self, name: &str, policy: Box<dyn Policy + Send>) {
        self.policy = policy;
        self.name = name.to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks() {
        let nodes = [NodeId(2), NodeId(5), NodeId(7)];
        let parts: Vec<_> =
            layout(8, &nodes).iter().map(|part| (part.node.0, part.first, part.count)).collect();
        assert_eq!(parts, [(2, 0, 3), (5, 3, 3), (7, 6, 2)]);
        assert_eq!(layout(3, &nodes).iter().map(|part| part.count).sum::<u32>(), 3);
    }
}
