//! Relay between the parent and the children: commands go down, reports come up.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId, Timetable};

use super::{Agent, AgentAction};
use crate::message::{
    Command, JobSpec, Nanos, NodeDescription, NodeSample, NodeSet, PreparedNode, Report,
};
use crate::tree::LinkId;

/// A tree as deep as this has a fan-out of 1; anything longer is nonsense.
const MOST_HOPS: usize = 1 << 12;

impl Agent {
    /// A command for some nodes: each child gets its part, and this node's is carried out. Nodes
    /// that are not below here any more are passed over; the head hears that they left, and makes
    /// up for it when they attach again.
    pub(super) fn command(&mut self, now: Nanos, nodes: &NodeSet, command: Command) {
        self.before_forwarding(now, nodes, &command);
        let children = self.routes.by_link(nodes);
        for (link, below) in children {
            let command = match &command {
                Command::Timetable(timetable) => Command::Timetable(columns_of(timetable, &below)),
                other => other.clone(),
            };
            self.push(AgentAction::ToChild(link, below, command));
        }
        if nodes.contains(self.description.node) {
            self.carry_out(now, command);
        }
    }

    /// Those of a command's nodes that are here or below.
    fn reached(&self, nodes: &NodeSet) -> BTreeSet<NodeId> {
        let here = core::iter::once(self.description.node);
        self.routes.nodes().chain(here).filter(|&node| nodes.contains(node)).collect()
    }

    /// Notes what a command means for the nodes below.
    fn before_forwarding(&mut self, now: Nanos, nodes: &NodeSet, command: &Command) {
        match command {
            Command::Prepare(spec) => self.await_prepared(spec, nodes),
            Command::Sample { request } | Command::SamplePeers { request, .. } => {
                let reached = self.reached(nodes);
                self.gather(now, *request, reached);
            }
            Command::Forget { job } => {
                for node in self.reached(nodes) {
                    self.routes.job_ends(node, *job, true);
                }
                self.drop_job(*job, nodes);
            }
            _ => {}
        }
    }

    fn await_prepared(&mut self, spec: &JobSpec, nodes: &NodeSet) {
        let reached = self.reached(nodes);
        for part in spec.layout.iter().filter(|part| reached.contains(&part.node)) {
            self.routes.job_begins(part.node, spec.job, rank_numbers(part.first, part.count));
        }
        let kept = self.keep(spec.job);
        for node in reached {
            // Asked twice: the answer that is here is good (those of nodes that left are dropped).
            let known = kept.prepared.contains_key(&node);
            if known {
                kept.unsent.insert(node)
            } else {
                kept.awaiting.insert(node)
            };
        }
        self.send_answers_if_complete(spec.job);
    }

    /// A child's link is gone, and with it all nodes that were reached through it.
    pub(super) fn child_down(&mut self, link: LinkId) {
        self.links.remove(&link);
        let lost = self.routes.drop_link(link);
        self.lost(lost);
    }

    fn lost(&mut self, lost: Vec<NodeId>) {
        if !lost.is_empty() {
            self.drop_kept(&lost);
            self.drop_sampled(&lost);
            self.report(Report::Detached(NodeSet::from_nodes(lost)));
        }
    }

    pub(super) fn child_report(&mut self, link: LinkId, report: Report) {
        if !self.links.contains(&link) {
            return;
        }
        match report {
            Report::Attached(nodes) => self.child_attached(link, nodes),
            Report::Detached(nodes) => {
                let lost = self.routes.detach(link, &nodes);
                self.lost(lost);
            }
            Report::Prepared { job, mut nodes } => {
                nodes.retain(|prepared| self.routes.link(prepared.node) == Some(link));
                self.child_prepared(job, nodes);
            }
            Report::ProgramWanted { job, hash, nodes } => {
                let nodes = self.routes.among(link, &nodes);
                if !nodes.is_empty() {
                    self.keep_wanted(job, hash, &nodes);
                }
            }
            Report::RankFailed { job, rank, node, status } => {
                self.keep_failed(job, rank, node, status);
            }
            Report::Abandoned { job, nodes } => {
                let nodes = self.routes.among(link, &nodes);
                if !nodes.is_empty() {
                    self.keep_abandoned(job, &nodes);
                }
            }
            Report::Freed { job, nodes } => self.child_freed(link, job, &nodes),
            Report::Output { job, rank, stream, data } => self.output(job, rank, stream, data),
            Report::Samples { request, nodes } => self.child_samples(link, request, nodes),
            Report::Idle(report) => self.child_idle(link, &report),
        }
    }

    fn child_attached(&mut self, link: LinkId, nodes: Vec<NodeDescription>) {
        let here = self.description.node;
        let mut current = nodes;
        current.retain(|node| {
            node.node != here && !node.path.is_empty() && node.path.len() <= MOST_HOPS
        });
        current.retain(|node| self.routes.attach(link, node.clone()));
        // What was kept of them is repeated by themselves now.
        let numbers: Vec<NodeId> = current.iter().map(|node| node.node).collect();
        self.drop_kept(&numbers);
        if !current.is_empty() {
            self.announce(current);
        }
    }

    /// Tells the parent of nodes below, by way of this one's link to it.
    pub(super) fn announce(&mut self, mut nodes: Vec<NodeDescription>) {
        let hop = self.hop();
        for node in &mut nodes {
            node.path.push(hop);
        }
        self.report(Report::Attached(nodes));
    }

    fn child_prepared(&mut self, job: JobId, nodes: Vec<PreparedNode>) {
        if !nodes.is_empty() {
            self.keep_prepared(job, nodes);
        }
    }

    fn child_freed(&mut self, link: LinkId, job: JobId, nodes: &NodeSet) {
        let nodes = self.routes.among(link, nodes);
        for &node in &nodes {
            self.routes.job_ends(node, job, false);
        }
        if !nodes.is_empty() {
            self.keep_freed(job, &nodes);
        }
    }

    fn child_samples(&mut self, link: LinkId, request: u64, mut nodes: Vec<NodeSample>) {
        nodes.retain(|sample| self.routes.link(sample.node) == Some(link));
        if !nodes.is_empty() {
            self.add_samples(request, nodes);
        }
    }
}

/// The columns of `nodes` only; nodes know themselves which idle jobs they have.
pub(crate) fn columns_of(timetable: &Timetable, nodes: &NodeSet) -> Timetable {
    let columns = timetable.columns.iter().filter(|column| nodes.contains(column.node));
    Timetable {
        generation: timetable.generation,
        start: timetable.start,
        slice_ns: timetable.slice_ns,
        phase_ns: timetable.phase_ns,
        mode: timetable.mode,
        columns: columns.cloned().collect(),
        idle: timetable.idle.clone(),
    }
}

/// `first .. first + count`, bounded by what a node can hold: both may come from the wire.
pub(super) fn rank_numbers(first: u32, count: u32) -> Vec<u32> {
    (first..first.saturating_add(count.min(1 << 16))).collect()
}
