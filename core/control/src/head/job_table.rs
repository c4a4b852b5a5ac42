//! Job table of the head: all jobs that are not over, and the last of those that are.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::job::Job;
use super::quota::request_bytes;
use crate::message::{ContentHash, JobRecord, JobState, Nanos, NodeRanks, NodeSet, Outcome};

/// Which ended jobs the head keeps, for `kumi ps --all`, their output and repeated submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Most of them; fewer if their requests are large.
    pub jobs: usize,
    /// For so long after their end, in milliseconds.
    pub age_ms: u64,
}

/// Requests of the ended jobs that are kept may take so much together, in bytes.
const MOST_ENDED_BYTES: usize = 32 << 20;

/// The jobs by number, and what finds them quickly.
#[derive(Debug)]
pub(super) struct JobTable {
    jobs: BTreeMap<JobId, Job>,
    /// By node: the jobs placed on it that are not over.
    by_node: Vec<BTreeSet<JobId>>,
    tokens: BTreeMap<u128, JobId>,
    next: u64,
    /// Ended jobs in the order of their end, oldest first.
    ended: VecDeque<JobId>,
    ended_bytes: usize,
    retention: Retention,
    /// When the first of the delayed ends is due.
    end_due: Option<Nanos>,
}

impl JobTable {
    /// An empty table for a cluster of so many nodes.
    pub(super) fn new(nodes: usize, retention: Retention) -> Self {
        Self {
            jobs: BTreeMap::new(),
            by_node: alloc::vec![BTreeSet::new(); nodes],
            tokens: BTreeMap::new(),
            next: 1,
            ended: VecDeque::new(),
            ended_bytes: 0,
            retention,
            end_due: None,
        }
    }

    /// The cluster has so many numbers of nodes from now on, and no fewer than before.
    pub(super) fn set_node_count(&mut self, nodes: usize) {
        if nodes > self.by_node.len() {
            self.by_node.resize(nodes, BTreeSet::new());
        }
    }

    /// The number of the next job that is submitted.
    pub(super) fn next_id(&self) -> JobId {
        JobId(self.next)
    }

    pub(super) fn insert(&mut self, job: Job) {
        let id = job.id();
        self.next = self.next.max(id.0.saturating_add(1));
        self.tokens.insert(job.record.spec.request.token, id);
        self.jobs.insert(id, job);
    }

