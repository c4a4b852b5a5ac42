//! Reports on jobs that an agent keeps until the head has recorded the end of the job.
//!
//! Links break, and the other end may never have got the last reports. An agent repeats what it
//! keeps after each attachment.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use crate::message::{
    AbandonCause, ContentHash, IdleReport, Nanos, NodeSet, PartUse, PreparedNode, RankStatus,
    Report, UseReport,
};

/// Most jobs of which reports are kept. A head has at most 16,000 that are not over, and forgets others at once.
pub(super) const MOST_JOBS: usize = 20_000;

/// From one report on what a job has used to the next.
const USED_INTERVAL: Nanos = 30_000_000_000;

/// Reports of this node and of those below it on one job.
#[derive(Debug, Default)]
struct JobReports {
    prepared: BTreeMap<NodeId, PreparedNode>,
    /// Answers to `Prepare` that are still to come: combining waits for them.
    awaiting: BTreeSet<NodeId>,
    /// Nodes whose answers were not sent up yet.
    unsent: BTreeSet<NodeId>,
    /// The program, and the nodes that lack it.
    wanted: Option<(ContentHash, BTreeSet<NodeId>)>,
    /// Those of them that the parent does not know of yet.
    unsent_wants: BTreeSet<NodeId>,
    /// The first rank known to have failed; the head needs no other.
    failed: Option<(u32, NodeId, RankStatus)>,
    /// Nodes that gave the job up, and why.
    abandoned: BTreeMap<NodeId, AbandonCause>,
    /// What it has used on nodes.
    used: BTreeMap<NodeId, PartUse>,
    /// Those of them that the parent does not know of yet, or not the latest.
    unsent_used: BTreeSet<NodeId>,
    /// When the parent was told last; before that, when there was something first.
    used_told: Option<Nanos>,
    freed: BTreeSet<NodeId>,
    /// Those of them that the parent does not know of yet.
    unsent_freed: BTreeSet<NodeId>,
    /// Nodes on which the job has nothing to do.
    idle: BTreeSet<NodeId>,
    /// Those of them that the parent knows of.
    reported_idle: BTreeSet<NodeId>,
}

impl JobReports {
    /// Nodes that left will report again by themselves where they attach next.
    fn drop_nodes(&mut self, gone: &dyn Fn(NodeId) -> bool) {
        self.prepared.retain(|&node, _| !gone(node));
        for nodes in [
            &mut self.awaiting,
            &mut self.unsent,
            &mut self.freed,
            &mut self.unsent_freed,
            &mut self.idle,
            &mut self.reported_idle,
        ] {
            nodes.retain(|&node| !gone(node));
        }
        self.abandoned.retain(|&node, _| !gone(node));
        self.used.retain(|&node, _| !gone(node));
        self.unsent_used.retain(|&node| !gone(node));
        self.no_longer_wants(gone);
    }

    fn no_longer_wants(&mut self, gone: &dyn Fn(NodeId) -> bool) {
        self.unsent_wants.retain(|&node| !gone(node));
        if let Some((_, nodes)) = &mut self.wanted {
            nodes.retain(|&node| !gone(node));
        }
    }

    /// Whether no further answer is to be waited for. A node that lacks the program answers only when
    /// it has it, and the head sends it only when it has heard of all nodes.
    fn is_complete(&self) -> bool {
        let wants = |node| self.wanted.as_ref().is_some_and(|(_, nodes)| nodes.contains(node));
        self.awaiting.iter().all(wants)
    }

    fn is_empty(&self) -> bool {
        self.prepared.is_empty()
            && self.awaiting.is_empty()
            && self.abandoned.is_empty()
            && self.used.is_empty()
            && self.freed.is_empty()
            && self.idle.is_empty()
            && self.wanted.as_ref().is_none_or(|(_, nodes)| nodes.is_empty())
    }
}

fn set(nodes: &BTreeSet<NodeId>) -> NodeSet {
    NodeSet::from_nodes(nodes.iter().copied())
}

/// The reports that are kept, by job. Methods that begin with `take` return reports to send, and note
/// that the parent knows of them.
#[derive(Debug, Default)]
pub(super) struct RetainedReports {
    jobs: BTreeMap<JobId, JobReports>,
}

impl RetainedReports {
    fn entry(&mut self, job: JobId) -> &mut JobReports {
        self.jobs.entry(job).or_default()
    }

    /// Whether a report on this job can be kept.
    pub(super) fn has_room(&self, job: JobId) -> bool {
        self.jobs.len() < MOST_JOBS || self.jobs.contains_key(&job)
    }

