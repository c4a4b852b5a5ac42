//! Jobs that have not started: what each waits for, who is told of it, and when the head withdraws it.
//!
//! Reasons are worked out when somebody asks, or for clients that follow a waiting job, at most once in [`PAUSE`] for
//! all jobs together. So an event costs nothing for those that wait.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use core::mem::{Discriminant, discriminant};
use core::time::Duration;

use kumi_sched::{JobId, Obstacle, Sharing};

use super::capacity::Capacity;
use super::deadlines::Deadlines;
use super::job::{Job, PartState};
use super::{Head, refusal};
use crate::message::{
    ClientReply, JobState, Nanos, Outcome, Refusal, RefusalKind, WaitLimit, WaitReason,
};

/// How long a job has waited before its followers hear why, and the least time between two such looks.
const PAUSE: Nanos = 1_000_000_000;

/// Deadlines of waiting jobs, and what their followers know.
#[derive(Debug, Default)]
pub(super) struct WaitingJobs {
    /// When jobs are withdrawn.
    deadlines: Deadlines,
    /// Queued jobs with followers, and the kind of reason of which these were told.
    told: BTreeMap<JobId, Option<Discriminant<WaitReason>>>,
    /// When to look for reasons that followers do not know.
    look_at: Option<Nanos>,
}

impl WaitingJobs {
    /// The job is withdrawn at `at` unless it leaves the queue before.
    pub(super) fn set_deadline(&mut self, job: JobId, at: Nanos) {
        self.deadlines.set(job, at);
    }

    /// The job has left the queue.
    pub(super) fn forget(&mut self, job: JobId) {
        self.told.remove(&job);
        self.deadlines.forget(job);
    }

    /// Something changed that may give jobs other reasons.
    pub(super) fn set_changed(&mut self, now: Nanos) {
        if !self.told.is_empty() {
            self.look_at.get_or_insert(now.saturating_add(PAUSE));
        }
    }

    /// A client follows the queued job, of which it knows nothing.
    pub(super) fn followed(&mut self, job: JobId, now: Nanos) {
        self.told.insert(job, None);
        self.set_changed(now);
    }

    fn take_look(&mut self, now: Nanos) -> bool {
        self.look_at.take_if(|at| now >= *at).is_some()
    }

    /// When a job is withdrawn next, or followers are told something.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let first = self.deadlines.first();
        first.into_iter().chain(self.look_at).min()
    }
}

/// What the reasons of all jobs depend on.
struct WaitContext<'a> {
    capacity: Capacity<'a>,
    /// Processors without a job.
    free: u32,
}

/// What a job waits for whose nodes prepare.
fn preparation(job: &Job) -> WaitReason {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let live = || job.parts.values().filter(|part| part.state == PartState::Live);
    let ready = live().filter(|part| part.prepared.is_some()).count();
    WaitReason::Preparing { ready: count(ready), nodes: count(live().count()) }
}

impl Head {
    /// What each job waits for that has not started, ascending. The cost is that of a look at all jobs and nodes.
    pub(super) fn wait_reasons(&self) -> Vec<(JobId, WaitReason)> {
        let obstacles: BTreeMap<JobId, Obstacle> = self.scheduler.obstacles().into_iter().collect();
        let capacity = self.membership.capacity(self.time.is_starting());
        let known = WaitContext { free: self.free_processors(&capacity), capacity };
        let reason = |job: &Job| match job.record.state {
            JobState::Queued if job.held => Some(Self::held_reason(job)),
            JobState::Queued => Some(self.queue_reason(job, obstacles.get(&job.id()), &known)),
            JobState::Preparing => Some(preparation(job)),
            JobState::Running | JobState::Ending(_) | JobState::Ended(_) => None,
        };
        self.jobs.iter().filter_map(|job| Some((job.id(), reason(job)?))).collect()
    }

    /// Processors of nodes that take jobs, and how many of them no job has.
    fn free_processors(&self, capacity: &Capacity<'_>) -> u32 {
        let taken = self.taken().into_iter().filter(|(node, _)| self.membership.takes_jobs(*node));
        let taken = taken.map(|(_, taken)| taken.processors()).fold(0, u32::saturating_add);
        capacity.processors_up().saturating_sub(taken)
    }

