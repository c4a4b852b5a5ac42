//! Ends of jobs: at once, or after ranks had time to end by themselves.

use alloc::vec::Vec;

use kumi_sched::JobId;

use super::Head;
use super::job::Job;
use crate::message::{Command, EndRequest, JobState, Nanos, Outcome, USUAL_GRACE};

/// How long the other ranks have, after one has failed, when a signal asked all of them to end.
const ENDING_GRACE: Nanos = 1_000_000_000;
const MS: Nanos = 1_000_000;
/// The signal that asks a program to end.
const SIGTERM: u8 = 15;
/// Processes that are stopped see it only when they go on.
const SIGCONT: u8 = 18;

impl Head {
    /// The job ends with this outcome unless it is ending already: what is left of it is killed.
    pub(super) fn end(&mut self, id: JobId, outcome: Outcome) {
        let Some(job) = self.jobs.get(id) else { return };
        match job.record.state {
            JobState::Queued => self.finish(id, &outcome),
            JobState::Preparing | JobState::Running => {
                let nodes = job.live_nodes();
                self.enter(id, &JobState::Ending(outcome));
                // Its end waits for nobody who reads slowly.
                self.spooled(id);
                self.set_active(id, false);
                self.cancel_transfers_for(id);
                self.send(&nodes, &Command::Kill { job: id });
                self.finish_if_freed(id);
            }
            JobState::Ending(_) | JobState::Ended(_) => {}
        }
    }

    /// The job ends with this outcome. Ranks that run get SIGTERM, and have so long to end by themselves.
    pub(super) fn end_after(&mut self, id: JobId, outcome: Outcome, grace: Nanos) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if grace == 0 || job.record.state != JobState::Running {
            return self.end(id, outcome);
        }
        job.asked_to_end = true;
        let nodes = job.live_nodes();
        self.jobs.delay_end(id, outcome, self.time.now().saturating_add(grace));
        self.record_end_request(id);
        for signal in [SIGTERM, SIGCONT] {
            self.send(&nodes, &Command::Signal { job: id, signal });
        }
    }

    /// The next head is to know of it, too.
    fn record_end_request(&mut self, id: JobId) {
        let (now, wall_ms) = (self.time.now(), self.time.wall_ms());
        let Some(job) = self.jobs.get_mut(id) else { return };
        let Some((outcome, at)) = job.delayed_end.clone() else { return };
        let grace_ms = at.saturating_sub(now).div_ceil(MS);
        let at_ms = wall_ms.saturating_add(grace_ms);
        job.record.end_request = Some(EndRequest { outcome, at_ms, grace_ms });
        self.persist(id);
    }

    /// After a restart: jobs that an earlier head has asked to end have the rest of their time. They were told before.
    pub(super) fn restore_end_requests(&mut self) {
        let (now, wall_ms) = (self.time.now(), self.time.wall_ms());
        let running = self.jobs.iter_mut().filter(|job| job.record.state == JobState::Running);
        let mut requests = Vec::new();
        for job in running {
            if let Some(request) = job.record.end_request.clone() {
                job.asked_to_end = true;
                requests.push((job.id(), request));
            }
        }
        for (id, EndRequest { outcome, at_ms, grace_ms }) in requests {
            let left = at_ms.saturating_sub(wall_ms).min(grace_ms).saturating_mul(MS);
            self.jobs.delay_end(id, outcome, now.saturating_add(left));
        }
    }

    /// Sets when the running job has run for as long as it may.
    pub(super) fn limit_run(&mut self, id: JobId) {
        let Some(record) = self.jobs.get(id).map(|job| &job.record) else { return };
        if let (Some(limit), Some(start)) =
            (record.spec.request.batch.time_limit_ns, record.started_ms)
        {
            let run_ms = self.time.wall_ms().saturating_sub(start);
            let left = limit.saturating_sub(run_ms.saturating_mul(1_000_000));
            self.run_limits.set(id, self.time.now().saturating_add(left));
        }
    }

    /// After a restart: the limits of jobs that an earlier head has started.
    pub(super) fn limit_restored_runs(&mut self) {
        let running = self.jobs.iter().filter(|job| job.record.state == JobState::Running);
        // Who was asked to end is not asked again.
        let running = running.filter(|job| job.record.end_request.is_none());
        let running: Vec<JobId> = running.map(Job::id).collect();
        for id in running {
            self.limit_run(id);
        }
    }

    /// Has the jobs end whose time limit is over.
    pub(super) fn check_run_limits(&mut self) {
        for id in self.run_limits.due(self.time.now()) {
            self.run_limits.forget(id);
            let job = self.jobs.get(id);
            if let Some(limit) = job.and_then(|job| job.record.spec.request.batch.time_limit_ns) {
                self.end_after(id, Outcome::TimeLimit(limit), USUAL_GRACE);
            }
        }
    }

    /// A rank failed: the job ends, at once or, if its ranks were asked to end, a little later.
    pub(super) fn end_by_rank(&mut self, id: JobId, outcome: Outcome) {
        let asked = |job: &&Job| job.asked_to_end && job.record.state == JobState::Running;
        match self.jobs.get(id).filter(asked) {
            // Its time is set, and so is how it ends.
            Some(job) if job.delayed_end.is_some() => {}
            Some(_) => {
                let at = self.time.now().saturating_add(ENDING_GRACE);
                self.jobs.delay_end(id, outcome, at);
            }
            None => self.end(id, outcome),
        }
    }

    /// Ends the jobs whose ranks have had their time to end by themselves.
    pub(super) fn check_delayed_ends(&mut self) {
        let now = self.time.now();
        for (id, outcome) in self.jobs.due_ends(now) {
            if let Some(job) = self.jobs.get_mut(id) {
                job.delayed_end = None;
            }
            self.end(id, outcome);
        }
        self.jobs.set_next_end(now);
    }
}
