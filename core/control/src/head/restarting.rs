//! Jobs that are started again: those that failed because a node was lost or the head was away, and not by themselves.
//!
//! Such a job goes back to the queue with its number once nothing of it can run any more: each of its nodes has said that
//! nothing is left, or its lease is over. Nodes know the next start by another name, see [`super::starts`].

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::job::Job;
use super::{Head, HeadAction};
use crate::message::{Command, JobState, JobUse, NodeSet, Outcome};

/// Why a job is started again that ended so; none if that is its own end.
fn cause(outcome: &Outcome, names: &[String]) -> Option<String> {
    let name = |node: &NodeId| match names.get(node.0 as usize) {
        Some(name) => name.clone(),
        None => node.to_string(),
    };
    match outcome {
        Outcome::NodeLost(node) => Some(format!("node {} was lost", name(node))),
        Outcome::HeadAway(node) => {
            Some(format!("node {} did not hear from the head for too long", name(node)))
        }
        Outcome::Success
        | Outcome::RankFailed { .. }
        | Outcome::Refused(_)
        | Outcome::Killed
        | Outcome::Deadlocked
        | Outcome::TimeLimit(_) => None,
    }
}

impl Head {
    /// Whether the job goes back to the queue that would be over with this outcome.
    pub(super) fn may_start_again(&self, job: &Job, outcome: &Outcome) -> bool {
        let record = &job.record;
        self.shutdown.is_none()
            && record.restarts < record.spec.request.batch.requeues.min(JobId::MOST_RESTARTS)
            && cause(outcome, &self.config.nodes).is_some()
    }

    /// A node with ranks of the job is lost. If a rank elsewhere has failed before, that may be for the loss, which ranks see
    /// before the head does: so that is why the job ends, if it is to be started again then. A node that still ran would have
    /// said that nothing of the job is left there.
    pub(super) fn blame_lost_node(&mut self, id: JobId, lost: NodeId) {
        let Some(job) = self.jobs.get(id) else { return };
        let JobState::Ending(Outcome::RankFailed { node, .. }) = job.record.state else { return };
        let outcome = Outcome::NodeLost(lost);
        if node != lost && self.may_start_again(job, &outcome) {
            self.enter(id, &JobState::Ending(outcome));
        }
    }

    /// Somebody wants the job to end: it is not started again, by a new head neither.
    pub(super) fn give_up_restarts(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let left = core::mem::take(&mut job.record.spec.request.batch.requeues);
        // All other states change, and are recorded then.
        if left > 0 && matches!(job.record.state, JobState::Ending(_)) {
            self.persist(id);
        }
    }

    /// Nothing of the job is left, and it goes back to the queue.
    pub(super) fn start_again(&mut self, id: JobId, outcome: &Outcome) {
        let restarts = self.renew_record(id);
        let nodes = self.jobs.get(id).map(Job::nodes).unwrap_or_default();
        self.enter(id, &JobState::Queued);
        self.drop_last_output(id);
        // The last start is recorded as over: nodes need not repeat what they said of it.
        self.send(&nodes, &Command::Forget { job: id });
        self.actions.starts.set(id, restarts);
        let reason = cause(outcome, &self.config.nodes).unwrap_or_default();
        self.actions.push(HeadAction::MarkRestart { job: id, restarts, reason });
        self.forget_last_start(id);
        self.jobs.unassign(id, nodes.iter());
        self.leave_rotation(id);
        self.timetable.mark_stale();
        if !self.subscribers.followers(id).is_empty() {
            self.waiting.followed(id, self.time.now());
        }
        self.release(id);
    }

    /// The record of a job that has not started, with keys of its own. Returns how often it was started again.
    fn renew_record(&mut self, id: JobId) -> u32 {
        self.account_spent(id);
        let wall_ms = self.time.wall_ms();
        let Some(job) = self.jobs.get_mut(id) else { return 0 };
        let used = job.used_so_far();
        job.used.clear();
        let record = &mut job.record;
        let held_ms = record.started_ms.map_or(0, |start| wall_ms.saturating_sub(start));
        let held_us = held_ms.saturating_mul(1_000).saturating_mul(used.processors.into());
        let held_before_us = used.held_before_us.saturating_add(held_us);
        // It holds nothing until it has nodes again.
        record.used = JobUse { processors: 0, nodes: 0, held_before_us, ..used };
        record.restarts += 1;
        record.started_ms = None;
        record.spec.layout = Vec::new();
        let token = record.spec.request.token;
        let name = id.of_start(record.restarts);
        let (channel_key, seal_key) = self.keys.derive(name, token, wall_ms);
        record.spec.channel_key = channel_key;
        if let Some(key) = &mut record.spec.seal_key {
            *key = seal_key;
        }
        record.restarts
    }

    /// Nobody acknowledges output of the last start any more. A node that still has some would wait for that, and for ever
    /// not be rid of a start that came there late.
    fn drop_last_output(&mut self, id: JobId) {
        let untold = self.output.begin_anew(id);
        if !untold.is_empty() {
            self.send(&NodeSet::from_nodes(untold), &Command::DropOutput { job: id });
        }
    }

    /// Forgets what belongs to one start of a job.
    fn forget_last_start(&mut self, id: JobId) {
        self.idle.forget_job(id);
        self.verdicts.forget_job(id);
        self.run_limits.forget(id);
        self.cancel_transfers_for(id);
        let exchanged = self.exchanges.forget(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        let (uid, waited) = (job.uid(), job.input_bytes());
        job.parts.clear();
        job.input.clear();
        (job.restored, job.asked_to_end, job.delayed_end) = (false, false, None);
        self.quota.refund(uid, 0, waited + exchanged);
    }
}
