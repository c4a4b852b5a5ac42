//! Reports of an agent to its parent: on its own node and on those below it, combined where waiting
//! costs nothing.

use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::Agent;
use super::local_jobs::LocalPhase;
use crate::message::{
    AbandonCause, ContentHash, KeptOutput, NodeDescription, NodeSample, NodeSet, PartUse,
    PreparedNode, PreparedRanks, RankStatus, Refusal, Report, Stream, UseReport,
};
use crate::tree::LinkId;

/// A tree as deep as this has a fan-out of 1; anything longer is nonsense.
const MOST_HOPS: usize = 1 << 12;

impl Report {
    /// The job, if it is a report that agents keep.
    fn kept_of(&self) -> Option<JobId> {
        match self {
            Self::Prepared { job, .. }
            | Self::ProgramWanted { job, .. }
            | Self::RankFailed { job, .. }
            | Self::Abandoned { job, .. }
            | Self::Freed { job, .. }
            | Self::Used(UseReport { job, .. }) => Some(*job),
            // Idleness is kept of jobs of which something else is.
            Self::Attached(_)
            | Self::Detached(_)
            | Self::Output { .. }
            | Self::Samples { .. }
            | Self::Idle(_)
            | Self::Exchange(_)
            | Self::Relay(_)
            | Self::Standing(_)
            | Self::Condition(_) => None,
        }
    }
}

/// What the driver reports of the node's own jobs.
impl Agent {
    pub(super) fn prepared(&mut self, job: JobId, result: Result<PreparedRanks, Refusal>) {
        let next = if result.is_ok() { LocalPhase::Prepared } else { LocalPhase::Preparing };
        if self.jobs.advance(job, LocalPhase::Preparing, next) {
            self.answer(job, result);
        }
    }

    pub(super) fn program_needed(&mut self, job: JobId, hash: ContentHash) {
        if self.jobs.phase(job) == Some(LocalPhase::Preparing) {
            let node = self.node();
            self.report_wanted(job, hash, &[node]);
        }
    }

    pub(super) fn started(&mut self, job: JobId, result: Result<(), Refusal>) {
        if let Err(refusal) = result
            && self.jobs.phase(job) == Some(LocalPhase::Started)
        {
            self.answer(job, Err(refusal));
        }
    }

    pub(super) fn rank_exited(&mut self, job: JobId, rank: u32, status: RankStatus) {
        if self.jobs.remove_rank(job, rank) && !status.success() {
            self.report_failed(job, rank, self.node(), status);
        }
    }

    /// What a job has used here so far.
    pub(super) fn used(&mut self, job: JobId, used: PartUse) {
        if self.jobs.has_ranks(job) {
            let nodes = Vec::from([(self.node(), used)]);
            self.report_used(&UseReport { job, nodes });
        }
    }

    /// The driver has nothing of the job any more. The head hears it behind all output.
    pub(super) fn freed(&mut self, job: JobId) {
        let node = self.node();
        let Some(vanished) = self.jobs.drain(job) else { return };
        if vanished {
            // Gone without an order and without its ranks having exited: that is not success.
            self.report_abandoned(job, &[node], AbandonCause::Vanished);
        }
        if self.output.end(job) {
            self.gone(job);
        } else if let Some(last) = self.output.last(job, self.node()) {
            self.report(last);
        }
    }

    /// Neither anything of the job is left here, nor output of it that the head does not have.
    pub(super) fn gone(&mut self, job: JobId) {
        if self.jobs.free(job) {
            let node = self.node();
            self.report_freed(job, &[node]);
        }
    }

    /// Of a job that has not started here or is being killed there is nothing to say.
    pub(super) fn idle(&mut self, job: JobId, idle: bool) {
        if self.jobs.phase(job) == Some(LocalPhase::Started) {
            let node = self.node();
            self.report_idle(job, &[node], idle);
        }
    }

    pub(super) fn output(&mut self, job: JobId, rank: u32, stream: Stream, data: Vec<u8>) {
        if !data.is_empty() {
            let report = self.output.push(job, (rank, self.description.node), stream, data);
            self.report(report);
        }
    }

    /// The head has so much of the output of a job here, and wants the rest again or not.
    pub(super) fn output_kept(&mut self, job: JobId, kept: &[KeptOutput], again: bool) {
        self.output.acknowledge(job, kept);
        if again {
            let node = self.node();
            let reports = self.output.acknowledged(job, node).into_iter();
            let reports = reports.chain(self.output.again(job, node));
            for report in reports.chain(self.output.last(job, node)) {
                self.report(report);
            }
        }
        if self.output.take_ended(job) {
            self.gone(job);
        }
    }

    /// The job is over for the head, which wants none of its output.
    pub(super) fn drop_output(&mut self, job: JobId) {
        self.output.clear(job);
        if self.output.take_ended(job) {
            self.gone(job);
        }
    }

    pub(super) fn sampled(&mut self, request: u64, sample: NodeSample) {
        self.report_samples(request, Vec::from([sample]));
    }
}

