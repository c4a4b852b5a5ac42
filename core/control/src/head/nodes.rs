//! Nodes that come, go, and come back: reconciliation, lost nodes, leases.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::Head;
use super::jobs::PartState;
use crate::message::{Command, JobState, Nanos, NodeDescription, NodeSet, Outcome};
use crate::tree::LinkId;

/// A configured node.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// What it said of itself when it last attached.
    pub(super) description: Option<NodeDescription>,
    /// Jobs placed on it that are not over.
    pub(super) jobs: BTreeSet<JobId>,
}

/// When the jobs of a node that is away fail.
#[derive(Clone, Copy, Debug)]
pub(super) struct AbsenceDeadline {
    /// When the head has watched so long: what the node said may wait to be read while the head is not run.
    pub(super) watched: Nanos,
    /// At the latest then: the node has stopped them itself, its lease is over.
    pub(super) latest: Nanos,
}

/// What nodes must be told when they attach, gathered so that each command goes once to all.
#[derive(Default)]
struct Reconciliation {
    kill: BTreeMap<JobId, Vec<NodeId>>,
    prepare: BTreeMap<JobId, Vec<NodeId>>,
    start: BTreeMap<JobId, Vec<NodeId>>,
    /// Running there when last heard of, and not known there now.
    vanished: Vec<(JobId, NodeId)>,
    /// Ending, and gone without a report.
    freed: Vec<(JobId, NodeId)>,
}

impl Head {
    pub(super) fn node_mut(&mut self, node: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(usize::try_from(node.0).ok()?)
    }

    pub(super) fn is_configured(&self, node: NodeId) -> bool {
        usize::try_from(node.0).is_ok_and(|number| number < self.nodes.len())
    }

    /// After a restart: the nodes of jobs that are not over have some time to attach, unless they
    /// were taken out of the configuration meanwhile.
    pub(super) fn await_restored_nodes(&mut self) {
        let parts = self.jobs.values().flat_map(|job| {
            let id = job.id();
            job.parts.keys().map(move |&node| (id, node))
        });
        let gone: Vec<(JobId, NodeId)> =
            parts.filter(|&(_, node)| !self.is_configured(node)).collect();
        for (id, node) in gone {
            self.part_lost(id, node);
        }
        let away = self.away_for(self.restart_grace());
        let busy = (0..).zip(&self.nodes).filter(|(_, node)| !node.jobs.is_empty());
        self.away = busy.map(|(number, _)| (NodeId(number), away)).collect();
    }

    /// Away from now on, with so much time to come back.
    fn away_for(&self, grace: Nanos) -> AbsenceDeadline {
        let longest = grace.max(self.restart_grace());
        AbsenceDeadline {
            watched: self.clock.elapsed().saturating_add(grace),
            latest: self.now.saturating_add(longest),
        }
    }

    pub(super) fn child_down(&mut self, link: LinkId) {
        self.links.remove(&link);
        let lost = self.routes.drop_link(link);
        self.detached(&lost);
    }

    /// These nodes are not reached any more. They have a little time to come back.
    pub(super) fn detached(&mut self, lost: &[NodeId]) {
        let away = self.away_for(self.config.detach_grace_ns);
        for &node in lost {
            self.policy.remove_node(node);
            self.drop_receiver(node);
            if self.is_configured(node) {
                self.away.insert(node, away);
            }
        }
        self.sampling_without(lost);
        self.forget_idle(lost);
    }

    /// Nodes attached through `link`: for the first time, again, or by another way.
    pub(super) fn attached(&mut self, link: LinkId, nodes: Vec<NodeDescription>) {
        let mut nodes = nodes;
        nodes.retain(|node| self.is_configured(node.node));
        nodes.retain(|node| self.routes.attach(link, node.clone()));
        let numbers: Vec<NodeId> = nodes.iter().map(|node| node.node).collect();
        self.forget_idle(&numbers);
        self.reconcile(link, &nodes);
        self.measure_nodes();
        self.nodes_changed = true;
    }

    fn reconcile(&mut self, link: LinkId, nodes: &[NodeDescription]) {
        let set = NodeSet::from_nodes(nodes.iter().map(|node| node.node));
        if set.is_empty() {
            return;
        }
        let nanos = self.config.lease_ns;
        self.send_on(link, set.clone(), Command::Lease { nanos });
        self.send_timetable(link, set.clone());
        let mut repairs = Reconciliation::default();
        for node in nodes {
            self.policy.add_node(node.node);
            self.away.remove(&node.node);
            if let Some(entry) = self.node_mut(node.node) {
                entry.description = Some(node.clone());
            }
            self.drop_receiver(node.node);
            self.compare(node, &mut repairs);
        }
        self.repair(repairs);
        if self.shutdown.is_some() {
            self.send_on(link, set, Command::Shutdown);
        }
    }

