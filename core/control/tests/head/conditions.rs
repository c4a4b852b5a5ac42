//! Nodes that say whether they are in order.

use super::*;
use kumi_control::message::{ConditionReport, Drain, NodeCondition};

fn says(node: u32, condition: NodeCondition) -> Report {
    Report::Condition(ConditionReport { node: NodeId(node), condition })
}

fn unhealthy(node: u32, reason: &str) -> Report {
    says(node, NodeCondition::Unhealthy { reason: reason.into() })
}

fn hook_failed(node: u32) -> Report {
    says(
        node,
        NodeCondition::HookFailed { reason: "epilog /e of job 1 ended with status 3".into() },
    )
}

/// The lists that the driver is to keep, which no client asked for.
fn kept(actions: &[HeadAction]) -> Vec<Vec<Drain>> {
    let list = |action: &HeadAction| match action {
        HeadAction::KeepDrains { client: None, drains } => Some(drains.clone()),
        _ => None,
    };
    actions.iter().filter_map(list).collect()
}

impl Test {
    fn drained(&mut self, node: usize) -> Option<Drain> {
        self.nodes()[node].drain.clone()
    }
}

#[test]
fn a_node_that_is_not_healthy_gets_nothing_until_it_is() {
    let mut test = Test::new(2);
    let lists = kept(&test.report(unhealthy(1, "health check ended with status 1: no disk")));
    assert_eq!(lists.len(), 1, "it is durable");
    assert_eq!(lists[0][0].reason, "health check ended with status 1: no disk");
    assert!(kept(&test.report(unhealthy(1, "again"))).is_empty(), "it is known");
    let (job, _) = test.submit(request(1, 1, Some(1)));
    assert_eq!(test.nodes_of(job), [0]);
    let (waits, _) = test.submit(request(9, 2, Some(2)));
    assert_eq!(test.state(waits), JobState::Queued);
    assert_eq!(kept(&test.report(says(1, NodeCondition::Healthy))), [vec![]]);
    assert_eq!(test.drained(1), None);
    assert!(kept(&test.report(says(1, NodeCondition::Healthy))).is_empty());
    assert_eq!(test.nodes_of(waits), [0, 1], "it takes jobs again");
}

#[test]
fn what_others_have_drained_no_check_resumes() {
    let mut test = Test::new(2);
    let nodes = vec![NodeId(1)];
    test.ask(&OWNER, ClientRequest::Drain { nodes: nodes.clone(), reason: "repair".into() });
    test.report(unhealthy(1, "no disk"));
    assert_eq!(test.drained(1).expect("drained").reason, "repair");
    test.report(says(1, NodeCondition::Healthy));
    assert!(test.drained(1).is_some());
    // One that the check has drained becomes the administrator's when she drains it.
    test.report(unhealthy(0, "no disk"));
    test.ask(&OWNER, ClientRequest::Drain { nodes: vec![NodeId(0)], reason: "mine".into() });
    test.report(says(0, NodeCondition::Healthy));
    assert_eq!(test.drained(0).expect("drained").reason, "mine");
    // A failed hook is for people to look at.
    test.ask(&OWNER, ClientRequest::Resume { nodes: vec![NodeId(0), NodeId(1)] });
    assert_eq!(kept(&test.report(hook_failed(1))).len(), 1);
    test.report(says(1, NodeCondition::Healthy));
    assert!(test.drained(1).expect("drained").reason.starts_with("epilog /e"));
    test.ask(&OWNER, ClientRequest::Resume { nodes });
    assert_eq!(test.drained(1), None);
}

#[test]
fn the_next_head_knows_who_drained_a_node() {
    let mut test = Test::new(2);
    let drains = kept(&test.report(unhealthy(1, "no disk"))).remove(0);
    let mut next = Test::attached(HeadConfig { drains, ..config(2) });
    assert!(next.drained(1).is_some());
    next.report(says(1, NodeCondition::Healthy));
    assert_eq!(next.drained(1), None);
}

#[test]
fn a_node_speaks_for_itself_only_and_reasons_are_bounded() {
    let mut test = Test::new(2);
    assert!(kept(&test.report(unhealthy(7, "no such node"))).is_empty());
    test.event(HeadEvent::ChildUp(LinkId(9)));
    let other = HeadEvent::Child(LinkId(9), Up::Report(unhealthy(1, "not by this link")));
    assert!(kept(&test.event(other)).is_empty());
    test.report(unhealthy(1, &"x\n".repeat(400)));
    let reason = test.drained(1).expect("drained").reason;
    assert!(reason.len() <= 256 && !reason.contains('\n'), "{reason}");
}
