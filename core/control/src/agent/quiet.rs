//! Where jobs have nothing to do, here and below, and what of it the parent knows.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::Agent;
use super::reports::set;
use crate::message::{NodeSet, QuietReport, Report};
use crate::tree::LinkId;

impl Agent {
    /// This node's own ranks. Of a job that has not started here or is being killed there is nothing to say.
    pub(super) fn quiet(&mut self, job: JobId, quiet: bool) {
        if self.has_started(job) {
            let node = self.node();
            self.keep_quiet(job, &[node], quiet);
        }
    }

    /// Believed of a child's own nodes, and of jobs of which something else is kept.
    pub(super) fn child_quiet(&mut self, link: LinkId, report: &QuietReport) {
        let nodes = self.routes.among(link, &report.nodes);
        self.keep_quiet(report.job, &nodes, report.quiet);
    }

    fn keep_quiet(&mut self, job: JobId, nodes: &[NodeId], quiet: bool) {
        let Some(kept) = self.kept.get_mut(&job) else { return };
        if quiet {
            kept.quiet.extend(nodes);
            return self.send_quiet_if_complete(job);
        }
        kept.quiet.retain(|node| !nodes.contains(node));
        let stirred: Vec<NodeId> =
            nodes.iter().copied().filter(|node| kept.told_quiet.remove(node)).collect();
        if !stirred.is_empty() {
            self.report_quiet(job, NodeSet::from_nodes(stirred), false);
        }
    }

    /// Says that the job is quiet here and below, once it is everywhere there.
    pub(super) fn send_quiet_if_complete(&mut self, job: JobId) {
        if !self.parent_up || !self.is_quiet(job) {
            return;
        }
        let Some(kept) = self.kept.get_mut(&job) else { return };
        let unsent: BTreeSet<NodeId> = kept.quiet.difference(&kept.told_quiet).copied().collect();
        if !unsent.is_empty() {
            kept.told_quiet.extend(&unsent);
            self.report_quiet(job, set(&unsent), true);
        }
    }

    /// Whether the job has nothing to do here and below.
    fn is_quiet(&self, job: JobId) -> bool {
        let Some(kept) = self.kept.get(&job) else { return false };
        let waits = |node: NodeId| kept.quiet.contains(&node) || kept.freed.contains(&node);
        let below = self.routes.descriptions();
        let mut below = below.filter(|node| node.jobs.iter().any(|(listed, _)| *listed == job));
        below.all(|node| waits(node.node)) && (!self.has_live_job(job) || waits(self.node()))
    }

    /// Attached: the parent knows nothing of it yet.
    pub(super) fn repeat_quiet(&mut self, job: JobId) {
        if let Some(kept) = self.kept.get_mut(&job) {
            kept.told_quiet.clear();
        }
        self.send_quiet_if_complete(job);
    }

    fn report_quiet(&mut self, job: JobId, nodes: NodeSet, quiet: bool) {
        self.report(Report::Quiet(QuietReport { job, nodes, quiet }));
    }
}
