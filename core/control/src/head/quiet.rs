//! Jobs that have nothing to do on any of their nodes leave the rotation, and come back.

use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::Head;
use super::jobs::Over;
use crate::message::{JobState, QuietReport};
use crate::tree::LinkId;

impl Head {
    /// Nodes say whether a job has something to do there. Believed of those that are reached through the link it came on:
    /// what a node said on another way may come after what it says now.
    pub(super) fn quiet(&mut self, link: LinkId, report: &QuietReport) {
        let nodes = self.routes.among(link, &report.nodes);
        let Some(job) = self.jobs.get_mut(&report.job) else { return };
        for node in nodes {
            if let Some(part) = job.parts.get_mut(&node) {
                part.quiet = report.quiet;
            }
        }
        self.check_dormant(report.job);
    }

    /// These nodes left or attached anew: what they said of their jobs does not count any more.
    pub(super) fn forget_quiet(&mut self, nodes: &[NodeId]) {
        let mut stirred = Vec::new();
        for &node in nodes {
            let Some(entry) = self.node_mut(node) else { continue };
            let jobs: Vec<JobId> = entry.jobs.iter().copied().collect();
            for id in jobs {
                let part = self.jobs.get_mut(&id).and_then(|job| job.parts.get_mut(&node));
                if part.is_some_and(|part| core::mem::take(&mut part.quiet)) {
                    stirred.push(id);
                }
            }
        }
        for id in stirred {
            self.check_dormant(id);
        }
    }

    /// A job that runs is dormant while it is quiet wherever anything is left of it.
    pub(super) fn check_dormant(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let mut left = job.parts.values().filter(|part| part.over == Over::No).peekable();
        let dormant = left.peek().is_some() && left.all(|part| part.quiet);
        if job.record.state != JobState::Running || job.dormant == dormant {
            return;
        }
        job.dormant = dormant;
        self.set_active(id, !dormant);
        self.timetable_changed();
    }

    /// The running jobs outside the rotation, ascending.
    pub(super) fn dormant_jobs(&self) -> Vec<JobId> {
        let running = self.jobs.values().filter(|job| job.record.state == JobState::Running);
        running.filter(|job| job.dormant).map(super::jobs::Job::id).collect()
    }
}
