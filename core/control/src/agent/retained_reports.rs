//! Reports on jobs that an agent keeps until the head has recorded the end of the job.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::Agent;
use crate::message::{ContentHash, NodeSet, PreparedNode, RankStatus, Report};

/// Reports of this node and of those below it on one job, kept until the head says `Forget`.
#[derive(Debug, Default)]
pub(super) struct RetainedReports {
    pub(super) prepared: BTreeMap<NodeId, PreparedNode>,
    /// Answers to `Prepare` that are still to come: combining waits for them.
    pub(super) awaiting: BTreeSet<NodeId>,
    /// Answers not sent up yet.
    pub(super) unsent: BTreeSet<NodeId>,
    /// Who lacks the program.
    pub(super) wanted: Option<(ContentHash, BTreeSet<NodeId>)>,
    /// Of these the parent does not know it yet.
    pub(super) unsent_wants: BTreeSet<NodeId>,
    /// The first rank known to have failed; the head needs no other.
    pub(super) failed: Option<(u32, NodeId, RankStatus)>,
    pub(super) abandoned: BTreeSet<NodeId>,
    pub(super) freed: BTreeSet<NodeId>,
    /// Of these the parent does not know it yet.
    unsent_freed: BTreeSet<NodeId>,
    /// Where the job has nothing to do.
    pub(super) idle: BTreeSet<NodeId>,
    /// Of these the parent knows it.
    pub(super) reported_idle: BTreeSet<NodeId>,
}

impl RetainedReports {
    /// Nodes that left will report again by themselves where they attach next.
    fn drop_nodes(&mut self, gone: &dyn Fn(NodeId) -> bool) {
        self.prepared.retain(|&node, _| !gone(node));
        for nodes in [
            &mut self.awaiting,
            &mut self.unsent,
            &mut self.abandoned,
            &mut self.freed,
            &mut self.unsent_freed,
            &mut self.idle,
            &mut self.reported_idle,
        ] {
            nodes.retain(|&node| !gone(node));
        }
        self.no_longer_wants(gone);
    }

    fn no_longer_wants(&mut self, gone: &dyn Fn(NodeId) -> bool) {
        self.unsent_wants.retain(|&node| !gone(node));
        if let Some((_, nodes)) = &mut self.wanted {
            nodes.retain(|&node| !gone(node));
        }
    }

    /// Whether nothing more is to be waited for. A node that lacks the program answers only when it
    /// has it, and the head sends it only when it has heard of all nodes.
    fn is_complete(&self) -> bool {
        let wants = |node| self.wanted.as_ref().is_some_and(|(_, nodes)| nodes.contains(node));
        self.awaiting.iter().all(wants)
    }

    fn is_empty(&self) -> bool {
        self.prepared.is_empty()
            && self.awaiting.is_empty()
            && self.abandoned.is_empty()
            && self.freed.is_empty()
            && self.idle.is_empty()
            && self.wanted.as_ref().is_none_or(|(_, nodes)| nodes.is_empty())
    }
}

pub(super) fn set(nodes: &BTreeSet<NodeId>) -> NodeSet {
    NodeSet::from_nodes(nodes.iter().copied())
}

impl Agent {
    pub(super) fn keep(&mut self, job: JobId) -> &mut RetainedReports {
        self.kept.entry(job).or_default()
    }

    /// Attached, or attached elsewhere: says who is here, and repeats what is kept. What a node
    /// waits for comes first, and `Freed` last, behind the output it vouches for.
    pub(super) fn parent_up(&mut self) {
        self.parent_up = true;
        self.attachments += 1;
        let mut nodes = Vec::from([self.description()]);
        nodes.extend(self.routes.descriptions().cloned());
        self.announce(nodes);
        self.repeat_kept();
    }

    /// Repeats everything that is kept; receivers know what they had already.
    pub(super) fn repeat_kept(&mut self) {
        let jobs: Vec<JobId> = self.kept.keys().copied().collect();
        for &job in &jobs {
            self.repeat_preparation(job);
        }
        self.flush_output();
        for &job in &jobs {
            self.repeat_idle(job);
            self.repeat_end(job);
        }
    }

    fn repeat_preparation(&mut self, job: JobId) {
        let Some(kept) = self.kept.get_mut(&job) else { return };
        kept.unsent = kept.prepared.keys().copied().collect();
        if let Some((_, nodes)) = &kept.wanted {
            kept.unsent_wants.clone_from(nodes);
        }
        self.send_answers(job);
    }

    fn repeat_end(&mut self, job: JobId) {
        let Some(kept) = self.kept.get_mut(&job) else { return };
        kept.unsent_freed.clear();
        let (failed, abandoned, freed) = (kept.failed, set(&kept.abandoned), set(&kept.freed));
        if let Some((rank, node, status)) = failed {
            self.report(Report::RankFailed { job, rank, node, status });
        }
        if !abandoned.is_empty() {
            self.report(Report::Abandoned { job, nodes: abandoned });
        }
        if !freed.is_empty() {
            self.report(Report::Freed { job, nodes: freed });
        }
    }

