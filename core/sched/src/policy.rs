//! Interface of all scheduling policies.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::demand::{Demand, NodeResources};
use crate::shares::QueueRank;
use crate::{ClusterTime, DqtNode, JobId, ProcessorColumn, ProcessorId, Round};

/// Number of the user to whom a job belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub u32);

/// Demand of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The job.
    pub job: JobId,
    /// What it needs, all at once.
    pub demand: Demand,
    /// The user to whom it belongs.
    pub user: UserId,
    /// Least number of turns in a round of its queue; 0 counts as 1. A job may get more: a small
    /// job beside an important large one runs as often as that does (SCore-D paper, §8.2). Policies
    /// that do not share time use it to choose among jobs that are otherwise equal: higher priority
    /// first.
    pub priority: u16,
    /// How long it should run, in nanoseconds, if known. Backfilling needs it; other policies
    /// ignore it.
    pub estimate_ns: Option<u64>,
}

impl Request {
    /// A job of user 0 that wants so many processors, with ordinary priority and unknown length.
    pub fn new(job: JobId, processors: u32) -> Self {
        let demand = Demand::processors(processors);
        Self { job, demand, user: UserId(0), priority: 1, estimate_ns: None }
    }
}

/// A queued job that got its nodes, or a placed job that moves to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The job.
    pub job: JobId,
    /// As many processors as it wanted, ascending. The job keeps them until it leaves or moves.
    pub processors: Vec<ProcessorId>,
}

/// Why a policy refuses a job. Trying again never helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArriveError {
    /// A job runs on at least one processor.
    #[error("job {0} asks for no processors; ask for at least one")]
    NoProcessors(JobId),
    /// The policy has a job of this number, queued or placed.
    #[error("job {0} is already scheduled; let it leave before it arrives again")]
    Known(JobId),
    /// The policy plans ahead and does not know how long the job runs.
    #[error("job {0} has no estimate of its run time, and this policy needs one; give an estimate")]
    NoEstimate(JobId),
}

/// What keeps a job waiting, as its policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It wants more than the nodes that take jobs have: no job's end would help it.
    TooFewNodes,
    /// Placed jobs have the processors that it needs, or use up the limit of jobs on them.
    PlacedJobs,
    /// Placed jobs have too much of the memory or devices that it needs.
    AmountsTaken,
    /// This waiting job has its place before it.
    Behind(JobId),
}

/// Whether the nodes that take jobs have what a job wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceFit {
    /// Not even without other jobs.
    TooLittle,
    /// Placed jobs have too much of their memory or devices.
    AmountsTaken,
    /// Memory and devices are free; processors may not be.
    Free,
}

/// The obstacles of jobs in the order in which they are served: the first that could ever be placed now has no room,
/// and holds up those behind it.
pub(crate) fn held_up_by_first(
    queued: impl Iterator<Item = (JobId, ResourceFit)>,
) -> Vec<(JobId, Obstacle)> {
    let mut first = None;
    let obstacle = |(job, fit): (JobId, ResourceFit)| {
        let obstacle = match (fit, first) {
            (ResourceFit::TooLittle, _) => Obstacle::TooFewNodes,
            (_, Some(first)) => Obstacle::Behind(first),
            (fit, None) => {
                first = Some(job);
                Obstacle::of_first(fit)
            }
        };
        (job, obstacle)
    };
    queued.map(obstacle).collect()
}

impl Obstacle {
    /// Why a job waits that nobody holds up.
    pub(crate) fn of_first(fit: ResourceFit) -> Self {
        match fit {
            ResourceFit::TooLittle => Self::TooFewNodes,
            ResourceFit::AmountsTaken => Self::AmountsTaken,
            ResourceFit::Free => Self::PlacedJobs,
        }
    }
}

/// Puts what waits in the order of the ranks of its jobs: see [`Policy::reorder`]. Returns whether the order has changed.
pub(crate) fn reorder_queue<T>(
    queue: &mut VecDeque<T>,
    job: impl Fn(&T) -> JobId,
    rank: &mut dyn FnMut(JobId) -> QueueRank,
) -> bool {
    let ranks: Vec<QueueRank> = queue.iter().map(|waiting| rank(job(waiting))).collect();
    if ranks.is_sorted() {
        return false;
    }
    let mut ranked: Vec<(QueueRank, T)> = ranks.into_iter().zip(queue.drain(..)).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    queue.extend(ranked.into_iter().map(|(_, waiting)| waiting));
    true
}

impl ArriveError {
    /// Checks that every policy makes for a job with this many processors.
    pub(crate) fn check(job: JobId, processors: usize, known: bool) -> Result<(), Self> {
        match (processors, known) {
            (0, _) => Err(Self::NoProcessors(job)),
            (_, true) => Err(Self::Known(job)),
            (_, false) => Ok(()),
        }
    }
}

/// Resource that the jobs of a policy share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The machine's processors only: a placed job has its own to itself until it ends.
    Space,
    /// Processors and time: placed jobs take turns.
    SpaceAndTime,
}

