//! Verdicts of the head: jobs that are stopped, why, and what becomes of them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};
use kumi_verdict::{Explanation, Judge, Ruling, Standing, Summary};

use super::{ClientId, Head};
use crate::deadlock::{DeadlockReport, OnDeadlock, Verdict};
use crate::message::{
    ClientReply, Command, JobState, Nanos, Outcome, Refusal, StandingReport, User,
};
use crate::tree::LinkId;

/// A stopped job.
#[derive(Debug)]
struct StoppedJob {
    explanation: Explanation,
    /// When it is ended.
    ends: Option<Nanos>,
}

/// What is known of a job's waits.
#[derive(Debug, Default)]
struct JobVerdict {
    judge: Judge<NodeId>,
    stopped: Option<StoppedJob>,
}

/// Verdicts on the jobs that run.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    jobs: BTreeMap<JobId, JobVerdict>,
}

impl Verdicts {
    /// Discards what is known of a job that gets nodes or is over.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    /// A node left or attached anew.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        for verdict in self.jobs.values_mut() {
            if verdict.judge.forget(&[node]).is_some() {
                verdict.stopped = None;
            }
        }
    }

    /// The stopped jobs, ascending.
    pub(super) fn stopped(&self) -> Vec<JobId> {
        let stopped = self.jobs.iter().filter(|(_, verdict)| verdict.stopped.is_some());
        stopped.map(|(job, _)| *job).collect()
    }

    /// When the next stopped job is ended.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let ends = |verdict: &JobVerdict| verdict.stopped.as_ref().and_then(|job| job.ends);
        self.jobs.values().filter_map(ends).min()
    }

    /// The jobs whose grace time is over.
    fn due(&self, now: Nanos) -> Vec<JobId> {
        let due = |verdict: &JobVerdict| {
            let ends = verdict.stopped.as_ref().and_then(|job| job.ends);
            ends.is_some_and(|ends| ends <= now)
        };
        self.jobs.iter().filter(|(_, verdict)| due(verdict)).map(|(job, _)| *job).collect()
    }

    fn report(&self, job: JobId, now: Nanos) -> Option<DeadlockReport> {
        let stopped = self.jobs.get(&job)?.stopped.as_ref()?;
        let ends_after = stopped.ends.map(|ends| ends.saturating_sub(now));
        Some(DeadlockReport { explanation: stopped.explanation.clone(), ends_after })
    }
}

impl Head {
    /// Nodes tell how a job stands. The sums of nodes cannot be taken apart, so they have to come from where all of these
    /// nodes are reached.
    pub(super) fn standing_report(&mut self, link: LinkId, report: StandingReport) {
        let nodes = self.membership.tree().routes().among(link, &report.nodes);
        let nodes: Vec<NodeId> = {
            let Some(job) = self.jobs.get(report.job) else { return };
            // Ranks that were told to end do so one after the other, and those that are left wait for them.
            let told_to_end = job.record.end_request.is_some();
            let runs = job.record.state == JobState::Running && !told_to_end;
            if !runs || on_deadlock(&job.record.spec.request.env) == OnDeadlock::Ignore {
                return;
            }
            nodes.into_iter().filter(|node| job.parts.contains_key(node)).collect()
        };
        if let Standing::Settled(summary) = &report.standing
            && (!summary.is_sound() || nodes.len() as u64 != report.nodes.len())
        {
            return;
        }
        if !nodes.is_empty() {
            self.judge(report.job, &nodes, report.standing);
        }
    }

    fn judge(&mut self, id: JobId, nodes: &[NodeId], standing: Standing) {
        let Some(job) = self.jobs.get(id) else { return };
        let members: Vec<NodeId> = job.parts.keys().copied().collect();
        let live = job.live_nodes();
        let verdict = self.verdicts.jobs.entry(id).or_default();
        for ruling in verdict.judge.tell(nodes, standing, &members) {
            match ruling {
                Ruling::Confirm(round) => self.send(&live, &Command::Confirm { job: id, round }),
                Ruling::Withdrawn => self.withdraw(id),
                Ruling::Stopped(total) => self.stopped(id, total),
            }
        }
    }

    fn withdraw(&mut self, id: JobId) {
        if let Some(verdict) = self.verdicts.jobs.get_mut(&id) {
            verdict.stopped = None;
        }
    }

    fn stopped(&mut self, id: JobId, total: Summary) {
        let now = self.time.now();
        let (Some(job), Some(verdict)) = (self.jobs.get(id), self.verdicts.jobs.get_mut(&id))
        else {
            return;
        };
        let ends = match on_deadlock(&job.record.spec.request.env) {
            OnDeadlock::Kill(grace) => Some(now.saturating_add(grace)),
            OnDeadlock::Report | OnDeadlock::Ignore => None,
        };
        verdict.stopped = Some(StoppedJob { explanation: Explanation::new(total), ends });
        for client in self.subscribers.followers(id) {
            self.tell_deadlock(id, client);
        }
    }

    /// Tells a client why the job is stopped, if it is.
    pub(super) fn tell_deadlock(&mut self, id: JobId, client: ClientId) {
        if let Some(report) = self.verdicts.report(id, self.time.now()) {
            let reply = ClientReply::Deadlock { job: id, report: Box::new(report) };
            self.actions.reply(client, reply);
        }
    }

    /// Ends the stopped jobs whose grace time is over.
    pub(super) fn check_deadlocks(&mut self) {
        for id in self.verdicts.due(self.time.now()) {
            self.withdraw(id);
            self.end(id, Outcome::Deadlocked);
        }
    }

    /// The verdict on a job, and if it is stopped, why.
    pub(super) fn explain(
        &mut self,
        client: ClientId,
        user: &User,
        id: JobId,
    ) -> Result<(), Refusal> {
        self.permitted(user, id, "see what its ranks wait for")?;
        let report = self.verdicts.report(id, self.time.now());
        let verdict = match &report {
            Some(_) => Verdict::Stopped,
            None if self.idle.running(&self.jobs).binary_search(&id).is_ok() => Verdict::Idle,
            None => Verdict::Running,
        };
        let state = self.jobs.get(id).map(|job| job.record.state.clone());
        let verdict = (state == Some(JobState::Running)).then_some(verdict);
        let report = report.map(Box::new);
        self.actions.reply(client, ClientReply::Explanation { verdict, report });
        Ok(())
    }
}

/// What becomes of a job if it is stopped. Values that cannot be understood are refused before a job is accepted.
fn on_deadlock(env: &[(alloc::string::String, alloc::string::String)]) -> OnDeadlock {
    OnDeadlock::from_env(env).unwrap_or_default()
}
