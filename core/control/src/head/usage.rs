//! What jobs use: nodes say it now and then, and the record has it when the job is over.
//!
//! The record that a job is over and its account are one: whoever makes the record durable has accounted for the job, once.

use alloc::vec::Vec;

use super::Head;
use super::job::Job;
use crate::message::{JobUsage, JobUse, PartUse, UseReport, User};
use crate::usage::UsageViewer;

impl Job {
    /// What it has used, as far as its nodes have said.
    pub(super) fn used_so_far(&self) -> JobUse {
        if self.is_over() {
            return self.record.used;
        }
        let measured = self.used.values().fold(PartUse::default(), |sum, part| sum.plus(*part));
        let measured = self.record.used.measured.then(measured);
        let nodes = u32::try_from(self.used.len()).unwrap_or(u32::MAX);
        JobUse { measured, nodes, ..self.record.used }
    }
}

impl Head {
    /// Nodes say what a job has used there. They are believed for the parts of the job that they have. A node that found another
    /// parent may be reported by both, and the former one knows less.
    pub(super) fn used(&mut self, report: UseReport) {
        let Some(job) = self.jobs.get_mut(report.job) else { return };
        for (node, used) in report.nodes {
            if job.parts.contains_key(&node) {
                let known = job.used.entry(node).or_default();
                *known = known.latest(used);
            }
        }
    }

    /// The accounts of the jobs that are not over, so far.
    pub fn usage_so_far(&self) -> Vec<JobUsage> {
        let live = self.jobs.iter().filter(|job| !job.is_over());
        live.map(|job| JobUsage::of(&job.record, job.used_so_far())).collect()
    }

    /// A user as one who asks for accounts.
    pub fn usage_viewer(&self, user: &User) -> UsageViewer {
        UsageViewer {
            user: user.clone(),
            owns_cluster: self.owns_cluster(user),
            show: self.config.show_others,
        }
    }
}