/// A scheduling policy: decides which jobs get which processors, in which slots.
///
/// A policy is deterministic: the same calls in the same order give the same answers. Policies find
/// processors in different ways. A matrix looks for a row; a tree of queues descends to the least loaded
/// partition of the size that fits; a batch queue waits until enough processors are free. All give each
/// job its processors, and an endless sequence of slots of equal length. In each slot every processor
/// has one job or none. What else a job takes of its nodes ([`Demand::amounts`]) is its own from its placement
/// until it leaves, in all slots.
///
/// Jobs wait inside the policy, because only it knows which jobs fit. [`Policy::arrive`] queues a
/// job; [`Policy::next_placement`] hands out those that fit now. Call it until it has none, after
/// anything that can make room ([`Policy::arrive`], [`Policy::leave`], [`Policy::add_node`]).
///
/// *Time.* A policy has no clock. Callers pass the time where it is needed; it never runs
/// backwards. Slots pass when [`Policy::run_slot`] or [`Policy::advance`] says so. A policy
/// remembers whose turn is next: a change does not begin the sequence anew. Where jobs do not share
/// time ([`Sharing::Space`]) every slot is the same, and nobody need report that one passed.
pub trait Policy {
    /// The resource that its jobs share.
    fn sharing(&self) -> Sharing;

    /// A node takes jobs from now on, or has other amounts than before.
    fn add_node(&mut self, node: &NodeResources);

    /// The node with this first processor takes no new jobs. Those placed on it stay until they [`Policy::leave`].
    fn remove_node(&mut self, first: ProcessorId);

    /// Queues a job that came at `now` or earlier: a job that queues again keeps its first time.
    ///
    /// # Errors
    /// The job wants no processors, is known, or lacks an estimate that this policy needs.
    fn arrive(&mut self, request: &Request, now: ClusterTime) -> Result<(), ArriveError>;

    /// Takes over a job that an earlier head placed on these processors. The job runs already, so it gets its place even beyond a limit, whatever
    /// its demand. Some of them may be of nodes that do not take jobs (yet).
    ///
    /// # Errors
    /// The job has no processors or is known.
    fn restore(
        &mut self,
        request: &Request,
        processors: &[ProcessorId],
        now: ClusterTime,
    ) -> Result<(), ArriveError>;

    /// Removes a job that has ended or no longer waits. Does nothing for an unknown job.
    fn leave(&mut self, job: JobId, now: ClusterTime);

    /// Sets whether a placed job takes part in the rotation. A job that is starting, being killed,
    /// or waiting in all its ranks keeps its nodes and gets no slots. Jobs begin inactive.
    fn set_active(&mut self, job: JobId, active: bool);

    /// The time is `now`: for policies that count time, if nothing else happens.
    fn set_time(&mut self, _now: ClusterTime) {}

    /// The next queued job that fits now.
    fn next_placement(&mut self, now: ClusterTime) -> Option<Placement>;

    /// A placed job that should move, with its new nodes; the policy counts it there from now on.
    /// Only policies whose name says so move jobs.
    fn next_migration(&mut self, _now: ClusterTime) -> Option<Placement> {
        None
    }

    /// Waiting jobs, in the order in which they would get nodes if all were equal.
    fn queued(&self) -> Vec<JobId>;

    /// Puts the waiting jobs in the order of these ranks, the least first. It asks for the rank of each once, in the order in which
    /// they wait now, and jobs of equal rank keep that order. Policies with several queues order each of them.
    fn reorder(&mut self, rank: &mut dyn FnMut(JobId) -> QueueRank);

    /// Why each of the waiting jobs waits, in any order. It holds once [`Policy::next_placement`] has no more, until
    /// the next change. The cost is that of one look at each waiting job.
    fn obstacles(&self) -> Vec<(JobId, Obstacle)> {
        held_up_by_first(self.queued().into_iter().map(|job| (job, ResourceFit::Free)))
    }

    /// One slot passes: names each job that runs in it, once, in no particular order.
    fn run_slot(&mut self, run: &mut dyn FnMut(JobId));

    /// This many slots pass.
    fn advance(&mut self, slots: u64) {
        for _ in 0..slots {
            self.run_slot(&mut |_| {});
        }
    }

    /// Writes the slots to come into `round`, if a simple form exists. The round must begin with
    /// the next slot, repeat until something changes, and have at most `most` slots. Returns
    /// whether it exists; if not, `round` means nothing. With a round the caller need not run its
    /// slots one by one: it reports with [`Policy::advance`] how many have passed.
    fn next_round(&mut self, _most: u64, _round: &mut Round) -> bool {
        false
    }

    /// The slots to come of every processor that has an active job, ascending and all of one length. [`Policy::run_slot`] would run slot 0 next, and after the last slot the first
    /// follows. A sequence that does not repeat soon is cut where that does least harm; each policy
    /// documents where.
    fn columns(&self) -> Vec<ProcessorColumn>;

    /// Idle processors that no job can get, because they fill up the partition of a job that wanted
    /// fewer (internal fragmentation).
    fn filling_processors(&self) -> u32 {
        0
    }

    /// Sizes of its partitions are powers of this: [`crate::Numbering`] goes by it.
    fn arity(&self) -> u32 {
        2
    }

    /// Whether it must know how long jobs run: [`Policy::arrive`] then refuses jobs without an
    /// estimate.
    fn plans(&self) -> bool {
        false
    }

    /// Whether it moves placed jobs: [`Policy::next_migration`] may then name some.
    fn migrates(&self) -> bool {
        false
    }

    /// The tree of queues as it will be after `slots` more slots, for display; the policy itself
    /// does not change. `None` for a policy without a tree.
    fn tree(&self, _slots: u64) -> Option<Vec<DqtNode>> {
        None
    }
}