    /// The jobs on which reports are kept, ascending.
    pub(super) fn jobs(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    /// `Prepare` went to these nodes. An answer that is here already is good.
    pub(super) fn expect_answers(&mut self, job: JobId, nodes: &BTreeSet<NodeId>) {
        let kept = self.entry(job);
        for &node in nodes {
            let known = kept.prepared.contains_key(&node);
            let nodes = if known { &mut kept.unsent } else { &mut kept.awaiting };
            nodes.insert(node);
        }
    }

    /// Keeps answers to `Prepare`. Returns whether a node refuses.
    pub(super) fn keep_prepared(&mut self, job: JobId, nodes: Vec<PreparedNode>) -> bool {
        let mut refused = false;
        let kept = self.entry(job);
        for prepared in nodes {
            let node = prepared.node;
            refused |= prepared.result.is_err();
            kept.awaiting.remove(&node);
            kept.unsent.insert(node);
            kept.no_longer_wants(&|wanting| wanting == node);
            kept.prepared.insert(node, prepared);
        }
        refused
    }

    /// Keeps that these nodes lack the program.
    pub(super) fn keep_wanted(&mut self, job: JobId, hash: ContentHash, nodes: &[NodeId]) {
        let kept = self.entry(job);
        let wanted = kept.wanted.get_or_insert_with(|| (hash, BTreeSet::new()));
        wanted.0 = hash;
        wanted.1.extend(nodes);
        kept.unsent_wants.extend(nodes);
    }

    /// Whether all answers to `Prepare` that can come are there.
    pub(super) fn is_complete(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(JobReports::is_complete)
    }

    /// The answers to `Prepare` that the parent does not know of.
    pub(super) fn take_answers(&mut self, job: JobId) -> Vec<Report> {
        let Some(kept) = self.jobs.get_mut(&job) else { return Vec::new() };
        let unsent = core::mem::take(&mut kept.unsent);
        let nodes: Vec<PreparedNode> =
            unsent.iter().filter_map(|node| kept.prepared.get(node).cloned()).collect();
        let wants = set(&core::mem::take(&mut kept.unsent_wants));
        let hash = kept.wanted.as_ref().map(|(hash, _)| *hash);
        let prepared = (!nodes.is_empty()).then_some(Report::Prepared { job, nodes });
        let wanted = hash.filter(|_| !wants.is_empty());
        let wanted = wanted.map(|hash| Report::ProgramWanted { job, hash, nodes: wants });
        prepared.into_iter().chain(wanted).collect()
    }

    /// Keeps the first failure of a rank. Returns whether it is the first.
    pub(super) fn keep_failed(
        &mut self,
        job: JobId,
        rank: u32,
        node: NodeId,
        status: RankStatus,
    ) -> bool {
        let kept = self.entry(job);
        let first = kept.failed.is_none();
        if first {
            kept.failed = Some((rank, node, status));
        }
        first
    }

    /// Keeps that these nodes gave the job up.
    pub(super) fn keep_abandoned(&mut self, job: JobId, nodes: &[NodeId], cause: AbandonCause) {
        self.entry(job).abandoned.extend(nodes.iter().map(|&node| (node, cause)));
    }

    /// Keeps what a job has used, in place of what was said before. Returns whether the parent is to be told now: reports that
    /// come soon after one another go together, and the last ones go with the end of the job.
    pub(super) fn keep_used(&mut self, report: &UseReport, now: Nanos) -> bool {
        let kept = self.entry(report.job);
        kept.used.extend(report.nodes.iter().copied());
        kept.unsent_used.extend(report.nodes.iter().map(|(node, _)| *node));
        let told = *kept.used_told.get_or_insert(now);
        now.saturating_sub(told) >= USED_INTERVAL
    }

    /// What a job has used, as far as the parent does not know it.
    pub(super) fn take_used(&mut self, job: JobId, now: Nanos) -> Option<Report> {
        let kept = self.jobs.get_mut(&job)?;
        let unsent = core::mem::take(&mut kept.unsent_used);
        let used = unsent.iter().filter_map(|node| Some((*node, *kept.used.get(node)?)));
        let nodes: Vec<_> = used.collect();
        kept.used_told = Some(now);
        (!nodes.is_empty()).then_some(Report::Used(UseReport { job, nodes }))
    }

    /// Keeps that nothing of the job is left on these nodes.
    pub(super) fn keep_freed(&mut self, job: JobId, nodes: &[NodeId]) {
        let kept = self.entry(job);
        kept.freed.extend(nodes);
        kept.unsent_freed.extend(nodes);
        kept.awaiting.retain(|node| !nodes.contains(node));
        kept.no_longer_wants(&|node| nodes.contains(&node));
    }

    /// Whether nothing of the job is left on a node.
    pub(super) fn is_freed(&self, job: JobId, node: NodeId) -> bool {
        self.jobs.get(&job).is_some_and(|kept| kept.freed.contains(&node))
    }

    /// That the job is gone from nodes, if the parent does not know it.
    pub(super) fn take_freed(&mut self, job: JobId) -> Option<Report> {
        let kept = self.jobs.get_mut(&job)?;
        let nodes = set(&core::mem::take(&mut kept.unsent_freed));
        (!nodes.is_empty()).then_some(Report::Freed { job, nodes })
    }

    /// Keeps whether the job is idle on these nodes, if something else is kept of it. Returns a report
    /// if the parent thinks that it is idle on nodes where it is not any more.
    pub(super) fn keep_idle(&mut self, job: JobId, nodes: &[NodeId], idle: bool) -> Option<Report> {
        let kept = self.jobs.get_mut(&job)?;
        if idle {
            kept.idle.extend(nodes);
            return None;
        }
        kept.idle.retain(|node| !nodes.contains(node));
        let active: Vec<NodeId> =
            nodes.iter().copied().filter(|node| kept.reported_idle.remove(node)).collect();
        let nodes = NodeSet::from_nodes(active);
        (!nodes.is_empty()).then_some(Report::Idle(IdleReport { job, nodes, idle: false }))
    }

    /// Whether anything is kept of the job.
    pub(super) fn has_job(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Whether the job is idle on a node, or gone from it.
    pub(super) fn waits(&self, job: JobId, node: NodeId) -> bool {
        let kept = self.jobs.get(&job);
        kept.is_some_and(|kept| kept.idle.contains(&node) || kept.freed.contains(&node))
    }

    /// That the job is idle on nodes, if the parent does not know it.
    pub(super) fn take_idle(&mut self, job: JobId) -> Option<Report> {
        let kept = self.jobs.get_mut(&job)?;
        let unsent: BTreeSet<NodeId> = kept.idle.difference(&kept.reported_idle).copied().collect();
        kept.reported_idle.extend(&unsent);
        let idle = IdleReport { job, nodes: set(&unsent), idle: true };
        (!unsent.is_empty()).then_some(Report::Idle(idle))
    }

    /// A new parent knows nothing of the preparation of the job.
    pub(super) fn repeat_preparation(&mut self, job: JobId) {
        let Some(kept) = self.jobs.get_mut(&job) else { return };
        kept.unsent = kept.prepared.keys().copied().collect();
        if let Some((_, nodes)) = &kept.wanted {
            kept.unsent_wants.clone_from(nodes);
        }
    }

    /// A new parent does not know that the job is idle.
    pub(super) fn repeat_idle(&mut self, job: JobId) {
        if let Some(kept) = self.jobs.get_mut(&job) {
            kept.reported_idle.clear();
        }
    }

    /// All reports on the end of the job, for a new parent.
    pub(super) fn repeat_end(&mut self, job: JobId) -> Vec<Report> {
        let Some(kept) = self.jobs.get_mut(&job) else { return Vec::new() };
        kept.unsent_freed.clear();
        kept.unsent_used.clear();
        let freed = set(&kept.freed);
        let failed = kept.failed;
        let failed =
            failed.map(|(rank, node, status)| Report::RankFailed { job, rank, node, status });
        let abandoned = [AbandonCause::LeaseOver, AbandonCause::Vanished].map(|cause| {
            let gave_up = kept.abandoned.iter().filter(|(_, why)| **why == cause);
            let nodes = NodeSet::from_nodes(gave_up.map(|(&node, _)| node));
            (!nodes.is_empty()).then_some(Report::Abandoned { job, nodes, cause })
        });
        let freed = (!freed.is_empty()).then_some(Report::Freed { job, nodes: freed });
        let nodes: Vec<_> = kept.used.iter().map(|(&node, &used)| (node, used)).collect();
        let used = (!nodes.is_empty()).then_some(Report::Used(UseReport { job, nodes }));
        [failed].into_iter().chain(abandoned).chain([used, freed]).flatten().collect()
    }

    /// Nodes left: nothing of them is kept for this job any more.
    pub(super) fn drop_nodes(&mut self, job: JobId, nodes: &[NodeId]) {
        self.entry(job).drop_nodes(&|node| nodes.contains(&node));
    }

    /// Drops the jobs of which nothing is kept.
    pub(super) fn drop_empty(&mut self) {
        self.jobs.retain(|_, kept| !kept.is_empty());
    }

    /// The head has recorded the end of the job on these nodes.
    pub(super) fn forget(&mut self, job: JobId, nodes: &NodeSet) {
        let Some(kept) = self.jobs.get_mut(&job) else { return };
        kept.drop_nodes(&|node| nodes.contains(node));
        if kept.is_empty() {
            self.jobs.remove(&job);
        }
    }
}
