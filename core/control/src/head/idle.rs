//! Jobs that have nothing to do on any of their nodes leave the rotation, and come back.

use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::Head;
use super::jobs::PartState;
use crate::message::{IdleReport, JobState};
use crate::tree::LinkId;

impl Head {
    /// Nodes say whether a job has something to do there. Believed of those that are reached through the link it came on:
    /// what a node said on another way may come after what it says now.
    pub(super) fn idle(&mut self, link: LinkId, report: &IdleReport) {
        let nodes = self.routes.among(link, &report.nodes);
        let Some(job) = self.jobs.get_mut(&report.job) else { return };
        for node in nodes {
            if let Some(part) = job.parts.get_mut(&node) {
                part.idle = report.idle;
            }
        }
        self.check_idle(report.job);
    }

    /// These nodes left or attached anew: what they said of their jobs does not count any more.
    pub(super) fn forget_idle(&mut self, nodes: &[NodeId]) {
        let mut stirred = Vec::new();
        for &node in nodes {
            let Some(entry) = self.node_mut(node) else { continue };
            let jobs: Vec<JobId> = entry.jobs.iter().copied().collect();
            for id in jobs {
                let part = self.jobs.get_mut(&id).and_then(|job| job.parts.get_mut(&node));
                if part.is_some_and(|part| core::mem::take(&mut part.idle)) {
                    stirred.push(id);
                }
            }
        }
        for id in stirred {
            self.check_idle(id);
        }
    }

    /// A job that runs is idle while it is idle wherever anything is left of it.
    pub(super) fn check_idle(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let mut left = job.parts.values().filter(|part| part.state == PartState::Live).peekable();
        let idle = left.peek().is_some() && left.all(|part| part.idle);
        if job.record.state != JobState::Running || job.idle == idle {
            return;
        }
        job.idle = idle;
        self.set_active(id, !idle);
        self.timetable_changed();
    }

    /// The running jobs outside the rotation, ascending.
    pub(super) fn idle_jobs(&self) -> Vec<JobId> {
        let running = self.jobs.values().filter(|job| job.record.state == JobState::Running);
        running.filter(|job| job.idle).map(super::jobs::Job::id).collect()
    }
}
