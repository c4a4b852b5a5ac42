//! Submission of jobs: one, or an array of jobs that differ in an index only.

use alloc::format;
use alloc::string::ToString;

use kumi_sched::JobId;

use super::job::Job;
use super::quota::Account;
use super::{Head, admission, refusal};
use crate::batch::{ARRAY_INDEX, ArrayIndices, ArrayTask, MOST_TASKS};
use crate::message::{
    JobRecord, JobRequest, JobSpec, JobState, JobUse, Refusal, RefusalKind, User, WaitLimit,
};
use crate::user::check_root_jobs;
use alloc::vec::Vec;

impl Head {
    /// A user as the quota sees them.
    pub(super) fn account(&self, user: &User) -> Account {
        Account { uid: user.uid, privileged: self.owns_cluster(user) }
    }

    /// A new job, or the one that was submitted with this token before.
    ///
    /// # Errors
    /// Nothing of a refused job is kept.
    pub(super) fn submit(&mut self, user: &User, request: JobRequest) -> Result<JobId, Refusal> {
        if let Some(known) = self.known(user, request.token)? {
            return Ok(known);
        }
        let request = self.admit(user, request, 1)?;
        let id = self.accept(user, request);
        self.schedule();
        if let Some(refusal) = self.take_back(id) {
            return Err(refusal);
        }
        self.record_queued(id);
        Ok(id)
    }

    /// The tasks of a new array, whose numbers follow one another; if it was submitted before, those that are missing.
    /// Returns the first and the last.
    ///
    /// # Errors
    /// Nothing of a refused array is kept.
    pub(super) fn submit_array(
        &mut self,
        user: &User,
        request: JobRequest,
        array: &ArrayIndices,
    ) -> Result<(JobId, JobId), Refusal> {
        let ArrayIndices { indices, most } = array;
        let count = check_indices(array)?;
        if let Some(first) = self.known(user, request.token)? {
            return self.known_array(first, array);
        }
        let request = self.admit(user, request, count)?;
        if request.wait == Some(WaitLimit::No) {
            let message =
                "tasks of an array wait for each other; give --wait=TIME or --wait=any".into();
            return Err(refusal(RefusalKind::BadRequest, message));
        }
        let array = self.jobs.next_id();
        let mut last = array;
        for (offset, &index) in (0..).zip(indices) {
            let mut task =
                JobRequest { token: request.token.wrapping_add(offset), ..request.clone() };
            task.batch.task = Some(ArrayTask { array, index, most: *most });
            task.env.retain(|(name, _)| name != ARRAY_INDEX);
            task.env.push((ARRAY_INDEX.to_string(), index.to_string()));
            last = self.accept(user, task);
        }
        self.schedule();
        for id in (array.0..=last.0).map(JobId) {
            self.record_queued(id);
        }
        Ok((array, last))
    }

    /// The job that was submitted with this token.
    ///
    /// # Errors
    /// It is another user's.
    fn known(&self, user: &User, token: u128) -> Result<Option<JobId>, Refusal> {
        let Some(known) = self.jobs.by_token(token) else { return Ok(None) };
        if known.record.spec.user.is_same(user) {
            return Ok(Some(known.id()));
        }
        let message = "this token belongs to another user's job; generate a new one".into();
        Err(refusal(RefusalKind::NotPermitted, message))
    }

    /// The tasks of an array that was submitted before: all are recorded in one step, so there are all or none.
    ///
    /// # Errors
    /// The jobs from `first` on are not those of the array.
    fn known_array(&self, first: JobId, array: &ArrayIndices) -> Result<(JobId, JobId), Refusal> {
        let ids = || (first.0..).map(JobId);
        let is_task = |(id, &index): (JobId, &u32)| {
            let task = self.jobs.get(id).and_then(|job| job.record.spec.request.batch.task);
            task == Some(ArrayTask { array: first, index, most: array.most })
        };
        // Those between may be forgotten already, as jobs that are over are.
        let ends = ids().zip(&array.indices);
        let ends = [ends.clone().next(), ends.last()].map(|end| end.filter(|end| is_task(*end)));
        if let [Some((first, _)), Some((last, _))] = ends {
            return Ok((first, last));
        }
        let message = "this token was used for other jobs; generate a new one".into();
        Err(refusal(RefusalKind::BadRequest, message))
    }