    /// Compares what a node has with what it should have.
    fn compare(&self, node: &NodeDescription, repairs: &mut Reconciliation) {
        let listed: BTreeSet<JobId> = node.jobs.iter().map(|&(job, _)| job).collect();
        for &id in &listed {
            let part = self.jobs.get(&id).and_then(|job| job.parts.get(&node.node));
            // Over (then it has no parts), never known, or given up when the node was lost.
            if part.is_none_or(|part| part.state == PartState::Lost) {
                repairs.kill.entry(id).or_default().push(node.node);
            }
        }
        let Some(entry) = self.nodes.get(node.node.0 as usize) else { return };
        for &id in &entry.jobs {
            let Some(job) = self.jobs.get(&id) else { continue };
            let live = job.parts.get(&node.node).is_some_and(|part| part.state == PartState::Live);
            if !live {
                continue;
            }
            let missed = match (&job.record.state, listed.contains(&id)) {
                (JobState::Preparing, false) => &mut repairs.prepare,
                (JobState::Running, true) if job.start_command().is_some() => &mut repairs.start,
                (JobState::Ending(_), true) => &mut repairs.kill,
                (JobState::Running, false) => {
                    repairs.vanished.push((id, node.node));
                    continue;
                }
                (JobState::Ending(_), false) => {
                    repairs.freed.push((id, node.node));
                    continue;
                }
                _ => continue,
            };
            missed.entry(id).or_default().push(node.node);
        }
    }

    fn repair(&mut self, repairs: Reconciliation) {
        for (id, nodes) in repairs.kill {
            self.send(&NodeSet::from_nodes(nodes), &Command::Kill { job: id });
        }
        for (id, nodes) in repairs.prepare {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            for (_, part) in job.parts.iter_mut().filter(|(node, _)| nodes.contains(node)) {
                part.prepared = None;
                part.wanted = None;
            }
            let spec = alloc::boxed::Box::new(job.record.spec.clone());
            self.send(&NodeSet::from_nodes(nodes), &Command::Prepare(spec));
        }
        for (id, nodes) in repairs.start {
            let start = self.jobs.get(&id).and_then(super::jobs::Job::start_command);
            if let Some(start) = start {
                self.send(&NodeSet::from_nodes(nodes), &start);
            }
        }
        for (id, node) in repairs.vanished {
            self.part_lost(id, node);
        }
        for (id, node) in repairs.freed {
            self.part_over(id, node, PartState::Freed);
        }
    }

    pub(super) fn part_over(&mut self, id: JobId, node: NodeId, state: PartState) {
        let part = self.jobs.get_mut(&id).and_then(|job| job.parts.get_mut(&node));
        let Some(part) = part.filter(|part| part.state == PartState::Live) else { return };
        part.state = state;
        part.wanted = None;
        self.check_idle(id);
        self.finish_if_freed(id);
    }

    fn part_lost(&mut self, id: JobId, node: NodeId) {
        let live = |job: &super::jobs::Job| {
            job.parts.get(&node).is_some_and(|part| part.state == PartState::Live)
        };
        if !self.jobs.get(&id).is_some_and(live) {
            return;
        }
        if let Some(part) = self.jobs.get_mut(&id).and_then(|job| job.parts.get_mut(&node)) {
            part.state = PartState::Lost;
            part.wanted = None;
        }
        self.end(id, Outcome::NodeLost(node));
        self.finish_if_freed(id);
    }

    /// Nodes that stayed away too long take their jobs with them.
    pub(super) fn check_lost_nodes(&mut self) {
        let (watched, now) = (self.clock.elapsed(), self.now);
        let late = |away: &AbsenceDeadline| watched >= away.watched || now >= away.latest;
        let lost = self.away.iter().filter(|(_, away)| late(away));
        let lost: Vec<NodeId> = lost.map(|(&node, _)| node).collect();
        for node in lost {
            self.away.remove(&node);
            self.nodes_changed = true;
            let jobs = self.node_mut(node).map(|node| node.jobs.clone()).unwrap_or_default();
            for id in jobs {
                self.part_lost(id, node);
            }
        }
    }

    /// All nodes get their lease renewed well before it runs out.
    pub(super) fn renew_leases(&mut self) {
        if self.now < self.lease_due {
            return;
        }
        self.lease_due = self.now.saturating_add((self.config.lease_ns / 3).max(1));
        let attached = NodeSet::from_nodes(self.routes.nodes());
        let nanos = self.config.lease_ns;
        self.send(&attached, &Command::Lease { nanos });
    }
}
