//! Jobs that may not start yet, for a reason of their own: they run after others, or their array has as many tasks as it may.
//!
//! No policy knows of a held job. When a job is over, all that depend on it are looked at before anything is placed. The
//! ends of these follow one after another and not within each other, so chains may be long.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use kumi_sched::JobId;

use super::job::Job;
use super::{Head, refusal};
use crate::batch::After;
use crate::message::{JobState, Outcome, Refusal, RefusalKind, WaitReason};

/// The held jobs.
#[derive(Debug, Default)]
pub(super) struct HeldJobs {
    /// By job that is not over: the jobs that run after it.
    dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// By the first job of an array with a limit.
    arrays: BTreeMap<JobId, ArrayState>,
    /// Jobs that are over and whose end was not looked at.
    over: VecDeque<JobId>,
    /// By job that is over: those whose records still say that they run after it. It is not forgotten before they are written.
    unsaved: BTreeMap<JobId, BTreeSet<JobId>>,
    /// The same the other way round.
    dropped: BTreeMap<JobId, Vec<JobId>>,
}

/// The tasks of an array that are not over.
#[derive(Debug, Default)]
struct ArrayState {
    /// Those that may start, or have.
    admitted: BTreeSet<JobId>,
    held: BTreeSet<JobId>,
}

impl HeldJobs {
    /// The job is over.
    pub(super) fn set_over(&mut self, job: JobId) {
        self.over.push_back(job);
    }

    /// Whether the end of a job was not looked at.
    pub(super) fn has_news(&self) -> bool {
        !self.over.is_empty()
    }

    fn depend(&mut self, job: JobId, after: &[After]) {
        for before in after {
            self.dependents.entry(before.job).or_default().insert(job);
        }
    }

    /// The job does not wait for these any more.
    pub(super) fn withdraw(&mut self, job: JobId, after: &[After]) {
        for before in after {
            if let Some(dependents) = self.dependents.get_mut(&before.job) {
                dependents.remove(&job);
                if dependents.is_empty() {
                    self.dependents.remove(&before.job);
                }
            }
        }
    }

    /// The job, as it is recorded, still runs after one that is over. A new head finds out again how that one ended, so it need
    /// not be written for that.
    fn drop_unsaved(&mut self, job: JobId, over: JobId) {
        self.unsaved.entry(over).or_default().insert(job);
        self.dropped.entry(job).or_default().push(over);
    }

    /// The record of the job is written as it is now.
    pub(super) fn saved(&mut self, job: JobId) {
        for over in self.dropped.remove(&job).unwrap_or_default() {
            if let Some(jobs) = self.unsaved.get_mut(&over) {
                jobs.remove(&job);
                if jobs.is_empty() {
                    self.unsaved.remove(&over);
                }
            }
        }
    }

    /// The jobs that have to be written before `over` is forgotten: nobody would know then how it ended.
    pub(super) fn unsaved(&self, over: JobId) -> Vec<JobId> {
        self.unsaved.get(&over).into_iter().flatten().copied().collect()
    }

    /// Admits a task to its array. Returns whether it may start.
    fn admit(&mut self, job: JobId, array: JobId, most: u32) -> bool {
        let state = self.arrays.entry(array).or_default();
        let room = state.admitted.len() < most as usize;
        let tasks = if room { &mut state.admitted } else { &mut state.held };
        tasks.insert(job);
        room
    }

    /// The task is over. Returns the next one that may start.
    fn leave(&mut self, job: JobId, array: JobId) -> Option<JobId> {
        let state = self.arrays.get_mut(&array)?;
        state.held.remove(&job);
        let next = state.admitted.remove(&job).then(|| state.held.pop_first()).flatten();
        state.admitted.extend(next);
        if state.admitted.is_empty() && state.held.is_empty() {
            self.arrays.remove(&array);
        }
        next
    }
}

/// Whether a job of this state has ended as one needs that runs after it.
fn fulfils(before: Option<&Job>, after: After) -> bool {
    let succeeded = |job: &Job| job.record.state == JobState::Ended(Outcome::Success);
    after.however || before.is_some_and(succeeded)
}

fn failed(before: JobId) -> Refusal {
    let message = format!(
        "it was to run after job {before}, which did not succeed; run both again, or write {before}:any if it does not matter"
    );
    refusal(RefusalKind::PredecessorFailed, message)
}