/// What children report.
impl Agent {
    /// A child's link is gone, and with it all nodes that were reached through it.
    pub(super) fn child_down(&mut self, link: LinkId) {
        let lost = self.subtree.remove_link(link);
        self.detached(lost);
    }

    fn detached(&mut self, lost: Vec<NodeId>) {
        if !lost.is_empty() {
            self.drop_nodes(&lost);
            self.samples.forget_nodes(&lost);
            self.report(Report::Detached(NodeSet::from_nodes(lost)));
        }
    }

    pub(super) fn child_report(&mut self, link: LinkId, report: Report) {
        if !self.subtree.has_link(link) {
            return;
        }
        // More jobs than there can be: a daemon below makes them up.
        if report.kept_of().is_some_and(|job| !self.reports.has_room(job)) {
            return;
        }
        match report {
            Report::Attached(nodes) => self.child_attached(link, nodes),
            Report::Detached(nodes) => {
                let lost = self.subtree.detach(link, &nodes);
                self.detached(lost);
            }
            Report::Prepared { job, mut nodes } => {
                let routes = self.subtree.routes();
                nodes.retain(|prepared| routes.link(prepared.node) == Some(link));
                for refusal in nodes.iter_mut().filter_map(|node| node.result.as_mut().err()) {
                    refusal.bound();
                }
                if !nodes.is_empty() {
                    self.report_prepared(job, nodes);
                }
            }
            Report::ProgramWanted { job, hash, nodes } => {
                let nodes = self.subtree.routes().among(link, &nodes);
                if !nodes.is_empty() {
                    self.report_wanted(job, hash, &nodes);
                }
            }
            Report::RankFailed { job, rank, node, status } => {
                self.report_failed(job, rank, node, status);
            }
            Report::Abandoned { job, nodes, cause } => {
                let nodes = self.subtree.routes().among(link, &nodes);
                if !nodes.is_empty() {
                    self.report_abandoned(job, &nodes, cause);
                }
            }
            Report::Freed { job, nodes } => self.child_freed(link, job, &nodes),
            // Without a parent it is dropped: the node below sends it again when the head asks.
            output @ Report::Output { .. } => self.report(output),
            Report::Samples { request, mut nodes } => {
                let routes = self.subtree.routes();
                nodes.retain(|sample| routes.link(sample.node) == Some(link));
                if !nodes.is_empty() {
                    self.report_samples(request, nodes);
                }
            }
            Report::Idle(report) => {
                let nodes = self.subtree.routes().among(link, &report.nodes);
                self.report_idle(report.job, &nodes, report.idle);
            }
            Report::Exchange(report) => self.child_exchange(link, report),
            Report::Relay(relayed) => self.report(Report::Relay(relayed)),
            Report::Standing(report) => self.child_standing(link, report),
            Report::Used(report) => self.child_used(link, report),
            Report::Condition(report) => self.child_condition(link, report),
        }
    }

    fn child_used(&mut self, link: LinkId, mut report: UseReport) {
        let routes = self.subtree.routes();
        report.nodes.retain(|(node, _)| routes.link(*node) == Some(link));
        if !report.nodes.is_empty() {
            self.report_used(&report);
        }
    }

    fn child_attached(&mut self, link: LinkId, nodes: Vec<NodeDescription>) {
        let own = self.node();
        let nodes = self.subtree.attach(link, nodes, |node| {
            node.node != own && (1..=MOST_HOPS).contains(&node.path.len())
        });
        // They repeat now themselves what was kept of them.
        let numbers: Vec<NodeId> = nodes.iter().map(|node| node.node).collect();
        self.drop_nodes(&numbers);
        if !nodes.is_empty() {
            self.announce(nodes);
        }
    }

    fn child_freed(&mut self, link: LinkId, job: JobId, nodes: &NodeSet) {
        let nodes = self.subtree.routes().among(link, nodes);
        for &node in &nodes {
            self.subtree.routes_mut().job_ends(node, job, false);
        }
        if !nodes.is_empty() {
            self.report_freed(job, &nodes);
        }
    }

    /// These nodes are no longer below this one, or are anew.
    fn drop_nodes(&mut self, nodes: &[NodeId]) {
        for job in self.reports.jobs() {
            self.reports.drop_nodes(job, nodes);
            self.send_answers_if_complete(job);
            self.send_freed_if_complete(job);
            self.send_idle_if_complete(job);
        }
        self.reports.drop_empty();
        self.standings.drop_nodes(nodes);
        self.drop_exchanges_of(nodes);
    }
}

