//! Idle jobs of the head: running jobs that have nothing to do on any of their nodes.
//!
//! A node reports whether a job has something to do there. Of a node that is away or has attached
//! anew nothing is known, and its jobs count as busy.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::job::Job;
use super::job_table::JobTable;
use crate::message::{JobState, Nanos};

/// So long a job counts as interactive after it has come back. One that a person works with is idle again by then.
const INTERACTIVE: Nanos = 30_000_000_000;

/// The nodes that report a job idle, and the jobs that have left the rotation for it.
#[derive(Debug, Default)]
pub(super) struct IdleJobs {
    /// The nodes on which each job has nothing to do.
    reported: BTreeMap<JobId, BTreeSet<NodeId>>,
    /// Jobs outside the rotation, as long as they run.
    idle: BTreeSet<JobId>,
    /// Jobs that came back, and until when they count as interactive.
    interactive: BTreeMap<JobId, Nanos>,
}

impl IdleJobs {
    /// Nodes of the job report that it has nothing to do there, or has again.
    pub(super) fn report(&mut self, job: &Job, nodes: &[NodeId], idle: bool) {
        let nodes = nodes.iter().copied().filter(|&node| job.part(node).is_some());
        let reported = self.reported.entry(job.id()).or_default();
        for node in nodes {
            if idle {
                reported.insert(node);
            } else {
                reported.remove(&node);
            }
        }
        if reported.is_empty() {
            self.reported.remove(&job.id());
        }
    }

    /// Discards what a node reported of these jobs. Returns those of which it had reported.
    pub(super) fn forget_node(&mut self, node: NodeId, jobs: &BTreeSet<JobId>) -> Vec<JobId> {
        let mut affected = Vec::new();
        for &job in jobs {
            if self.reported.get_mut(&job).is_some_and(|nodes| nodes.remove(&node)) {
                affected.push(job);
            }
        }
        affected
    }

    /// Discards what is known of a job that gets nodes or is over.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.reported.remove(&job);
        self.idle.remove(&job);
        self.interactive.remove(&job);
    }

    /// A node reported that an idle job has something to do, so that it is back in the rotation.
    pub(super) fn came_back(&mut self, job: JobId, now: Nanos) {
        self.interactive.insert(job, now.saturating_add(INTERACTIVE));
    }

    /// Whether somebody works with one of the jobs that take turns, as far as their idleness tells.
    pub(super) fn is_any_interactive(&self) -> bool {
        !self.interactive.is_empty()
    }

    /// Discards interactive jobs that have not been idle for long. Returns whether there were any.
    pub(super) fn expire_interactive(&mut self, now: Nanos) -> bool {
        let before = self.interactive.len();
        self.interactive.retain(|_, until| *until > now);
        self.interactive.len() < before
    }

    /// When the next interactive job is one no more.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.interactive.values().copied().min()
    }

    /// Decides anew whether a running job is idle: it is while it has nothing to do wherever
    /// anything is left of it. Returns the decision if it is another than before.
    pub(super) fn update(&mut self, job: &Job) -> Option<bool> {
        let reported = self.reported.get(&job.id());
        let waits = |node: NodeId| reported.is_some_and(|nodes| nodes.contains(&node));
        let mut left = job.live_parts().peekable();
        let idle = left.peek().is_some() && left.all(waits);
        if job.record.state != JobState::Running || self.idle.contains(&job.id()) == idle {
            return None;
        }
        if idle {
            self.idle.insert(job.id());
            self.interactive.remove(&job.id());
        } else {
            self.idle.remove(&job.id());
        }
        Some(idle)
    }

    /// Whether the job takes part in the rotation.
    pub(super) fn takes_turns(&self, job: &Job) -> bool {
        job.record.state == JobState::Running && !self.idle.contains(&job.id())
    }

    /// The running jobs outside the rotation, ascending.
    pub(super) fn running(&self, jobs: &JobTable) -> Vec<JobId> {
        let runs =
            |id: &JobId| jobs.get(*id).is_some_and(|job| job.record.state == JobState::Running);
        self.idle.iter().copied().filter(runs).collect()
    }
}