    fn queue_reason(
        &self,
        job: &Job,
        obstacle: Option<&Obstacle>,
        context: &WaitContext<'_>,
    ) -> WaitReason {
        let WaitContext { capacity, free } = context;
        let (up, nodes, has) = (capacity.attached, capacity.nodes, capacity.processors_up());
        let largest = capacity.groups.iter().map(|group| group.size.processors).max();
        let wanted = job.demand.count(largest.unwrap_or(1));
        let drained = |wanted| WaitReason::NodesDrained {
            wanted,
            has,
            take: up,
            drained: capacity.drained,
            nodes,
        };
        match obstacle {
            // Its size is that of the nodes that take jobs, and there are none.
            None if capacity.drained > 0 && up == 0 && !capacity.growing => {
                drained(job.record.spec.request.ranks)
            }
            Some(Obstacle::TooFewNodes) if capacity.drained > 0 => drained(wanted),
            // The policy does not know it.
            None => WaitReason::NodesAttaching { up, nodes },
            Some(Obstacle::TooFewNodes) => WaitReason::NodesDown { wanted, has, up, nodes },
            Some(&Obstacle::Behind(first)) => self.place_reason(job, first),
            Some(Obstacle::AmountsTaken) => WaitReason::ResourcesTaken,
            Some(Obstacle::PlacedJobs) => match self.scheduler.sharing() {
                Sharing::Space => WaitReason::ProcessorsTaken { wanted, free: *free },
                Sharing::SpaceAndTime => {
                    WaitReason::ProcessorsFull { limit: self.scheduler.jobs_per_processor() }
                }
            },
        }
    }

    /// Why a job is behind another.
    fn place_reason(&self, job: &Job, first: JobId) -> WaitReason {
        let other = self.jobs.get(first).is_some_and(|first| first.uid() != job.uid());
        if other && first > job.id() {
            WaitReason::BehindShare { job: first }
        } else {
            WaitReason::Behind { job: first }
        }
    }

    fn reason_of(&self, id: JobId) -> Option<WaitReason> {
        self.wait_reasons().into_iter().find(|(job, _)| *job == id).map(|(_, reason)| reason)
    }

    /// Whether the job is in the queue, so that it may be withdrawn.
    fn is_queued(&self, id: JobId) -> bool {
        self.jobs.get(id).is_some_and(|job| job.record.state == JobState::Queued)
    }

    /// Why a job that may not wait at all is refused, if it was not placed when it came. Nothing of it is kept then.
    pub(super) fn take_back(&mut self, id: JobId) -> Option<Refusal> {
        let limit = self.jobs.get(id)?.record.spec.request.wait;
        if limit != Some(WaitLimit::No) || !self.is_queued(id) {
            return None;
        }
        let reason = self.reason_of(id)?;
        self.drop_queued(id);
        let message = format!(
            "the job cannot start at once: {reason}; try again, or let it wait with --wait=10m"
        );
        Some(refusal(RefusalKind::NotNow, message))
    }

    /// Sets when the queued job is withdrawn, if it does not wait for ever.
    pub(super) fn limit_wait(&mut self, id: JobId) {
        // One that has run waits for its nodes however long that takes.
        let Some(job) = self.jobs.get(id).filter(|job| job.record.restarts == 0) else { return };
        if let Some(WaitLimit::AtMost(limit)) = job.record.spec.request.wait {
            let left = limit.saturating_sub(job.age(&self.time));
            self.waiting.set_deadline(id, self.time.now().saturating_add(left));
        }
    }

    /// After a restart: the deadlines of jobs that an earlier head has queued.
    pub(super) fn limit_restored_waits(&mut self) {
        let queued = self.jobs.iter().filter(|job| job.record.state == JobState::Queued);
        let queued: Vec<JobId> = queued.map(Job::id).collect();
        for id in queued {
            self.limit_wait(id);
        }
    }

    /// Withdraws the jobs that have waited for too long. Whatever can be placed is placed before, also when one of them
    /// goes that held others up.
    pub(super) fn check_wait_limits(&mut self) {
        let due = self.waiting.deadlines.due(self.time.now());
        if due.is_empty() {
            return;
        }
        let reasons: BTreeMap<JobId, WaitReason> = self.wait_reasons().into_iter().collect();
        for id in due {
            self.waiting.deadlines.forget(id);
            let request = self.jobs.get(id).map(|job| &job.record.spec.request);
            let limit = request.and_then(|request| request.wait);
            if let (Some(reason), Some(WaitLimit::AtMost(limit))) = (reasons.get(&id), limit)
                && self.is_queued(id)
            {
                let limit = Duration::from_nanos(limit);
                let message = format!(
                    "it did not start within {limit:?}: {reason}; try again, or let it wait longer"
                );
                self.end(id, Outcome::Refused(refusal(RefusalKind::NotNow, message)));
                self.schedule();
            }
        }
    }

    /// Tells those that follow queued jobs what these wait for, unless they know of a reason of this kind.
    pub(super) fn tell_reasons(&mut self) {
        if !self.waiting.take_look(self.time.now()) {
            return;
        }
        for (job, reason) in self.wait_reasons() {
            let Some(told) = self.waiting.told.get_mut(&job) else { continue };
            let kind = Some(discriminant(&reason));
            if core::mem::replace(told, kind) == kind {
                continue;
            }
            for client in self.subscribers.followers(job) {
                self.actions.reply(client, ClientReply::Waits { job, reason });
            }
        }
    }
}
