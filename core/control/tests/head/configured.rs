//! Nodes that are added and removed while jobs run.

use super::*;
use kumi_control::message::Revocation;

fn remove(node: u32, force: bool) -> ClientRequest {
    ClientRequest::RemoveNode { node: NodeId(node), force }
}

fn add() -> ClientRequest {
    ClientRequest::AddNode { definition: "name = \"n3\"".into() }
}

/// The node that the driver is to remove.
fn to_remove(actions: &[HeadAction]) -> Option<NodeId> {
    actions.iter().find_map(|action| match action {
        HeadAction::RemoveNode { client: CLIENT, node } => Some(*node),
        _ => None,
    })
}

fn revoked(actions: &[HeadAction]) -> Vec<u32> {
    let lists = actions.iter().filter_map(|action| match action {
        HeadAction::Revoke { list, .. } => Some(list),
        _ => None,
    });
    lists.flatten().map(|Revocation { node, .. }| node.0).collect()
}

impl Test {
    /// The driver has changed the configuration.
    fn configured(&mut self, nodes: u32, removed: &[u32]) -> Vec<HeadAction> {
        let names = (0..nodes).map(|node| format!("n{node}")).collect();
        let removed = removed.iter().copied().map(NodeId).collect();
        self.event(HeadEvent::Nodes { names, removed })
    }

    fn listed(&mut self) -> Vec<u32> {
        self.nodes().into_iter().map(|status| status.node.0).collect()
    }
}

#[test]
fn a_job_that_waits_gets_a_node_that_is_added() {
    for policy in ["dqt", "matrix", "fcfs", "first-fit", "dhc", "scan"] {
        let mut test = Test::with_policy(2, policy);
        let running = test.running(1, 2);
        let too_large = test.ask(&ALICE, ClientRequest::Submit(Box::new(request(2, 3, Some(3)))));
        assert_eq!(refusal(&too_large), Some(RefusalKind::TooLarge));
        let actions = test.ask(&OWNER, add());
        let asked = |action: &HeadAction| matches!(action, HeadAction::AddNode { client: CLIENT, definition } if definition == "name = \"n3\"");
        position(&actions, asked);
        test.configured(3, &[]);
        assert_eq!(test.listed(), [0, 1, 2]);
        let (wide, _) = test.submit(request(3, 3, Some(3)));
        assert_eq!(test.state(wide), JobState::Queued, "{policy}: it has not attached");
        test.report(Report::Attached(vec![description(2)]));
        test.frees(running, 0..2);
        assert_eq!(test.nodes_of(wide), [0, 1, 2], "{policy}");
    }
}

#[test]
fn a_node_with_jobs_is_removed_by_force_only() {
    let mut test = Test::new(3);
    let job = test.running(1, 2);
    assert_eq!(to_remove(&test.ask(&OWNER, remove(2, false))), Some(NodeId(2)));
    let actions = test.ask(&OWNER, remove(1, false));
    assert_eq!((refusal(&actions), to_remove(&actions)), (Some(RefusalKind::NotNow), None));
    assert_eq!(test.state(job), JobState::Running);
    let actions = test.ask(&OWNER, remove(1, true));
    assert_eq!(to_remove(&actions), Some(NodeId(1)));
    assert_eq!(test.state(job), JobState::Running, "cluster.toml may not be writable");
    let ending = JobState::Ending(Outcome::NodeLost(NodeId(1)));
    let actions = test.configured(3, &[1]);
    assert_eq!(test.state(job), ending);
    let killed = position(
        &actions,
        |action| matches!(command_of(action), Some((nodes, Command::Kill { .. })) if nodes.contains(NodeId(1))),
    );
    let revokes = position(&actions, |action| matches!(action, HeadAction::Revoke { .. }));
    assert!(killed < revokes, "the node can still be told");
    assert_eq!(revoked(&actions), [1]);
    test.report(Report::Freed { job, nodes: set([0]) });
    assert_eq!(test.state(job), ending, "it may run there until its lease is over");
    test.advance(10_000 * MS);
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(1))));
}

