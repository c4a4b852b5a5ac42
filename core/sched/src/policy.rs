//! Interface of all scheduling policies.

use alloc::vec::Vec;

use crate::{ClusterTime, Column, DqtNode, JobId, Mode, NodeId, Round, Timetable};

/// Number of the user to whom a job belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub u32);

/// Demand of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The job.
    pub job: JobId,
    /// How many nodes it wants, all at once.
    pub nodes: u32,
    /// The user to whom it belongs.
    pub user: UserId,
    /// Least number of turns in a round of its queue; 0 counts as 1. It is a lower bound: a job may
    /// get more, and a small job beside an important large one runs as often as that does (paper 0,
    /// §8.2). Policies that do not share time take those of higher priority first among equals.
    pub priority: u16,
    /// How long it is thought to run, in nanoseconds, if that is known. Backfilling cannot do
    /// without; the others do not look at it.
    pub estimate_ns: Option<u64>,
}

impl Request {
    /// A job of nobody in particular, of ordinary priority and unknown length.
    pub fn new(job: JobId, nodes: u32) -> Self {
        Self { job, nodes, user: UserId(0), priority: 1, estimate_ns: None }
    }
}

/// A queued job that got its nodes, or a placed one that gets others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The job.
    pub job: JobId,
    /// As many nodes as it wanted, ascending. They stay its own until it leaves or moves.
    pub nodes: Vec<NodeId>,
}

/// Why a policy does not take a job. None ever succeeds if tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArriveError {
    /// A job runs on at least one node.
    #[error("job {0} asks for no nodes; ask for at least one")]
    NoNodes(JobId),
    /// The policy has a job of this number, queued or placed.
    #[error("job {0} is already scheduled; let it leave before it arrives again")]
    Known(JobId),
    /// The policy plans ahead and is not told how long the job runs.
    #[error("job {0} has no estimate of its run time, and this policy needs one; give an estimate")]
    NoEstimate(JobId),
}

impl ArriveError {
    /// Checks that every policy makes of a job with so many nodes.
    pub(crate) fn check(job: JobId, nodes: usize, known: bool) -> Result<(), Self> {
        match (nodes, known) {
            (0, _) => Err(Self::NoNodes(job)),
            (_, true) => Err(Self::Known(job)),
            (_, false) => Ok(()),
        }
    }
}

/// Resource that the jobs of a policy share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The machine's nodes only: a placed job has its nodes to itself until it ends.
    Space,
    /// Nodes and time: placed jobs take turns.
    SpaceAndTime,
}

/// A scheduling policy: who gets which nodes, and in which slots.
///
/// A policy is deterministic: the same calls in the same order give the same answers. How it finds
/// nodes is its own affair: a matrix looks for a row, a tree of queues descends to the least loaded
/// partition of the size that fits, a batch queue waits until enough are free. What all give is a
/// number of nodes and an endless sequence of slots of equal length, in each of which every node
/// has one job or none.
///
/// Jobs wait inside the policy, because only it knows what would fit: [`Policy::arrive`] queues,
/// [`Policy::next_placement`] hands out those that fit now and is called until it has none, after
/// anything that can make room ([`Policy::arrive`], [`Policy::leave`], [`Policy::add_node`]).
///
/// *Time.* A policy has no clock. Calls that need the time are told it; it never runs backwards.
/// Slots pass when [`Policy::run_slot`] or [`Policy::advance`] says so, and a policy remembers whose
/// turn is next: a change does not begin the sequence anew. Where nobody shares time
/// ([`Sharing::Space`]) every slot is the same, and nobody need say that one passed.
pub trait Policy {
    /// The resource that its jobs share.
    fn sharing(&self) -> Sharing;

    /// `node` takes jobs from now on. Does nothing if it already does.
    fn add_node(&mut self, node: NodeId);

    /// `node` takes no new jobs. Those placed on it stay until they [`Policy::leave`].
    fn remove_node(&mut self, node: NodeId);

    /// Queues a job that came at `now`, or earlier: one that queues again says when it first came.
    ///
    /// # Errors
    /// The job wants no nodes, is known, or does not say what this policy must know.
    fn arrive(&mut self, request: &Request, now: ClusterTime) -> Result<(), ArriveError>;

    /// Takes back a job that was placed on `nodes` (not `request.nodes`) earlier, by a head that is
    /// no more. It gets its place even where that exceeds a limit, because it runs already. Nodes
    /// may be given that take no jobs (yet).
    ///
    /// # Errors
    /// The job has no nodes or is known.
    fn restore(
        &mut self,
        request: &Request,
        nodes: &[NodeId],
        now: ClusterTime,
    ) -> Result<(), ArriveError>;

    /// The job is over, or no longer waits. Does nothing for a job that is not known.
    fn leave(&mut self, job: JobId, now: ClusterTime);

    /// Whether a placed job takes part in the rotation. A job that is being prepared or killed, or
    /// whose ranks all wait for the user, keeps its nodes and gets no slots. Jobs begin inactive.
    fn set_active(&mut self, job: JobId, active: bool);

    /// The next queued job that fits now.
    fn next_placement(&mut self, now: ClusterTime) -> Option<Placement>;

    /// A placed job that had better go elsewhere, with its new nodes; the policy counts it as there
    /// from now on. Only policies whose name says so move jobs.
    fn next_migration(&mut self, _now: ClusterTime) -> Option<Placement> {
        None
    }

    /// Jobs that wait for nodes, in the order in which they would get them if all were equal.
    fn queued(&self) -> Vec<JobId>;

    /// One slot passes: names each job that runs in it, once, in no particular order.
    fn run_slot(&mut self, run: &mut dyn FnMut(JobId));

    /// So many slots pass.
    fn advance(&mut self, slots: u64) {
        for _ in 0..slots {
            self.run_slot(&mut |_| {});
        }
    }

    /// Describes the slots to come, exactly and without end, where that is simple: where a round
    /// begins with the next slot that comes back until something changes, and is of at most `most`
    /// slots. Returns whether that is so; otherwise `round` says nothing. Whoever knows the round
    /// need not run its slots one by one, but says with [`Policy::advance`] how many have passed.
    fn next_round(&mut self, _most: u64, _round: &mut Round) -> bool {
        false
    }

    /// The slots to come, of every node that has an active job, ascending by node, all of one
    /// length: slot 0 is the one that [`Policy::run_slot`] would run next, and after the last slot
    /// the first follows. A sequence that does not repeat soon is cut where that does least harm;
    /// each policy says where.
    fn columns(&self) -> Vec<Column>;

    /// Nodes that are up, that no job runs on and that no job can get, because they fill up the
    /// partition of a job that wanted fewer (internal fragmentation).
    fn filling_nodes(&self) -> u32 {
        0
    }

    /// Whether it must know how long jobs run: [`Policy::arrive`] refuses those that do not say.
    fn plans(&self) -> bool {
        false
    }

    /// Whether it moves placed jobs: [`Policy::next_migration`] may have answers.
    fn migrates(&self) -> bool {
        false
    }

    /// The tree of queues as it will be when so many more slots have passed, for people to look at;
    /// nothing changes by looking. `None` for a policy that has none.
    fn tree(&self, _slots: u64) -> Option<Vec<DqtNode>> {
        None
    }

    /// The columns as a timetable to publish.
    fn timetable(
        &self,
        generation: u64,
        start: ClusterTime,
        slice_ns: u64,
        mode: Mode,
    ) -> Timetable {
        let (columns, idle) = (self.columns(), Vec::new());
        Timetable { generation, start, slice_ns, phase_ns: 0, mode, columns, idle }
    }
}