    /// Sends the answers to `Prepare` that are there. Without a parent they stay unsent.
    fn send_answers(&mut self, job: JobId) {
        let parent_up = self.parent_up;
        let Some(kept) = self.kept.get_mut(&job).filter(|_| parent_up) else { return };
        let unsent = core::mem::take(&mut kept.unsent);
        let nodes: Vec<PreparedNode> =
            unsent.iter().filter_map(|node| kept.prepared.get(node).cloned()).collect();
        let wants = set(&core::mem::take(&mut kept.unsent_wants));
        let hash = kept.wanted.as_ref().map(|(hash, _)| *hash);
        if !nodes.is_empty() {
            self.report(Report::Prepared { job, nodes });
        }
        if let Some(hash) = hash.filter(|_| !wants.is_empty()) {
            self.report(Report::ProgramWanted { job, hash, nodes: wants });
        }
    }

    /// Keeps answers to `Prepare`, and sends them once all of the subtree are there or one refuses.
    pub(super) fn keep_prepared(&mut self, job: JobId, nodes: Vec<PreparedNode>) {
        let mut refused = false;
        let kept = self.keep(job);
        for prepared in nodes {
            let node = prepared.node;
            refused |= prepared.result.is_err();
            kept.awaiting.remove(&node);
            kept.unsent.insert(node);
            kept.no_longer_wants(&|wanting| wanting == node);
            kept.prepared.insert(node, prepared);
        }
        if refused {
            self.send_answers(job);
        } else {
            self.send_answers_if_complete(job);
        }
    }

    pub(super) fn send_answers_if_complete(&mut self, job: JobId) {
        if self.kept.get(&job).is_some_and(RetainedReports::is_complete) {
            self.send_answers(job);
        }
    }

    pub(super) fn keep_wanted(&mut self, job: JobId, hash: ContentHash, nodes: &[NodeId]) {
        let kept = self.keep(job);
        let wanted = kept.wanted.get_or_insert_with(|| (hash, BTreeSet::new()));
        wanted.0 = hash;
        wanted.1.extend(nodes);
        kept.unsent_wants.extend(nodes);
        self.send_answers_if_complete(job);
    }

    pub(super) fn keep_failed(&mut self, job: JobId, rank: u32, node: NodeId, status: RankStatus) {
        let kept = self.keep(job);
        if kept.failed.is_none() {
            kept.failed = Some((rank, node, status));
            self.report(Report::RankFailed { job, rank, node, status });
        }
    }

    pub(super) fn keep_abandoned(&mut self, job: JobId, nodes: &[NodeId]) {
        self.keep(job).abandoned.extend(nodes);
        let nodes = NodeSet::from_nodes(nodes.iter().copied());
        self.report(Report::Abandoned { job, nodes });
    }

    pub(super) fn keep_freed(&mut self, job: JobId, nodes: &[NodeId]) {
        let kept = self.keep(job);
        kept.freed.extend(nodes);
        kept.unsent_freed.extend(nodes);
        kept.awaiting.retain(|node| !nodes.contains(node));
        kept.no_longer_wants(&|node| nodes.contains(&node));
        // Answers of others may have waited for a node that will not answer any more.
        self.send_answers_if_complete(job);
        self.send_freed_if_complete(job);
        self.send_idle_if_complete(job);
    }

    /// Says that the job is gone from here and below once it is gone everywhere there: the head
    /// cannot do anything sooner.
    fn send_freed_if_complete(&mut self, job: JobId) {
        let parent_up = self.parent_up;
        let Some(kept) = self.kept.get(&job).filter(|_| parent_up) else { return };
        let below = self.routes.descriptions();
        let below = below.filter(|node| node.jobs.iter().any(|(listed, _)| *listed == job));
        let gone = below.map(|node| node.node).all(|node| kept.freed.contains(&node));
        if gone && !self.has_live_job(job) {
            self.send_freed(job);
        }
    }

    fn send_freed(&mut self, job: JobId) {
        let Some(kept) = self.kept.get_mut(&job) else { return };
        let nodes = set(&core::mem::take(&mut kept.unsent_freed));
        if !nodes.is_empty() {
            self.report(Report::Freed { job, nodes });
        }
    }

    /// The daemon stops: says what it knows, complete or not.
    pub(super) fn send_all_freed(&mut self) {
        let jobs: Vec<JobId> = self.kept.keys().copied().collect();
        for job in jobs {
            self.send_freed(job);
        }
    }

    /// These nodes are no longer below this one.
    pub(super) fn drop_kept(&mut self, nodes: &[NodeId]) {
        let jobs: Vec<JobId> = self.kept.keys().copied().collect();
        for job in jobs {
            self.keep(job).drop_nodes(&|node| nodes.contains(&node));
            self.send_answers_if_complete(job);
            self.send_freed_if_complete(job);
            self.send_idle_if_complete(job);
        }
        self.kept.retain(|_, kept| !kept.is_empty());
    }

    /// The head has recorded the end of the job.
    pub(super) fn drop_job(&mut self, job: JobId, nodes: &NodeSet) {
        let Some(kept) = self.kept.get_mut(&job) else { return };
        kept.drop_nodes(&|node| nodes.contains(node));
        if kept.is_empty() {
            self.kept.remove(&job);
        }
    }
}