/// What goes to the parent.
impl Agent {
    /// Attached, or attached elsewhere: says who is here, and repeats what is kept. What a node
    /// waits for comes first, and `Freed` last. The head asks for output.
    pub(super) fn parent_up(&mut self) {
        self.parent_up = true;
        self.attachments += 1;
        let mut nodes = Vec::from([self.description()]);
        nodes.extend(self.subtree.routes().descriptions().cloned());
        self.announce(nodes);
        let jobs = self.reports.jobs();
        for &job in &jobs {
            self.reports.repeat_preparation(job);
            self.send_answers(job);
        }
        self.repeat_conditions();
        self.repeat_exchanges();
        for job in self.standings.forget_sent() {
            self.send_standing_if_complete(job);
        }
        for &job in &jobs {
            self.reports.repeat_idle(job);
            self.send_idle_if_complete(job);
            self.repeat_last_output(job);
            for report in self.reports.repeat_end(job) {
                self.report(report);
            }
        }
    }

    /// A new head has to know how far the output of a job had come before it hears that nothing of it is left here: it asks
    /// too late for that.
    fn repeat_last_output(&mut self, job: JobId) {
        if self.jobs.phase(job) == Some(LocalPhase::Freed) {
            for report in self.output.acknowledged(job, self.node()) {
                self.report(report);
            }
        }
    }

    /// Tells the parent of nodes below, by way of this one's link to it.
    fn announce(&mut self, mut nodes: Vec<NodeDescription>) {
        let hop = self.hop();
        for node in &mut nodes {
            node.path.push(hop);
        }
        self.report(Report::Attached(nodes));
    }

    /// Keeps answers to `Prepare`, and sends them once all of the subtree are there or one refuses.
    pub(super) fn report_prepared(&mut self, job: JobId, nodes: Vec<PreparedNode>) {
        if self.reports.keep_prepared(job, nodes) {
            self.send_answers(job);
        } else {
            self.send_answers_if_complete(job);
        }
    }

    /// Sends the answers to `Prepare` that are there. Without a parent they stay unsent.
    fn send_answers(&mut self, job: JobId) {
        if self.parent_up {
            for report in self.reports.take_answers(job) {
                self.report(report);
            }
        }
    }

    pub(super) fn send_answers_if_complete(&mut self, job: JobId) {
        if self.reports.is_complete(job) {
            self.send_answers(job);
        }
    }

    fn report_wanted(&mut self, job: JobId, hash: ContentHash, nodes: &[NodeId]) {
        self.reports.keep_wanted(job, hash, nodes);
        self.send_answers_if_complete(job);
    }

    fn report_failed(&mut self, job: JobId, rank: u32, node: NodeId, status: RankStatus) {
        if self.reports.keep_failed(job, rank, node, status) {
            self.report(Report::RankFailed { job, rank, node, status });
        }
    }

    pub(super) fn report_abandoned(&mut self, job: JobId, nodes: &[NodeId], cause: AbandonCause) {
        self.reports.keep_abandoned(job, nodes, cause);
        let nodes = NodeSet::from_nodes(nodes.iter().copied());
        self.report(Report::Abandoned { job, nodes, cause });
    }

    fn report_used(&mut self, report: &UseReport) {
        if self.reports.keep_used(report, self.now) && self.parent_up {
            self.send_used(report.job);
        }
    }

    pub(super) fn report_freed(&mut self, job: JobId, nodes: &[NodeId]) {
        self.reports.keep_freed(job, nodes);
        // Answers of others may have waited for a node that will not answer any more.
        self.send_answers_if_complete(job);
        self.send_freed_if_complete(job);
        self.send_idle_if_complete(job);
    }

    /// Whether something holds for all nodes below that have something of the job.
    pub(super) fn all_below(&self, job: JobId, holds: impl Fn(NodeId) -> bool) -> bool {
        let below = self.subtree.routes().descriptions();
        let mut below = below.filter(|node| node.jobs.iter().any(|(listed, _)| *listed == job));
        below.all(|node| holds(node.node))
    }

    /// Says that the job is gone from here and below once it is gone everywhere there: the head
    /// cannot do anything sooner.
    fn send_freed_if_complete(&mut self, job: JobId) {
        let gone = self.all_below(job, |node| self.reports.is_freed(job, node));
        if self.parent_up && gone && !self.jobs.is_live(job) {
            self.send_freed(job);
        }
    }

    /// The head believes it of a child's own nodes, and of jobs of which something else is kept.
    fn report_idle(&mut self, job: JobId, nodes: &[NodeId], idle: bool) {
        if let Some(report) = self.reports.keep_idle(job, nodes, idle) {
            self.report(report);
        }
        if idle {
            self.send_idle_if_complete(job);
        }
    }

    /// Says that the job is idle here and below, once it is everywhere there.
    fn send_idle_if_complete(&mut self, job: JobId) {
        let waits = |node| self.reports.waits(job, node);
        let idle = self.reports.has_job(job)
            && self.all_below(job, waits)
            && (!self.jobs.has_ranks(job) || waits(self.node()));
        if self.parent_up && idle {
            let report: Option<Report> = self.reports.take_idle(job);
            if let Some(report) = report {
                self.report(report);
            }
        }
    }

    fn report_samples(&mut self, request: u64, samples: Vec<NodeSample>) {
        if let Some(report) = self.samples.add(request, samples) {
            self.report(report);
        }
    }
}
