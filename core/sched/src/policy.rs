//! What every scheduling policy offers, whatever data it keeps inside.

use alloc::vec::Vec;

use crate::{ClusterTime, Column, JobId, Mode, NodeId, Timetable};

/// A queued job that got its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The job.
    pub job: JobId,
    /// As many nodes as it wanted, ascending. They stay its own until it leaves.
    pub nodes: Vec<NodeId>,
}

/// Why a policy does not take a job. Neither ever succeeds if tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArriveError {
    /// A job runs on at least one node.
    #[error("job {0} asks for no nodes; ask for at least one")]
    NoNodes(JobId),
    /// The policy has a job of this number, queued or placed.
    #[error("job {0} is already scheduled; let it leave before it arrives again")]
    Known(JobId),
}

/// A gang scheduling policy: who gets which nodes, and in which slots.
///
/// A policy is deterministic: the same calls in the same order give the same answers. It never
/// moves a placed job to other nodes (its processes are there), but it may move it to other slots
/// whenever it likes. How a policy finds nodes is its own affair: a matrix looks for a row, a tree
/// of queues descends to the least loaded partition of the size that fits. What both give is a
/// number of nodes and, for every node, a cyclic list of slots of equal length.
///
/// Jobs wait inside the policy, because only it knows what would fit: [`Policy::arrive`] queues,
/// [`Policy::next_placement`] hands out those that fit now and is called until it has none, after
/// anything that can make room ([`Policy::arrive`], [`Policy::leave`], [`Policy::add_node`]).
pub trait Policy {
    /// `node` takes jobs from now on. Does nothing if it already does.
    fn add_node(&mut self, node: NodeId);

    /// `node` takes no new jobs. Those placed on it stay until they [`Policy::leave`].
    fn remove_node(&mut self, node: NodeId);

    /// Queues a job that wants `nodes` nodes.
    ///
    /// # Errors
    /// The job wants no nodes or is known.
    fn arrive(&mut self, job: JobId, nodes: u32) -> Result<(), ArriveError>;

    /// Takes back a job that was placed on `nodes` earlier, by a head that is no more. It gets its
    /// slot even where that exceeds a limit, because it runs already.
    ///
    /// # Errors
    /// The job has no nodes or is known.
    fn restore(&mut self, job: JobId, nodes: &[NodeId]) -> Result<(), ArriveError>;

    /// The job is over, or no longer waits. Does nothing for a job that is not known.
    fn leave(&mut self, job: JobId);

    /// Whether a placed job takes part in the rotation. A job that is being prepared or killed, or
    /// whose ranks all wait for the user, keeps its nodes and gets no slots. Jobs begin inactive.
    fn set_active(&mut self, job: JobId, active: bool);

    /// The next queued job that fits now.
    fn next_placement(&mut self) -> Option<Placement>;

    /// The slots of every node that has an active job, ascending by node, all of one length.
    fn columns(&self) -> Vec<Column>;

    /// The columns as a timetable to publish.
    fn timetable(
        &self,
        generation: u64,
        start: ClusterTime,
        slice_ns: u64,
        mode: Mode,
    ) -> Timetable {
        Timetable { generation, start, slice_ns, mode, columns: self.columns() }
    }
}
