//! Life of a job in the head, from its submission to its end.
//!
//! Every step is recorded before the head acts on it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId, Placement};

use super::job::{Job, JobPart, PartState};
use super::{Head, HeadAction, sizing};
use crate::message::{ClientReply, Command, JobRecord, JobState, Nanos, NodeSet, Outcome};

impl Head {
    /// Takes over the jobs of an earlier head. The policy hears of them when the time is known.
    pub(super) fn restore(&mut self, records: Vec<JobRecord>) {
        let mut records = records;
        records.sort_by_key(|record| record.spec.job);
        let mut ended = Vec::new();
        for record in records {
            let mut job = Job::new(record);
            let id = job.id();
            self.actions.starts.set(id, job.record.restarts);
            if !job.is_over() {
                self.transfers.add_orphan(id);
                self.quota.charge(job.uid(), 1, job.charged);
            }
            match job.record.state {
                JobState::Ended(_) => {
                    job.parts.clear();
                    ended.push((job.record.ended_ms, id));
                }
                // Below, when all are known.
                JobState::Queued => {}
                JobState::Preparing | JobState::Running | JobState::Ending(_) => {
                    let nodes: Vec<NodeId> = job.parts.keys().copied().collect();
                    self.jobs.assign(id, &nodes);
                    job.restored = true;
                    job.scheduled = true;
                }
            }
            self.jobs.insert(job);
        }
        ended.sort_unstable();
        for (_, id) in ended {
            self.jobs.retire(id);
        }
        self.restore_held();
    }

    /// Offers jobs to the policy if nodes came or went, and places those that fit now.
    pub(super) fn schedule(&mut self) {
        let now = self.time.cluster();
        if self.scheduler.has_changed_nodes() {
            self.waiting.set_changed(self.time.now());
            let capacity = self.membership.capacity(self.time.is_starting());
            for id in self.scheduler.take_changed(&mut self.jobs, &capacity, now) {
                self.offer(id);
            }
        }
        while let Some(placement) = self.scheduler.next_placement(now) {
            self.place(&placement);
        }
    }

    pub(super) fn offer(&mut self, id: JobId) {
        let capacity = self.membership.capacity(self.time.is_starting());
        let refused = self.scheduler.offer(id, &mut self.jobs, &capacity, &self.time);
        if let Some(refusal) = refused {
            self.end(id, Outcome::Refused(refusal));
        }
    }

    /// The policy gave the job nodes: they prepare.
    fn place(&mut self, placement: &Placement) {
        let id = placement.job;
        let Some(job) = self.jobs.get_mut(id) else {
            self.leave_rotation(id);
            return;
        };
        let shares = self.scheduler.shares(placement, &self.membership);
        let spec = &mut job.record.spec;
        spec.layout = sizing::layout(&spec.request, &job.demand, &shares);
        job.record.used.processors = u32::try_from(placement.processors.len()).unwrap_or(u32::MAX);
        let spec = job.spec_for_nodes();
        let nodes: Vec<NodeId> = spec.layout.iter().map(|part| part.node).collect();
        job.parts = nodes.iter().map(|&node| (node, JobPart::default())).collect();
        let set = job.nodes();
        self.idle.forget_job(id);
        self.verdicts.forget_job(id);
        self.jobs.assign(id, &nodes);
        self.enter(id, &JobState::Preparing);
        self.send(&set, &Command::Prepare(spec));
    }

    pub(super) fn persist(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(id) {
            self.held.saved(id);
            self.actions.push(HeadAction::Persist(Box::new(job.record.clone())));
        }
    }