/// Whatever it says, and whatever asks for it.
#[test]
fn a_removed_node_is_gone_for_good() {
    let mut test = Test::wide(3, 8);
    let job = test.running(1, 1);
    test.configured(3, &[1]);
    // Its link is cut then.
    test.report(Report::Detached(set([1])));
    assert_eq!(test.state(job), JobState::Running);
    assert_eq!(test.listed(), [0, 2]);
    test.report(Report::Attached(vec![description(1)]));
    for token in 2..6 {
        let (job, _) = test.submit(request(token, 1, Some(1)));
        assert!(matches!(test.nodes_of(job)[..], [0 | 2]), "{:?}", test.nodes_of(job));
    }
    let too_large = test.ask(&ALICE, ClientRequest::Submit(Box::new(request(9, 3, Some(3)))));
    assert_eq!(refusal(&too_large), Some(RefusalKind::TooLarge));
    for request in [remove(1, true), ClientRequest::Revoke { node: NodeId(1) }] {
        assert_eq!(refusal(&test.ask(&OWNER, request)), Some(RefusalKind::BadRequest));
    }
    // Its number is not given again, and jobs keep their places.
    test.configured(4, &[1]);
    test.report(Report::Attached(vec![description(3)]));
    assert_eq!(test.listed(), [0, 2, 3]);
    let (wide, _) = test.submit(request(10, 3, Some(3)));
    assert_eq!(test.nodes_of(wide), [0, 2, 3]);
    // The next head knows it, too.
    let config = HeadConfig { removed: vec![NodeId(1)], ..config(4) };
    let mut next = Test::attached(config);
    assert_eq!(next.listed(), [0, 2, 3]);
    let (wide, _) = next.submit(request(1, 3, Some(3)));
    assert_eq!(next.nodes_of(wide), [0, 2, 3]);
}

fn token(node: u32, valid_ms: u64) -> ClientRequest {
    ClientRequest::JoinToken { node: NodeId(node), valid_ms }
}

#[test]
fn a_token_is_made_for_a_node_that_is_not_up() {
    let mut test = Test::new(2);
    test.configured(3, &[]);
    let issues = |actions: &[HeadAction]| {
        actions.iter().any(|action| {
            matches!(
                action,
                HeadAction::IssueToken { client: CLIENT, node: NodeId(2), valid_ms: 60_000 }
            )
        })
    };
    assert!(issues(&test.ask(&OWNER, token(2, 60_000))));
    for (user, request, kind) in [
        (&ALICE, token(2, 60_000), RefusalKind::NotPermitted),
        (&OWNER, token(3, 60_000), RefusalKind::BadRequest),
        (&OWNER, token(2, 59_999), RefusalKind::BadRequest),
        (&OWNER, token(1, 60_000), RefusalKind::NotNow),
    ] {
        let actions = test.ask(user, request);
        assert_eq!(refusal(&actions), Some(kind));
        assert!(!issues(&actions));
    }
    // Its machine has joined.
    test.report(Report::Attached(vec![description(2)]));
    assert_eq!(refusal(&test.ask(&OWNER, token(2, 60_000))), Some(RefusalKind::NotNow));
}

/// A revocation counts up to the end of its millisecond, or longer if the clock of another head was ahead.
#[test]
fn a_token_that_would_be_revoked_at_once_is_not_made() {
    let mut test = Test::new(1);
    test.configured(2, &[]);
    test.ask(&OWNER, ClientRequest::Revoke { node: NodeId(1) });
    let refused = refused(test.ask(&OWNER, token(1, 60_000)));
    assert_eq!(refused.kind, RefusalKind::NotNow);
    assert!(refused.message.contains("reaches in 1 s"), "{}", refused.message);
    test.advance(MS);
    let issues = |action: &HeadAction| matches!(action, HeadAction::IssueToken { .. });
    assert!(test.ask(&OWNER, token(1, 60_000)).iter().any(issues));
}

#[test]
fn only_the_owner_and_root_change_the_nodes() {
    let mut test = Test::new(2);
    for request in [add(), remove(1, false)] {
        assert_eq!(refusal(&test.ask(&ALICE, request)), Some(RefusalKind::NotPermitted));
    }
    assert_eq!(refusal(&test.ask(&OWNER, remove(2, false))), Some(RefusalKind::BadRequest));
    let long = ClientRequest::AddNode { definition: "x".repeat(65 << 10) };
    assert_eq!(refusal(&test.ask(&OWNER, long)), Some(RefusalKind::BadRequest));
    test.configured(2, &[0]);
    let last = refused(test.ask(&OWNER, remove(1, true)));
    assert!(last.message.contains("last node"), "{}", last.message);
    test.ask(&OWNER, ClientRequest::Shutdown);
    assert_eq!(refusal(&test.ask(&OWNER, add())), Some(RefusalKind::NotNow));
}
