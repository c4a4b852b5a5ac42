//! Reports of idle jobs on this node and below it, and how much of them the parent knows.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::Agent;
use super::retained_reports::set;
use crate::message::{IdleReport, NodeSet, Report};
use crate::tree::LinkId;

impl Agent {
    /// This node's own ranks. Of a job that has not started here or is being killed there is nothing to say.
    pub(super) fn idle(&mut self, job: JobId, idle: bool) {
        if self.has_started(job) {
            let node = self.node();
            self.keep_idle(job, &[node], idle);
        }
    }

    /// Believed of a child's own nodes, and of jobs of which something else is kept.
    pub(super) fn child_idle(&mut self, link: LinkId, report: &IdleReport) {
        let nodes = self.routes.among(link, &report.nodes);
        self.keep_idle(report.job, &nodes, report.idle);
    }

    fn keep_idle(&mut self, job: JobId, nodes: &[NodeId], idle: bool) {
        let Some(kept) = self.kept.get_mut(&job) else { return };
        if idle {
            kept.idle.extend(nodes);
            return self.send_idle_if_complete(job);
        }
        kept.idle.retain(|node| !nodes.contains(node));
        let stirred: Vec<NodeId> =
            nodes.iter().copied().filter(|node| kept.reported_idle.remove(node)).collect();
        if !stirred.is_empty() {
            self.report_idle(job, NodeSet::from_nodes(stirred), false);
        }
    }

    /// Says that the job is idle here and below, once it is everywhere there.
    pub(super) fn send_idle_if_complete(&mut self, job: JobId) {
        if !self.parent_up || !self.is_idle(job) {
            return;
        }
        let Some(kept) = self.kept.get_mut(&job) else { return };
        let unsent: BTreeSet<NodeId> = kept.idle.difference(&kept.reported_idle).copied().collect();
        if !unsent.is_empty() {
            kept.reported_idle.extend(&unsent);
            self.report_idle(job, set(&unsent), true);
        }
    }

    /// Whether the job has nothing to do here and below.
    fn is_idle(&self, job: JobId) -> bool {
        let Some(kept) = self.kept.get(&job) else { return false };
        let waits = |node: NodeId| kept.idle.contains(&node) || kept.freed.contains(&node);
        let below = self.routes.descriptions();
        let mut below = below.filter(|node| node.jobs.iter().any(|(listed, _)| *listed == job));
        below.all(|node| waits(node.node)) && (!self.has_live_job(job) || waits(self.node()))
    }

    /// Attached: the parent knows nothing of it yet.
    pub(super) fn repeat_idle(&mut self, job: JobId) {
        if let Some(kept) = self.kept.get_mut(&job) {
            kept.reported_idle.clear();
        }
        self.send_idle_if_complete(job);
    }

    fn report_idle(&mut self, job: JobId, nodes: NodeSet, idle: bool) {
        self.report(Report::Idle(IdleReport { job, nodes, idle }));
    }
}