    /// Records a new state, and tells followers, who learn of the end only after all output.
    pub(super) fn enter(&mut self, id: JobId, state: &JobState) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.record.state = state.clone();
        job.record.end_request = None;
        let over = job.is_over();
        self.waiting.forget(id);
        self.waiting.set_changed(self.time.now());
        if over {
            // Whoever gets the table later must not be able to decrypt recorded packets.
            job.record.spec.seal_key = None;
            // Environments hold passwords, and nothing needs them any more.
            job.record.spec.request.env = Vec::new();
            job.record.spec.request.batch.content = None;
        }
        self.persist(id);
        for client in self.subscribers.followers(id).into_iter().filter(|_| !over) {
            self.actions.reply(client, ClientReply::State { job: id, state: state.clone() });
        }
    }

    /// The job takes part in the rotation, or no longer.
    pub(super) fn set_active(&mut self, id: JobId, active: bool) {
        self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
        self.scheduler.set_time(self.time.cluster());
        self.scheduler.set_active(id, active);
        self.timetable.mark_stale();
    }

    /// The policy forgets the job, if it knows it.
    pub(super) fn leave_rotation(&mut self, id: JobId) {
        let known = |job: &mut Job| core::mem::take(&mut job.scheduled);
        if self.jobs.get_mut(id).is_some_and(known) {
            self.account_spent(id);
            self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
            self.scheduler.remove_job(id, self.time.cluster());
        } else {
            self.scheduler.forget_undecided(id);
        }
    }

    /// Has a running job leave the rotation if it is idle now, or come back if it is not. Returns which, if either.
    pub(super) fn update_idle(&mut self, id: JobId) -> Option<bool> {
        let change = self.jobs.get(id).and_then(|job| self.idle.update(job));
        if let Some(idle) = change {
            self.set_active(id, !idle);
        }
        change
    }

    /// Jobs that have computed for long are interactive no more: slices may be longer.
    pub(super) fn check_interactive(&mut self) {
        if self.idle.expire_interactive(self.time.now()) {
            self.timetable.mark_stale();
        }
    }

    /// Nothing of the job is left on a node.
    pub(super) fn part_freed(&mut self, id: JobId, node: NodeId) {
        let part = self.jobs.get_mut(id).and_then(|job| job.parts.get_mut(&node));
        let Some(part) = part.filter(|part| part.state != PartState::Freed) else { return };
        part.state = PartState::Freed;
        part.wanted = None;
        self.update_idle(id);
        self.finish_if_freed(id);
    }

    /// The job lost a node, and ends. Something of it may run there until `until`, if that is given.
    pub(super) fn part_lost(&mut self, id: JobId, node: NodeId, until: Option<Nanos>) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        // One that was asked to end, by its limit of time for instance, ends because of that.
        let asked = job.delayed_end.as_ref().map(|(outcome, _)| outcome.clone());
        let part = job.parts.get_mut(&node).filter(|part| part.state == PartState::Live);
        let Some(part) = part else { return };
        part.state = until.map_or(PartState::Freed, |until| PartState::Lost { until });
        part.wanted = None;
        if let Some(until) = until {
            self.lost_parts.add(until, id, node);
        }
        self.blame_lost_node(id, node);
        self.end(id, asked.unwrap_or(Outcome::NodeLost(node)));
        self.finish_if_freed(id);
    }

    /// Leases of lost nodes are over: nothing runs there any more.
    pub(super) fn check_lost_parts(&mut self) {
        let now = if self.shutdown.is_some() { Nanos::MAX } else { self.time.now() };
        while let Some((id, node)) = self.lost_parts.take_over(now) {
            let part = self.jobs.get(id).and_then(|job| job.part(node));
            let over =
                |part: &JobPart| matches!(part.state, PartState::Lost { until } if until <= now);
            if part.is_some_and(over) {
                self.part_freed(id, node);
            }
        }
    }

    /// Ends the job's life once nothing of it is left anywhere.
    pub(super) fn finish_if_freed(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        if job.live_parts().next().is_some() {
            return;
        }
        if job.has_remains() {
            // Its nodes are free for others. It is not over.
            self.leave_rotation(id);
            self.timetable.mark_stale();
            return;
        }
        let outcome = match &job.record.state {
            JobState::Running => {
                job.delayed_end.as_ref().map_or(Outcome::Success, |(outcome, _)| outcome.clone())
            }
            JobState::Ending(outcome) => outcome.clone(),
            JobState::Queued | JobState::Preparing | JobState::Ended(_) => return,
        };
        if self.may_start_again(job, &outcome) {
            return self.start_again(id, &outcome);
        }
        self.finish(id, &outcome);
    }

    pub(super) fn finish(&mut self, id: JobId, outcome: &Outcome) {
        self.account_spent(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.record.ended_ms = Some(self.time.wall_ms());
        job.record.used = job.used_so_far();
        job.used.clear();
        let bytes = job.charged + job.input_bytes();
        let (uid, nodes) = (job.uid(), job.nodes());
        job.parts.clear();
        job.input.clear();
        self.held.withdraw(id, &job.record.spec.request.batch.after);
        self.idle.forget_job(id);
        self.verdicts.forget_job(id);
        self.run_limits.forget(id);
        let bytes = bytes + self.exchanges.forget(id);
        self.output.forget_job(id);
        self.quota.refund(uid, 1, bytes);
        self.enter(id, &JobState::Ended(outcome.clone()));
        let not_kept = self.jobs.get(id).map_or(0, |job| job.record.output_not_kept);
        for client in self.subscribers.take_killers(id) {
            self.actions.reply(client, ClientReply::Done);
        }
        for client in self.subscribers.take_waiters(id) {
            self.actions
                .reply(client, ClientReply::Ended { job: id, outcome: outcome.clone(), not_kept });
        }
        let outcome = outcome.clone();
        self.actions.push(HeadAction::EndSpool { job: id, outcome, not_kept });
        self.held.set_over(id);
        self.send(&nodes, &Command::Forget { job: id });
        self.jobs.unassign(id, nodes.iter());
        self.leave_rotation(id);
        self.timetable.mark_stale();
        self.cancel_transfers_for(id);
        self.transfers.forget_job(id);
        self.subscribers.forget_job(id);
        self.jobs.retire(id);
    }

    /// Forgets ended jobs that are too many or too old.
    pub(super) fn discard_old(&mut self) {
        while let Some(id) = self.jobs.forget_old(self.time.wall_ms()) {
            for dependent in self.held.unsaved(id) {
                self.persist(dependent);
            }
            self.actions.starts.forget(id);
            self.actions.push(HeadAction::Discard(id));
        }
    }

    /// When the next ended job is too old.
    pub(super) fn next_discard(&self) -> Option<Nanos> {
        let left = self.jobs.oldest_is_kept_for(self.time.wall_ms())?;
        Some(self.time.now().saturating_add(left.saturating_mul(1_000_000)))
    }

    pub(super) fn send_input(&mut self, id: JobId, data: Vec<u8>) {
        self.send_to_first(id, &Command::Input { job: id, data });
    }

    /// Sends a command to the node of rank 0.
    pub(super) fn send_to_first(&mut self, id: JobId, command: &Command) {
        let first = self.jobs.get(id).and_then(|job| job.record.spec.layout.first());
        if let Some(first) = first.map(|part| part.node) {
            self.send(&NodeSet::from_nodes([first]), command);
        }
    }
}
