//! Exchanges at an agent: combined, repeated and forgotten.

use super::*;
use kumi_control::exchange::MOST_EXCHANGE;
use kumi_control::message::{Contribution, ExchangeId, ExchangeReport};

const EXCHANGE: ExchangeId = ExchangeId { job: JOB, group: 1, number: 0 };

fn part(node: u32) -> Contribution {
    Contribution { node: NodeId(node), data: vec![node as u8] }
}

fn parts(nodes: impl IntoIterator<Item = u32>, repeated: bool) -> Report {
    let parts = nodes.into_iter().map(part).collect();
    Report::Exchange(ExchangeReport { id: EXCHANGE, members: set(0..4), parts, repeated })
}

fn contribution() -> AgentEvent {
    AgentEvent::Exchange { id: EXCHANGE, members: set(0..4), data: vec![0] }
}

#[test]
fn contributions_of_a_subtree_go_up_together() {
    let mut test = Test::running();
    assert_eq!(test.child(LEFT, parts([1, 3], false)), []);
    assert_eq!(test.event(contribution()), []);
    assert_eq!(test.child(RIGHT, parts([2], false)), [up(parts(0..4, false))]);
    let whole = Command::Exchanged { id: EXCHANGE, parts: (0..4).map(part).collect() };
    let actions = test.command(set(0..4), whole.clone());
    let own = AgentAction::Exchanged { id: EXCHANGE, parts: (0..4).map(part).collect() };
    assert_eq!(
        actions,
        [
            AgentAction::ToChild(LEFT, set([1, 3]), whole.clone()),
            AgentAction::ToChild(RIGHT, set([2]), whole.clone()),
            own,
        ]
    );
    let again = test.command(set([0]), whole);
    assert_eq!(again, [], "the node has it");
}

#[test]
fn nobody_waits_for_a_node_that_left_or_says_it_again() {
    let mut test = Test::running();
    test.event(contribution());
    test.child(LEFT, parts([1, 3], false));
    let actions = test.event(AgentEvent::ChildDown(RIGHT));
    assert!(actions.contains(&up(parts([0, 1, 3], false))), "{actions:?}");
    test.event(AgentEvent::ChildUp(RIGHT));
    test.child(RIGHT, Report::Attached(vec![description(2)]));
    assert_eq!(test.child(RIGHT, parts([2], true)), [up(parts([2], true))]);
    // A node speaks for itself only.
    assert_eq!(test.child(RIGHT, parts([1], true)), []);
}

/// A link may break before the first message of a node is through, which others wait for.
#[test]
fn what_waits_for_a_contribution_that_comes_again_goes_up() {
    let mut test = Test::running();
    test.event(contribution());
    test.child(LEFT, parts([1, 3], false));
    let actions = test.child(RIGHT, parts([2], true));
    assert_eq!(actions, [up(parts([2], true)), up(parts([0, 1, 3], false))]);
    assert_eq!(test.child(RIGHT, parts([2], true)), [up(parts([2], true))], "once");
}

#[test]
fn a_new_parent_hears_all_contributions_that_somebody_may_miss() {
    let mut test = Test::running();
    test.event(contribution());
    test.child(LEFT, parts([1, 3], false));
    test.event(AgentEvent::ParentDown);
    let actions = test.event(AgentEvent::ParentUp);
    assert!(actions.contains(&up(parts([0, 1, 3], true))), "{actions:?}");
    assert_eq!(test.child(RIGHT, parts([2], false)), [up(parts([2], false))]);
    // Over, and a restarted head may not know it.
    let whole = Command::Exchanged { id: EXCHANGE, parts: (0..4).map(part).collect() };
    test.command(set(0..4), whole.clone());
    test.event(AgentEvent::ParentDown);
    let actions = test.event(AgentEvent::ParentUp);
    assert!(actions.contains(&up(parts(0..4, true))), "{actions:?}");
    // Once the next one is over all have this one.
    let next = ExchangeId { number: 1, ..EXCHANGE };
    test.event(AgentEvent::Exchange { id: next, members: set(0..4), data: vec![0] });
    test.command(set(0..4), Command::Exchanged { id: next, parts: Vec::new() });
    test.event(AgentEvent::ParentDown);
    let actions = test.event(AgentEvent::ParentUp);
    assert!(!actions.contains(&up(parts(0..4, true))), "{actions:?}");
    // Nothing of it is left when the job is over.
    test.command(set(0..4), Command::Forget { job: JOB });
    test.event(AgentEvent::ParentDown);
    let actions = test.event(AgentEvent::ParentUp);
    assert!(!actions.iter().any(|a| matches!(a, AgentAction::ToParent(Report::Exchange(_)))));
}

