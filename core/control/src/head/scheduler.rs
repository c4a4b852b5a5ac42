//! Scheduler of the head: decides which of the queued jobs runs next, and on which nodes.
//!
//! The decision itself is the policy's ([`kumi_sched`]). The scheduler numbers the processors, offers queued jobs to the policy
//! with what they demand, and takes placements from it.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use kumi_sched::registry::{Limits, PolicyMaker};
use kumi_sched::{
    ArriveError, ClusterTime, Column, Demand, DqtNode, FairPolicy, FairShares, JobId, NodeId,
    Obstacle, Placement, Policy, RenewedColumns, Request, Sharing, UserId,
};

use super::capacity::{Capacity, Kinds};
use super::idle::IdleJobs;
use super::job::Job;
use super::job_table::JobTable;
use super::membership::Membership;
use super::node_numbers::{self, NodeNumbers};
use super::policy::{self, PolicyError};
use super::shares::ShareUsers;
use super::sizing::{self, NodeShare};
use super::time::HeadTime;
use super::{HeadConfig, refusal};
use crate::message::{JobState, NodeDescription, Refusal, RefusalKind};

/// Most bytes of a policy's name that a client may ask for: it is shown to everybody.
const LONGEST_NAME: usize = 64;

/// A policy, in the order of fair shares if users have any.
type SharedPolicy = FairPolicy<Box<dyn Policy + Send>>;

/// The policy in force, and the queued jobs that it does not know of.
pub(super) struct Scheduler {
    policy: SharedPolicy,
    /// Makes the policy anew when the numbers of processors change.
    maker: PolicyMaker,
    name: String,
    limits: Limits,
    /// Most jobs on one processor, as configured.
    max_jobs: u32,
    numbers: NodeNumbers,
    /// Nodes came or went, or are no longer expected.
    nodes_changed: bool,
    /// Queued jobs that the policy has not been told of.
    undecided: BTreeSet<JobId>,
    share_users: ShareUsers,
}

/// A policy that takes over, with the numbers of processors that it knows.
pub(super) struct NewPolicy {
    maker: PolicyMaker,
    policy: SharedPolicy,
    numbers: NodeNumbers,
    limits: Limits,
}

/// A policy that was made anew, with what it was made for.
struct Renewed {
    policy: SharedPolicy,
    numbers: NodeNumbers,
    limits: Limits,
}

impl Scheduler {
    /// # Errors
    /// No scheduling policy has the name in `config`, or clusters cannot use it.
    pub(super) fn new(config: &HeadConfig) -> Result<Self, PolicyError> {
        let limits = Limits::of_cluster(1, config.max_jobs_per_processor);
        let maker = policy::find(&config.policy)?;
        let shares = config.shares.as_ref().map(|shares| FairShares::new(shares.rules));
        Ok(Self {
            policy: FairPolicy::new(maker.make(limits), shares),
            maker,
            name: config.policy.clone(),
            limits,
            max_jobs: config.max_jobs_per_processor,
            numbers: NodeNumbers::default(),
            nodes_changed: false,
            undecided: BTreeSet::new(),
            share_users: ShareUsers::new(config.shares.as_ref()),
        })
    }

    /// The account of users, if they have shares.
    pub(super) fn shares_mut(&mut self) -> Option<&mut FairShares> {
        self.policy.shares_mut()
    }

    /// Names of users who have shares.
    pub(super) fn share_users(&self) -> &ShareUsers {
        &self.share_users
    }

    /// The user has or had a job.
    pub(super) fn meet_user(&mut self, uid: u32, name: &str) {
        if let Some(shares) = self.policy.shares_mut() {
            shares.set_weight(UserId(uid), self.share_users.meet(uid, name));
        }
    }

    /// When waiting jobs may come into another order though nothing happens.
    pub(super) fn next_order(&self) -> Option<u64> {
        self.policy.shares().and_then(FairShares::next_order)
    }

