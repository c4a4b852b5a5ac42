//! What the daemons of this node and of those below it have found out of their nodes, until the head hears it.
//!
//! What health checks found last is kept and repeated to each new parent: it, or the head, may not have heard it. A failed hook
//! is said once. Otherwise a node that people had resumed would be drained again for it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use kumi_sched::NodeId;

use super::Agent;
use crate::message::{ConditionReport, NodeCondition, Report};
use crate::tree::LinkId;

/// Most failed hooks that wait for a parent. Those of a node that are too many say nothing new.
const MOST_WAITING: usize = 256;

/// What is to be told.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// What the health check of each node found last.
    health: BTreeMap<NodeId, NodeCondition>,
    /// Hooks that failed while there was no parent.
    failed: Vec<ConditionReport>,
}

impl Agent {
    /// The driver has found out something of this node.
    pub(super) fn condition(&mut self, condition: NodeCondition) {
        let node = self.node();
        self.pass_condition(ConditionReport { node, condition });
    }

    /// A node below has told of itself.
    pub(super) fn child_condition(&mut self, link: LinkId, report: ConditionReport) {
        if self.subtree.routes().link(report.node) == Some(link) {
            self.pass_condition(report);
        }
    }

    fn pass_condition(&mut self, report: ConditionReport) {
        if !matches!(report.condition, NodeCondition::HookFailed { .. }) {
            self.conditions.health.insert(report.node, report.condition.clone());
        } else if !self.parent_up {
            let waits = |waiting: &ConditionReport| waiting.node == report.node;
            let failed = &mut self.conditions.failed;
            if failed.len() < MOST_WAITING && !failed.iter().any(waits) {
                failed.push(report);
            }
            return;
        }
        self.report(Report::Condition(report));
    }

    /// Tells a new parent, which has just heard of this node and those below it.
    pub(super) fn repeat_conditions(&mut self) {
        let (own, routes) = (self.node(), self.subtree.routes());
        self.conditions.health.retain(|node, _| *node == own || routes.link(*node).is_some());
        let failed = core::mem::take(&mut self.conditions.failed);
        let health = self.conditions.health.iter();
        let health = health.map(|(&node, of)| ConditionReport { node, condition: of.clone() });
        let all: Vec<ConditionReport> = failed.into_iter().chain(health).collect();
        for report in all {
            self.report(Report::Condition(report));
        }
    }
}