/// A former daemon of the node may have sent it, or the answer may have come to that one.
#[test]
fn contributions_of_an_adopted_job_are_said_again_and_answered() {
    let again = |number: u32, awaited| AgentEvent::ExchangeAgain {
        id: ExchangeId { number, ..EXCHANGE },
        members: set(0..4),
        data: vec![0],
        awaited,
    };
    let whole = |number: u32| Command::Exchanged {
        id: ExchangeId { number, ..EXCHANGE },
        parts: (0..4).map(part).collect(),
    };
    let is_answer = |action: &AgentAction| matches!(action, AgentAction::Exchanged { id, .. } if id.number == 0);
    // There is a parent: at once, and it is told that it may know it.
    let mut test = Test::running();
    assert_eq!(test.event(again(0, true)), [up(parts([0], true))]);
    assert!(test.command(set(0..4), whole(0)).iter().any(is_answer));
    // There is none yet.
    let mut test = Test::running();
    test.event(AgentEvent::ParentDown);
    assert_eq!(test.event(again(0, false)), []);
    let actions = test.event(AgentEvent::ParentUp);
    assert!(actions.contains(&up(parts([0], true))), "{actions:?}");
    // It has the whole, and others do not: a restarted head hears of it.
    assert!(!test.command(set(0..4), whole(0)).iter().any(is_answer), "not awaited");
    assert_eq!(refusal(&test.event(again(1, true))), None, "the next one is open");
    // Others that waited for it do so no more.
    let mut test = Test::running();
    assert_eq!(test.child(LEFT, parts([1, 3], false)), []);
    assert_eq!(test.child(RIGHT, parts([2], false)), []);
    let actions = test.event(again(0, true));
    assert_eq!(actions, [up(parts([0], true)), up(parts([1, 2, 3], false))]);
    // Said once more it is nothing new, and of a job that is not here it is nothing at all.
    assert_eq!(test.event(again(0, true)), []);
    let id = ExchangeId { job: JobId(99), ..EXCHANGE };
    let other = AgentEvent::ExchangeAgain { id, members: set(0..4), data: vec![0], awaited: true };
    assert_eq!(test.event(other), []);
}

#[test]
fn an_exchange_of_one_node_needs_nobody() {
    let mut test = Test::running();
    let actions =
        test.event(AgentEvent::Exchange { id: EXCHANGE, members: set([0]), data: vec![0] });
    assert_eq!(actions, [AgentAction::Exchanged { id: EXCHANGE, parts: vec![part(0)] }]);
}

#[test]
fn more_contributions_than_may_be_end_the_job() {
    let mut test = Test::running();
    let mut told = Vec::new();
    for group in 0..200 {
        let id = ExchangeId { group, ..EXCHANGE };
        told.extend(test.event(AgentEvent::Exchange { id, members: set(0..4), data: vec![0] }));
    }
    assert!(refusal(&told).is_some(), "{told:?}");
}

/// How the job is refused.
fn refusal(actions: &[AgentAction]) -> Option<&Refusal> {
    actions.iter().find_map(|action| match action {
        AgentAction::ToParent(Report::Prepared { nodes, .. }) => nodes[0].result.as_ref().err(),
        _ => None,
    })
}

#[test]
fn a_contribution_that_is_not_newer_ends_the_job() {
    let contribute = |number: u32| AgentEvent::Exchange {
        id: ExchangeId { number, ..EXCHANGE },
        members: set(0..4),
        data: vec![0],
    };
    for (first, second) in [(0, 0), (3, 3), (3, 2)] {
        let mut test = Test::running();
        assert_eq!(refusal(&test.event(contribute(first))), None);
        // Over, so that nothing of it is under way.
        let id = ExchangeId { number: first, ..EXCHANGE };
        test.command(set(0..4), Command::Exchanged { id, parts: Vec::new() });
        let told = test.event(contribute(second));
        let refused = refusal(&told).unwrap();
        assert!(refused.message.contains("twice"), "{first}, {second}: {}", refused.message);
        assert!(!told.iter().any(|a| matches!(a, AgentAction::ToParent(Report::Exchange(_)))));
    }
    let mut test = Test::running();
    test.event(contribute(0));
    assert_eq!(refusal(&test.event(contribute(1))), None, "the next may begin");
}

#[test]
fn contributions_that_no_link_takes_together_end_the_job_with_a_sentence() {
    let mut test = Test::running();
    let much = |nodes: &[u32]| {
        let part =
            |&node: &u32| Contribution { node: NodeId(node), data: vec![0; MOST_EXCHANGE / 2] };
        let parts = nodes.iter().map(part).collect();
        let members = set(0..4);
        Report::Exchange(ExchangeReport { id: EXCHANGE, members, parts, repeated: false })
    };
    assert_eq!(test.child(LEFT, much(&[1, 3])), []);
    // The same again is no more.
    assert_eq!(test.child(LEFT, much(&[1])), []);
    let told = test.child(RIGHT, much(&[2]));
    let refused = refusal(&told).unwrap();
    assert_eq!(refused.kind, RefusalKind::TooLarge);
    assert!(refused.message.contains("8 MiB"), "{}", refused.message);
}

#[test]
fn a_long_sentence_of_a_job_is_cut() {
    let mut test = Test::running();
    let long = || Refusal { kind: RefusalKind::Internal, message: "x".repeat(9 << 20) };
    let own = test.event(AgentEvent::Started { job: JOB, result: Err(long()) });
    assert_eq!(refusal(&own).unwrap().message.len(), Refusal::MOST_MESSAGE);
    let nodes = vec![PreparedNode { node: NodeId(2), result: Err(long()) }];
    let told = test.child(RIGHT, Report::Prepared { job: JOB, nodes });
    assert_eq!(refusal(&told).unwrap().message.len(), Refusal::MOST_MESSAGE);
}
