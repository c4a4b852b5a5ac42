//! What daemons find out of their nodes goes up.

use super::*;
use kumi_control::message::{ConditionReport, NodeCondition};

const HEALTHY: NodeCondition = NodeCondition::Healthy;

fn unhealthy() -> NodeCondition {
    NodeCondition::Unhealthy { reason: "health check ended with status 1".into() }
}

fn hook() -> NodeCondition {
    NodeCondition::HookFailed { reason: "epilog /e of job 4 ended with status 1".into() }
}

fn report(node: u32, condition: NodeCondition) -> Report {
    Report::Condition(ConditionReport { node: NodeId(node), condition })
}

/// What the parent is told.
fn told(actions: Vec<AgentAction>) -> Vec<(u32, NodeCondition)> {
    let condition = |action| match action {
        AgentAction::ToParent(Report::Condition(report)) => Some((report.node.0, report.condition)),
        _ => None,
    };
    actions.into_iter().filter_map(condition).collect()
}

#[test]
fn health_is_repeated_to_each_parent_and_only_the_last() {
    let mut test = Test::new();
    assert_eq!(told(test.event(AgentEvent::Condition(HEALTHY))), [(0, HEALTHY)]);
    assert_eq!(told(test.event(AgentEvent::Condition(unhealthy()))), [(0, unhealthy())]);
    assert_eq!(told(test.child(LEFT, report(3, unhealthy()))), [(3, unhealthy())]);
    test.event(AgentEvent::ParentDown);
    assert_eq!(told(test.child(RIGHT, report(2, HEALTHY))), []);
    let expected = [(0, unhealthy()), (2, HEALTHY), (3, unhealthy())];
    assert_eq!(told(test.event(AgentEvent::ParentUp)), expected);
    // Of nodes that are not below any more nothing is said.
    test.event(AgentEvent::ChildDown(LEFT));
    test.event(AgentEvent::ParentDown);
    assert_eq!(told(test.event(AgentEvent::ParentUp)), expected[..2]);
}

#[test]
fn a_failed_hook_is_said_once() {
    let mut test = Test::new();
    assert_eq!(told(test.event(AgentEvent::Condition(hook()))), [(0, hook())]);
    test.event(AgentEvent::ParentDown);
    assert_eq!(told(test.event(AgentEvent::ParentUp)), []);
    test.event(AgentEvent::ParentDown);
    assert_eq!(told(test.event(AgentEvent::Condition(hook()))), []);
    assert_eq!(told(test.event(AgentEvent::Condition(hook()))), []);
    assert_eq!(told(test.child(LEFT, report(1, hook()))), []);
    assert_eq!(told(test.event(AgentEvent::ParentUp)), [(0, hook()), (1, hook())]);
    test.event(AgentEvent::ParentDown);
    assert_eq!(told(test.event(AgentEvent::ParentUp)), []);
}

#[test]
fn a_child_speaks_for_nodes_below_it_only() {
    let mut test = Test::new();
    for node in [0, 2, 9] {
        assert_eq!(told(test.child(LEFT, report(node, unhealthy()))), [], "{node}");
    }
}
