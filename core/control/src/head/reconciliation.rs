//! Reconciliation: nodes that come, go and come back, and the repair of what they missed meanwhile.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::Head;
use super::job::{Job, PartState};
use crate::message::{Command, JobState, NodeDescription, NodeSet};
use crate::tree::LinkId;

/// Commands that repair nodes after they attach, gathered so that each goes once to all.
#[derive(Default)]
struct Repairs {
    /// They may have output that did not come.
    output: BTreeMap<JobId, Vec<NodeId>>,
    kill: BTreeMap<JobId, Vec<NodeId>>,
    prepare: BTreeMap<JobId, Vec<NodeId>>,
    start: BTreeMap<JobId, Vec<NodeId>>,
    /// Running there when last heard of, and not known there now.
    vanished: Vec<(JobId, NodeId)>,
    /// Lost with their node, and found there when it came back.
    found: Vec<(JobId, NodeId)>,
    /// Ending, and gone without a report.
    freed: Vec<(JobId, NodeId)>,
}

impl Head {
    /// After a restart: the nodes of jobs that are not over have some time to attach, unless they
    /// were taken out of the configuration meanwhile.
    pub(super) fn await_restored_nodes(&mut self) {
        let parts = self.jobs.iter().flat_map(|job| {
            let id = job.id();
            job.parts.keys().map(move |&node| (id, node))
        });
        let gone: Vec<(JobId, NodeId)> =
            parts.filter(|&(_, node)| !self.membership.is_configured(node)).collect();
        let until = self.membership.last_lease_end(self.time.now());
        for (id, node) in gone {
            self.part_lost(id, node, Some(until));
        }
        self.membership.expect(self.jobs.busy_nodes(), &self.time);
    }

    pub(super) fn child_down(&mut self, link: LinkId) {
        let lost = self.membership.tree_mut().remove_link(link);
        self.detached(&lost);
    }

    /// These nodes are not reached any more. They have a little time to come back.
    pub(super) fn detached(&mut self, lost: &[NodeId]) {
        self.membership.count_sizes();
        self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
        // Nodes that stop do not come back.
        let patient = self.time.has_stalled() && self.shutdown.is_none();
        for &node in lost {
            self.scheduler.remove_node(node);
            self.transfers.forget_node(node);
            self.membership.set_away(node, &self.time, patient);
        }
        self.samples.forget_nodes(lost);
        self.forget_idle(lost);
        self.waiting.set_changed(self.time.now());
    }

    /// Nodes attached through `link`: for the first time, again, or by another way.
    pub(super) fn attached(&mut self, link: LinkId, nodes: Vec<NodeDescription>) {
        let began_anew: BTreeSet<NodeId> = nodes
            .iter()
            .filter(|now| {
                let before = self.membership.description(now.node);
                before.is_some_and(|before| before.incarnation != now.incarnation)
            })
            .map(|node| node.node)
            .collect();
        let nodes = self.membership.attach(link, nodes);
        let numbers: Vec<NodeId> = nodes.iter().map(|node| node.node).collect();
        self.forget_idle(&numbers);
        if self.scheduler.is_outdated(&self.jobs, &self.membership) {
            self.renew_policy();
        }
        self.reconcile(link, &nodes, &began_anew);
        self.scheduler.set_nodes_changed();
    }

    /// The policy is made anew, with what is known of nodes now.
    pub(super) fn renew_policy(&mut self) {
        self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
        let (membership, idle) = (&self.membership, &self.idle);
        self.scheduler.renew(&mut self.jobs, membership, idle, &self.time);
        self.timetable.mark_stale();
    }

    /// These nodes left or attached anew: what they reported of idle jobs does not count any more.
    pub(super) fn forget_idle(&mut self, nodes: &[NodeId]) {
        let mut affected = Vec::new();
        for &node in nodes {
            self.verdicts.forget_node(node);
            affected.extend(self.idle.forget_node(node, &self.jobs.on_node(node)));
        }
        for id in affected {
            self.update_idle(id);
        }
    }

