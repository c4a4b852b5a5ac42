//! Nodes that say that they are not in order: they are drained, as if an administrator had done it.
//!
//! A node takes jobs again by itself only if its health check drained it. What people have drained stays drained.

use alloc::string::{String, ToString};

use kumi_sched::NodeId;

use super::Head;
use crate::drain::{Drain, LONGEST_REASON, check_reason};
use crate::message::{ConditionReport, NodeCondition};
use crate::tree::LinkId;

/// Who drains a node because of its health check. No user has such a name.
pub(super) const HEALTH_CHECK: &str = "(health check)";
/// Who drains a node because of a failed hook.
const HOOK: &str = "(hook)";

impl Head {
    /// A node tells of its condition. It is believed if it is reached through the link on which that came.
    pub(super) fn node_condition(&mut self, link: LinkId, report: ConditionReport) {
        let ConditionReport { node, condition } = report;
        if self.membership.tree().routes().link(node) != Some(link) {
            return;
        }
        match condition {
            NodeCondition::Healthy => self.recovered(node),
            NodeCondition::Unhealthy { reason } => self.drain_unfit(node, HEALTH_CHECK, &reason),
            NodeCondition::HookFailed { reason } => self.drain_unfit(node, HOOK, &reason),
        }
    }

    /// Drains the node, unless it is drained already.
    fn drain_unfit(&mut self, node: NodeId, by: &str, reason: &str) {
        if !self.membership.is_configured(node) || self.membership.drains().contains(node) {
            return;
        }
        let drain = Drain {
            node,
            reason: bounded(reason),
            by: by.to_string(),
            since_ms: self.time.wall_ms(),
        };
        self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
        self.membership.drain(drain);
        self.scheduler.remove_node(node);
        self.drains_changed(None);
    }

    /// The health check has passed.
    fn recovered(&mut self, node: NodeId) {
        let drained = self.membership.drains().get(node);
        if drained.is_some_and(|drain| drain.by == HEALTH_CHECK) {
            self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
            self.take_jobs_again(node);
            self.drains_changed(None);
        }
    }
}

/// A reason from the wire, fit to be kept and shown.
fn bounded(reason: &str) -> String {
    let mut short = String::new();
    for letter in reason.chars().map(|letter| if letter.is_control() { ' ' } else { letter }) {
        if short.len() + letter.len_utf8() > LONGEST_REASON {
            break;
        }
        short.push(letter);
    }
    if check_reason(&short).is_err() {
        short = "its daemon did not say why".to_string();
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_from_the_wire_can_be_kept() {
        for (reason, expected) in [
            ("disk fails", "disk fails"),
            ("a\nb\u{1b}[2J", "a b [2J"),
            (" \n", "its daemon did not say why"),
        ] {
            assert_eq!(bounded(reason), expected);
        }
        let long = bounded(&"é".repeat(LONGEST_REASON));
        assert!(long.len() <= LONGEST_REASON && check_reason(&long).is_ok());
    }
}