    /// The time, before something changes.
    pub(super) fn set_time(&mut self, now: ClusterTime) {
        self.policy.set_time(now);
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

    /// Most jobs on one processor, where they share time.
    pub(super) fn jobs_per_processor(&self) -> u32 {
        self.limits.jobs_per_processor
    }

    /// What is counted beside processors.
    pub(super) fn kinds(&self) -> &Kinds {
        self.numbers.kinds()
    }

    /// Numbers of a node's processors.
    pub(super) fn processors(&self, node: NodeId) -> Range<u32> {
        self.numbers.numbering().processors(node)
    }

    /// What a job demands that has its nodes.
    pub(super) fn placed_demand(&self, job: &Job) -> Demand {
        match job.demand.parts {
            // An earlier head has placed it.
            0 => self.numbers.placed_demand(&job.record),
            _ => job.demand,
        }
    }

    /// Why jobs wait of which the policy knows.
    pub(super) fn obstacles(&self) -> Vec<(JobId, Obstacle)> {
        self.policy.obstacles()
    }

    /// Slots of every node, to come, where `last` were those until now and so many ticks have passed. Also how many slots
    /// processors have, which is about what this costs.
    pub(super) fn renew_columns(&self, last: Vec<Column>, ticks: u64) -> (RenewedColumns, u64) {
        let columns = self.policy.columns();
        let slots = columns.iter().map(|column| column.slots.len() as u64).sum();
        (self.numbers.numbering().renew_columns(&columns, last, ticks), slots)
    }

    /// The policy's tree of queues after so many slots, if it has one.
    pub(super) fn tree(&self, slots: u64) -> Option<Vec<DqtNode>> {
        self.policy.tree(slots)
    }

    /// The processors of a placement by node.
    pub(super) fn shares(&self, placement: &Placement, membership: &Membership) -> Vec<NodeShare> {
        self.numbers.shares(placement, membership)
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

    /// The job is over, and the policy never heard of it.
    pub(super) fn forget_undecided(&mut self, job: JobId) {
        self.undecided.remove(&job);
    }

    pub(super) fn add_node(&mut self, node: &NodeDescription) {
        self.policy.add_node(&self.numbers.resources(node));
    }

    pub(super) fn remove_node(&mut self, node: NodeId) {
        // One that was removed from the cluster has no numbers, and the policy does not know it.
        if !self.processors(node).is_empty() {
            self.policy.remove_node(self.numbers.first(node));
        }
    }

    /// Nodes came or went, or are no longer expected: jobs may want another number of them.
    pub(super) fn set_nodes_changed(&mut self) {
        self.nodes_changed = true;
    }

    /// A queued job comes.
    pub(super) fn enqueue(&mut self, job: JobId) {
        self.undecided.insert(job);
    }

    /// Whether nodes have other sizes or kinds of things than the policy in force knows. Before it is replaced, it must hear of
    /// the slots that have passed.
    pub(super) fn is_outdated(&self, jobs: &JobTable, membership: &Membership) -> bool {
        let placed = node_numbers::placed(jobs.iter());
        NodeNumbers::new(self.policy.arity(), membership, placed) != self.numbers
    }

    /// Makes the policy anew, for other numbers of processors or at the first event. It takes back the placed jobs. Those that
    /// wait are offered to it again.
    pub(super) fn renew(
        &mut self,
        jobs: &mut JobTable,
        membership: &Membership,
        idle: &IdleJobs,
        time: &HeadTime,
    ) {
        let Renewed { mut policy, numbers, limits } =
            self.make_policy(&self.maker, jobs, membership);
        for job in jobs.iter_mut().filter(|job| !job.is_over()) {
            let user = &job.record.spec.user;
            let (user, weight) = (user.uid, self.share_users.meet(user.uid, &user.name));
            if let Some(shares) = policy.shares_mut() {
                shares.set_weight(UserId(user), weight);
            }
            if job.is_placed() {
                // Refused if none of its nodes is configured any more; then it is about to end.
                job.scheduled = restore(&mut policy, &numbers, job, idle, time).is_ok();
            } else if job.record.state == JobState::Queued {
                job.scheduled = false;
                if !job.held {
                    self.undecided.insert(job.id());
                    self.nodes_changed = true;
                }
            }
        }
        (self.policy, self.numbers, self.limits) = (policy, numbers, limits);
    }

    /// A policy that knows the nodes that are attached.
    fn make_policy(
        &self,
        maker: &PolicyMaker,
        jobs: &JobTable,
        membership: &Membership,
    ) -> Renewed {
        let arity = maker.make(self.limits).arity();
        let numbers = NodeNumbers::new(arity, membership, node_numbers::placed(jobs.iter()));
        let limits = Limits::of_cluster(numbers.numbering().count(), self.max_jobs);
        let shares = self.policy.shares().map(FairShares::for_successor);
        let mut policy = FairPolicy::new(maker.make(limits), shares);
        for node in numbers.away(membership, node_numbers::placed(jobs.iter())) {
            policy.add_node(&node);
            policy.remove_node(node.first());
        }
        let attached = membership.tree().routes().nodes();
        for node in attached.filter_map(|node| membership.description(node)) {
            policy.add_node(&numbers.resources(node));
            if !membership.takes_jobs(node.node) {
                policy.remove_node(numbers.first(node.node));
            }
        }
        Renewed { policy, numbers, limits }
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
        capacity: &Capacity<'_>,
        now: ClusterTime,
    ) -> Vec<JobId> {
        if !core::mem::take(&mut self.nodes_changed) {
            return Vec::new();
        }
        self.reconsider(jobs, capacity, now);
        self.undecided.iter().copied().collect()
    }

    /// Queued jobs may want something else now, as those that left their number of nodes open. If one does, all
    /// queue again in the order in which they were submitted.
    fn reconsider(&mut self, jobs: &mut JobTable, capacity: &Capacity<'_>, now: ClusterTime) {
        let queued = |job: &&Job| job.scheduled && job.record.state == JobState::Queued;
        let queued: Vec<&Job> = jobs.iter().filter(queued).collect();
        let other =
            |job: &&Job| sizing::demand(&job.record.spec.request, capacity) != Ok(Some(job.demand));
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

    /// Offers a job to the policy, once it can be said what it demands: what that depends on
    /// changes only when nodes come or go. Returns why the job is refused, if it is.
    pub(super) fn offer(
        &mut self,
        id: JobId,
        jobs: &mut JobTable,
        capacity: &Capacity<'_>,
        time: &HeadTime,
    ) -> Option<Refusal> {
        let queued = |job: &&mut Job| !job.scheduled && job.record.state == JobState::Queued;
        let Some(request) = jobs.get(id).map(|job| &job.record.spec.request) else {
            self.undecided.remove(&id);
            return None;
        };
        let demand = sizing::demand(request, capacity);
        if demand == Ok(None) {
            return None;
        }
        self.undecided.remove(&id);
        let job = jobs.get_mut(id).filter(queued)?;
        let user = &job.record.spec.user;
        self.meet_user(user.uid, &user.name);
        match demand {
            Ok(demand) => {
                (job.scheduled, job.demand) = (true, demand.unwrap_or(job.demand));
                let arrived = self.policy.arrive(&job.scheduling_request(), job.arrival(time));
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
    ) -> Result<NewPolicy, Refusal> {
        let bad = |message: String| refusal(RefusalKind::BadRequest, message);
        if name.len() > LONGEST_NAME {
            return Err(bad(format!(
                "a scheduling policy's name has at most {LONGEST_NAME} bytes, not {}",
                name.len()
            )));
        }
        let maker = policy::find(name).map_err(|error| bad(error.to_string()))?;
        let Renewed { mut policy, numbers, limits } = self.make_policy(&maker, jobs, membership);
        for job in jobs.iter().filter(|job| !job.is_over()) {
            let unknown = job.record.spec.request.estimate_ns.is_none();
            let taken = match (job.is_placed(), job.scheduled) {
                (true, true) => restore(&mut policy, &numbers, job, idle, time),
                (false, true) => policy.arrive(&job.scheduling_request(), job.arrival(time)),
                // It is not known yet what it demands.
                (false, false) if unknown && policy.plans() => {
                    Err(ArriveError::NoEstimate(job.id()))
                }
                (_, false) => Ok(()),
            };
            taken.map_err(|error| {
                bad(format!("policy {name} cannot take over: {error}; end the job first"))
            })?;
        }
        Ok(NewPolicy { maker, policy, numbers, limits })
    }

    /// Puts a policy in force that [`Scheduler::prepare_change`] has made.
    pub(super) fn change(&mut self, name: &str, new: NewPolicy) {
        (self.policy, self.numbers, self.limits) = (new.policy, new.numbers, new.limits);
        self.maker = new.maker;
        self.name = name.to_string();
    }
}

/// Tells a policy of a job that has nodes.
fn restore(
    policy: &mut SharedPolicy,
    numbers: &NodeNumbers,
    job: &Job,
    idle: &IdleJobs,
    time: &HeadTime,
) -> Result<(), ArriveError> {
    let request = Request {
        demand: numbers.placed_demand(&job.record),
        ..job.remaining_request(time.wall_ms())
    };
    let processors = numbers.processors(&job.record.spec.layout);
    let known = policy.shares().is_some_and(|shares| shares.knows_past(job.id()));
    policy.restore(&request, &processors, time.cluster())?;
    policy.set_active(job.id(), idle.takes_turns(job));
    if let Some(shares) = policy.shares_mut()
        && !known
    {
        let run_ms = time.wall_ms().saturating_sub(job.record.started_ms.unwrap_or(u64::MAX));
        shares.add_past(job.id(), run_ms.saturating_mul(1_000_000));
    }
    Ok(())
}