    fn reconcile(
        &mut self,
        link: LinkId,
        nodes: &[NodeDescription],
        began_anew: &BTreeSet<NodeId>,
    ) {
        let set = NodeSet::from_nodes(nodes.iter().map(|node| node.node));
        if set.is_empty() {
            return;
        }
        let lease = self.membership.grant(self.time.now());
        self.membership.renew_soon(self.time.now());
        self.actions.send_on(link, set.clone(), lease);
        self.send_revocations(link, set.clone());
        self.send_timetable(link, set.clone());
        let mut repairs = Repairs::default();
        self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
        for node in nodes {
            if self.membership.takes_jobs(node.node) {
                self.scheduler.add_node(node);
            }
            self.transfers.forget_node(node.node);
            self.compare(node, began_anew.contains(&node.node), &mut repairs);
        }
        self.repair(repairs);
        if self.shutdown.is_some() {
            self.actions.send_on(link, set, Command::Shutdown);
        }
    }

    /// Compares what a node has with what it should have. A daemon that began anew has lost what it had.
    ///
    /// A node is also told to kill what is to end there and what it does not list: an order to prepare waits for its record, so
    /// one from before may come there only after this.
    fn compare(&self, node: &NodeDescription, began_anew: bool, repairs: &mut Repairs) {
        let listed: BTreeSet<JobId> = node.jobs.iter().map(|&(job, _)| job).collect();
        let state = |id| Some(self.jobs.get(id)?.part(node.node)?.state);
        for &id in &listed {
            repairs.output.entry(id).or_default().push(node.node);
            // Over (then it has no parts), never known, or given up when the node was lost.
            if state(id).is_none_or(|state| matches!(state, PartState::Lost { .. })) {
                repairs.kill.entry(id).or_default().push(node.node);
            }
        }
        for id in self.jobs.on_node(node.node) {
            let Some(job) = self.jobs.get(id) else { continue };
            match state(id) {
                Some(PartState::Live) => {}
                Some(PartState::Lost { .. }) if listed.contains(&id) => {
                    repairs.found.push((id, node.node));
                    continue;
                }
                Some(PartState::Lost { .. }) => {
                    repairs.kill.entry(id).or_default().push(node.node);
                    repairs.freed.push((id, node.node));
                    continue;
                }
                Some(PartState::Freed) | None => continue,
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
                    repairs.kill.entry(id).or_default().push(node.node);
                    let gone = if began_anew { &mut repairs.vanished } else { &mut repairs.freed };
                    gone.push((id, node.node));
                    continue;
                }
                _ => continue,
            };
            missed.entry(id).or_default().push(node.node);
        }
    }

    fn repair(&mut self, repairs: Repairs) {
        for (id, nodes) in repairs.output {
            self.ask_for_output(id, &nodes);
        }
        for (id, nodes) in repairs.kill {
            self.send(&NodeSet::from_nodes(nodes), &Command::Kill { job: id });
        }
        for (id, nodes) in repairs.prepare {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            for (_, part) in job.parts.iter_mut().filter(|(node, _)| nodes.contains(node)) {
                part.prepared = None;
                part.wanted = None;
            }
            let spec = job.spec_for_nodes();
            self.send(&NodeSet::from_nodes(nodes), &Command::Prepare(spec));
        }
        for (id, nodes) in repairs.start {
            let start = self.jobs.get(id).and_then(Job::start_command);
            if let Some(start) = start {
                self.send(&NodeSet::from_nodes(nodes), &start);
            }
        }
        for (id, node) in repairs.found {
            let part = self.jobs.get_mut(id).and_then(|job| job.parts.get_mut(&node));
            if let Some(part) = part {
                part.state = PartState::Live;
            }
        }
        for (id, node) in repairs.vanished {
            self.part_lost(id, node, None);
        }
        for (id, node) in repairs.freed {
            self.part_freed(id, node);
        }
    }

    /// Nodes that stayed away too long take their jobs with them.
    pub(super) fn check_lost_nodes(&mut self) {
        for node in self.membership.take_lost(&self.time) {
            self.scheduler.set_nodes_changed();
            let until = self.membership.lease_end(node, self.time.now());
            // The cluster goes down: nothing can be started again.
            let until = until.filter(|_| self.shutdown.is_none());
            for id in self.jobs.on_node(node) {
                self.part_lost(id, node, until);
            }
        }
    }

    /// Renews the leases of all nodes well before they run out.
    pub(super) fn renew_leases(&mut self) {
        if self.membership.take_lease_due(self.time.now()) {
            let lease = self.membership.grant(self.time.now());
            self.send(&self.membership.attached(), &lease);
        }
    }
}