    /// Forgets a job.
    pub(super) fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        self.tokens.remove(&job.record.spec.request.token);
        Some(job)
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(&id)
    }

    /// The job that was submitted with this token.
    pub(super) fn by_token(&self, token: u128) -> Option<&Job> {
        self.tokens.get(&token).and_then(|&id| self.get(id))
    }

    /// All jobs, ascending.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Job> + '_ {
        self.jobs.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Job> + '_ {
        self.jobs.values_mut()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &JobRecord> + '_ {
        self.jobs.values().map(|job| &job.record)
    }

    /// The jobs that are not over, ascending.
    pub(super) fn live(&self) -> Vec<JobId> {
        self.iter().filter(|job| !job.is_over()).map(Job::id).collect()
    }

    /// Whether all jobs are over.
    pub(super) fn all_over(&self) -> bool {
        self.iter().all(Job::is_over)
    }

    /// The jobs placed on a node that are not over.
    pub(super) fn on_node(&self, node: NodeId) -> BTreeSet<JobId> {
        let number = usize::try_from(node.0).ok();
        number.and_then(|number| self.by_node.get(number)).cloned().unwrap_or_default()
    }

    /// Those of some jobs, which ascend, that have places on one of the nodes and are not over.
    pub(super) fn among(&self, jobs: &[JobId], nodes: &NodeSet) -> Vec<JobId> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let there = nodes.iter().filter_map(|node| self.by_node.get(node.0 as usize)).flatten();
        let found: BTreeSet<JobId> =
            there.copied().filter(|job| jobs.binary_search(job).is_ok()).collect();
        found.into_iter().collect()
    }

    /// The places of a job; none if it has none, or is not known.
    pub(super) fn layout(&self, id: JobId) -> &[NodeRanks] {
        self.get(id).map_or(&[], |job| &job.record.spec.layout)
    }

    /// Nodes with jobs that are not over.
    pub(super) fn busy_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let busy = (0..).zip(&self.by_node).filter(|(_, jobs)| !jobs.is_empty());
        busy.map(|(number, _)| NodeId(number))
    }

    /// The job got these nodes; those that are not configured are passed over.
    pub(super) fn assign(&mut self, id: JobId, nodes: &[NodeId]) {
        for &node in nodes {
            if let Some(jobs) = self.by_node.get_mut(node.0 as usize) {
                jobs.insert(id);
            }
        }
    }

    /// The job no longer holds these nodes.
    pub(super) fn unassign(&mut self, id: JobId, nodes: impl Iterator<Item = NodeId>) {
        for node in nodes {
            if let Some(jobs) = self.by_node.get_mut(node.0 as usize) {
                jobs.remove(&id);
            }
        }
    }

    /// Has the job end with this outcome at `at`. If an end was set, its outcome stays, and the earlier of both times.
    pub(super) fn delay_end(&mut self, id: JobId, outcome: Outcome, at: Nanos) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let (_, set) = job.delayed_end.get_or_insert((outcome, at));
        *set = at.min(*set);
        self.end_due = Some(self.end_due.map_or(*set, |due| due.min(*set)));
    }

    /// The jobs whose delayed end is due, with their outcomes.
    pub(super) fn due_ends(&self, now: Nanos) -> Vec<(JobId, Outcome)> {
        if self.end_due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let due =
            |job: &Job| job.delayed_end.clone().filter(|(_, at)| *at <= now && !job.is_over());
        self.iter().filter_map(|job| Some((job.id(), due(job)?.0))).collect()
    }

    /// Finds the next delayed end, after those that were due.
    pub(super) fn set_next_end(&mut self, now: Nanos) {
        if self.end_due.is_some_and(|due| now >= due) {
            let left = self.jobs.values().filter(|job| !job.is_over());
            self.end_due = left.filter_map(|job| job.delayed_end.as_ref().map(|end| end.1)).min();
        }
    }

    /// When the first delayed end is due.
    pub(super) fn end_due(&self) -> Option<Nanos> {
        self.end_due
    }

    /// Keeps an ended job without what is large, until [`JobTable::forget_old`] forgets it.
    pub(super) fn retire(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.record.spec.request.env = Vec::new();
            self.ended_bytes += request_bytes(&job.record.spec.request);
        }
        self.ended.push_back(id);
    }

    /// The place of the ended job that is forgotten next. The last job is kept: the next head counts on from its number.
    fn oldest(&self) -> Option<usize> {
        self.ended.iter().position(|id| id.0.saturating_add(1) != self.next)
    }

    /// How long the job that ended first may still be kept, in milliseconds.
    pub(super) fn oldest_is_kept_for(&self, wall_ms: u64) -> Option<u64> {
        let ended = self.get(self.ended[self.oldest()?])?.record.ended_ms.unwrap_or(0);
        Some(self.retention.age_ms.saturating_sub(wall_ms.saturating_sub(ended)))
    }

    /// Forgets the job that ended first if there are too many or it is too old.
    pub(super) fn forget_old(&mut self, wall_ms: u64) -> Option<JobId> {
        let many = self.ended.len() > self.retention.jobs || self.ended_bytes > MOST_ENDED_BYTES;
        if !many && self.oldest_is_kept_for(wall_ms) != Some(0) {
            return None;
        }
        let oldest = self.ended.remove(self.oldest()?)?;
        if let Some(job) = self.remove(oldest) {
            let bytes = request_bytes(&job.record.spec.request);
            self.ended_bytes = self.ended_bytes.saturating_sub(bytes);
        }
        Some(oldest)
    }

    /// All nodes that wait for this program, for whichever job.
    pub(super) fn nodes_without(&self, hash: ContentHash) -> BTreeSet<NodeId> {
        self.iter().flat_map(|job| job.nodes_without(hash)).collect()
    }

    /// The jobs for which a transfer of this program may begin.
    pub(super) fn awaiting_program(&self, hash: ContentHash) -> Vec<JobId> {
        let lacks = |job: &&Job| job.nodes_without(hash).next().is_some() && job.awaits_program();
        self.iter().filter(lacks).map(Job::id).collect()
    }

    /// Whether another job than `id` that prepares has this program.
    pub(super) fn another_prepares(&self, id: JobId, hash: ContentHash) -> bool {
        self.iter().any(|other| {
            other.id() != id && other.record.state == JobState::Preparing && other.program() == hash
        })
    }
}