    /// Checks a request for so many jobs, and completes it with the cluster's settings.
    ///
    /// # Errors
    /// It cannot be.
    fn admit(
        &self,
        user: &User,
        mut request: JobRequest,
        count: u32,
    ) -> Result<JobRequest, Refusal> {
        if self.shutdown.is_some() {
            let message =
                "the cluster is shutting down; start it again, then submit the job again".into();
            return Err(refusal(RefusalKind::NodeLost, message));
        }
        check_root_jobs(user, self.config.root_jobs)?;
        if request.priority == 0 {
            request.priority = self.config.priority;
        }
        request.estimate_ns = request.estimate_ns.or(self.config.estimate_ns);
        let limit = &mut request.batch.time_limit_ns;
        *limit = limit.or(self.config.time_limit_ns);
        request.wait = request.wait.or(Some(self.config.wait));
        request.resources.complete(&self.config.resources);
        for (name, value) in &self.config.env {
            if !request.env.iter().any(|(set, _)| set == name) {
                request.env.push((name.clone(), value.clone()));
            }
        }
        // The head gives a job its place.
        request.batch.task = None;
        // What a first start has read of its input, a second one cannot read again.
        request.batch.detached |= request.batch.requeues > 0;
        let max_priority = (!self.owns_cluster(user)).then_some(self.config.max_priority);
        let capacity = self.membership.capacity(self.time.is_starting());
        admission::check(&request, &capacity, &self.scheduler, max_priority)?;
        for after in &request.batch.after {
            self.permitted(user, after.job, "have a job run after it")?;
        }
        self.drop_fulfilled(&mut request.batch.after)?;
        self.quota.check_jobs(self.account(user), &request, count)?;
        Ok(request)
    }

    /// Takes a job. Nothing of it is recorded yet.
    fn accept(&mut self, user: &User, request: JobRequest) -> JobId {
        let job = Job::new(self.new_record(user, request));
        let id = job.id();
        self.quota.charge(user.uid, 1, job.charged);
        self.jobs.insert(job);
        self.enqueue(id);
        id
    }

    /// Records a new job that waits. One that got its nodes at once is recorded as preparing already.
    fn record_queued(&mut self, id: JobId) {
        if self.jobs.get(id).is_some_and(|job| job.record.state == JobState::Queued) {
            self.limit_wait(id);
            self.persist(id);
        }
    }

    /// Forgets a queued job of which there is no record yet.
    pub(super) fn drop_queued(&mut self, id: JobId) {
        self.leave_rotation(id);
        if let Some(job) = self.jobs.remove(id) {
            self.held.withdraw(id, &job.record.spec.request.batch.after);
            self.quota.refund(job.uid(), 1, job.charged);
        }
    }

    /// The record of a new job, with the cluster's settings where the request has none.
    fn new_record(&self, user: &User, mut request: JobRequest) -> JobRecord {
        let id = self.jobs.next_id();
        let wall_ms = self.time.wall_ms();
        let (channel_key, seal_key) = self.keys.derive(id, request.token, wall_ms);
        let encrypt = request.encrypt.unwrap_or(self.config.encrypt);
        request.encrypt = Some(encrypt);
        let seal_key = encrypt.then_some(seal_key);
        let (user, layout) = (user.clone(), Vec::new());
        let spec = JobSpec { job: id, user, request, layout, channel_key, seal_key };
        JobRecord {
            spec,
            state: JobState::Queued,
            submitted_ms: wall_ms,
            started_ms: None,
            ended_ms: None,
            output_not_kept: 0,
            restarts: 0,
            end_request: None,
            used: JobUse::default(),
        }
    }
}

/// The number of tasks of an array.
fn check_indices(array: &ArrayIndices) -> Result<u32, Refusal> {
    let bad = |message| Err(refusal(RefusalKind::BadRequest, message));
    let count = u32::try_from(array.indices.len()).unwrap_or(u32::MAX);
    if count == 0 || count > MOST_TASKS {
        return bad(format!("an array has 1 to {MOST_TASKS} tasks; give other indices"));
    }
    if !array.indices.is_sorted_by(|one, next| one < next) {
        return bad("the indices of an array ascend; give each once".to_string());
    }
    if array.most == Some(0) {
        return bad("at least one task of an array runs at a time; give 1 or more".to_string());
    }
    Ok(count)
}