impl Head {
    /// Takes from the jobs after which a new one runs those that are over.
    ///
    /// # Errors
    /// One of them has failed.
    pub(super) fn drop_fulfilled(&self, after: &mut Vec<After>) -> Result<(), Refusal> {
        let over = |one: &After| self.jobs.get(one.job).is_none_or(Job::is_over);
        if let Some(one) =
            after.iter().find(|one| over(one) && !fulfils(self.jobs.get(one.job), **one))
        {
            return Err(failed(one.job));
        }
        after.retain(|one| !over(one));
        Ok(())
    }

    /// A queued job comes. It is offered to the policy if nothing holds it.
    pub(super) fn enqueue(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let batch = &job.record.spec.request.batch;
        let held = if batch.after.is_empty() {
            let task = batch.task.and_then(|task| Some((task.array, task.most?)));
            task.is_some_and(|(array, most)| !self.held.admit(id, array, most))
        } else {
            self.held.depend(id, &batch.after);
            true
        };
        job.held = held;
        if held {
            return;
        }
        self.scheduler.enqueue(id);
        if !self.scheduler.has_changed_nodes() {
            self.offer(id);
        }
    }

    /// The jobs of an earlier head: those that have places count in their arrays before others do.
    pub(super) fn restore_held(&mut self) {
        for job in self.jobs.iter().filter(|job| job.is_placed()) {
            if let Some(task) = job.record.spec.request.batch.task
                && task.most.is_some()
            {
                self.held.arrays.entry(task.array).or_default().admitted.insert(job.id());
            }
        }
        let queued = self.jobs.iter().filter(|job| job.record.state == JobState::Queued);
        let queued: Vec<JobId> = queued.map(Job::id).collect();
        for id in queued {
            let Some(job) = self.jobs.get(id) else { continue };
            for before in job.record.spec.request.batch.after.clone() {
                // Its end may have been recorded, and not what follows from it.
                if self.jobs.get(before.job).is_none_or(Job::is_over) {
                    self.held.set_over(before.job);
                }
            }
            self.scheduler.set_nodes_changed();
            self.enqueue(id);
        }
    }

    /// What a held job waits for.
    pub(super) fn held_reason(job: &Job) -> WaitReason {
        let batch = &job.record.spec.request.batch;
        match (batch.after.first(), batch.task) {
            (Some(after), _) => WaitReason::After { job: after.job },
            (None, task) => {
                WaitReason::ArrayFull { most: task.and_then(|it| it.most).unwrap_or(0) }
            }
        }
    }

    /// Looks at what follows from the ends of jobs: others may start, or end too.
    pub(super) fn settle_held(&mut self) {
        while let Some(over) = self.held.over.pop_front() {
            let ended = self.jobs.get(over);
            let task = ended.and_then(|job| job.record.spec.request.batch.task);
            // Of a job that nobody knows any more, now is the latest that this can have been.
            let ended_ms = ended.and_then(|job| job.record.ended_ms);
            let ended_ms = ended_ms.unwrap_or(self.time.wall_ms());
            if let Some(next) = task.and_then(|task| self.held.leave(over, task.array)) {
                if let Some(next) = self.jobs.get_mut(next) {
                    next.released(ended_ms);
                }
                self.release(next);
            }
            for id in self.held.dependents.remove(&over).unwrap_or_default() {
                self.settle_dependent(id, (over, ended_ms));
            }
        }
    }

    /// The job `over` is over since then, after which this one was to run.
    fn settle_dependent(&mut self, id: JobId, (over, ended_ms): (JobId, u64)) {
        let fulfilled = |after: &After| after.job != over || fulfils(self.jobs.get(over), *after);
        let Some(job) = self.jobs.get(id).filter(|job| job.record.state == JobState::Queued) else {
            return;
        };
        if !job.record.spec.request.batch.after.iter().all(fulfilled) {
            return self.end(id, Outcome::Refused(failed(over)));
        }
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.released(ended_ms);
        let after = &mut job.record.spec.request.batch.after;
        after.retain(|one| one.job != over);
        let free = after.is_empty();
        self.held.drop_unsaved(id, over);
        if free {
            self.release(id);
        }
    }

    /// Nothing holds the job any more, unless its array is full.
    pub(super) fn release(&mut self, id: JobId) {
        self.waiting.set_changed(self.time.now());
        let admitted = |job: &Job| {
            let task = job.record.spec.request.batch.task;
            let state = task.and_then(|task| self.held.arrays.get(&task.array));
            state.is_some_and(|state| state.admitted.contains(&job.id()))
        };
        let Some(job) = self.jobs.get(id) else { return };
        if !admitted(job) {
            return self.enqueue(id);
        }
        if let Some(job) = self.jobs.get_mut(id) {
            job.held = false;
        }
        self.scheduler.enqueue(id);
        if !self.scheduler.has_changed_nodes() {
            self.offer(id);
        }
    }
}
