//! Nodes that are drained, and take jobs again.

use super::*;
use kumi_control::message::{Drain, NodeStatus, WaitReason};

fn drain(nodes: &[u32]) -> ClientRequest {
    let nodes = nodes.iter().copied().map(NodeId).collect();
    ClientRequest::Drain { nodes, reason: "disk fails".into() }
}

fn resume(nodes: &[u32]) -> ClientRequest {
    ClientRequest::Resume { nodes: nodes.iter().copied().map(NodeId).collect() }
}

/// The list that the driver is to keep.
fn kept(actions: &[HeadAction]) -> Option<Vec<Drain>> {
    actions.iter().find_map(|action| match action {
        HeadAction::KeepDrains { client: Some(CLIENT), drains } => Some(drains.clone()),
        _ => None,
    })
}

impl Test {
    pub(super) fn nodes(&mut self) -> Vec<NodeStatus> {
        let actions = self.ask(&ALICE, ClientRequest::Cluster);
        let nodes = actions.into_iter().find_map(|action| match action {
            HeadAction::ToClient(_, ClientReply::Cluster(status)) => Some(status.nodes),
            _ => None,
        });
        nodes.expect("a status")
    }

    /// The nodes of the job, ascending.
    pub(super) fn nodes_of(&self, job: JobId) -> Vec<u32> {
        let record = self.head.records().find(|record| record.spec.job == job).expect("known");
        record.spec.layout.iter().map(|part| part.node.0).collect()
    }
}

#[test]
fn a_drained_node_goes_on_and_gets_nothing_new() {
    for policy in ["dqt", "matrix", "fcfs", "first-fit", "buddy", "dhc", "scan"] {
        let Ok(()) = kumi_control::head::check_policy(policy) else { continue };
        let mut test = Test::with_policy(3, policy);
        let running = test.running(1, 2);
        let kept = kept(&test.ask(&OWNER, drain(&[1]))).expect("a list");
        assert_eq!(kept.len(), 1);
        assert_eq!(
            (kept[0].node, &*kept[0].reason, &*kept[0].by),
            (NodeId(1), "disk fails", "500")
        );
        assert_eq!(test.state(running), JobState::Running, "{policy}");
        test.frees(running, 0..2);
        for token in 2..4 {
            let (job, _) = test.submit(request(token, 1, Some(1)));
            assert_ne!(test.nodes_of(job), [1], "{policy}");
        }
    }
}

#[test]
fn a_job_that_only_fits_with_it_says_so_and_starts_when_it_takes_jobs_again() {
    let mut test = Test::new(3);
    test.ask(&OWNER, drain(&[2]));
    let (wide, _) = test.submit(request(1, 3, Some(3)));
    let reason = WaitReason::NodesDrained { wanted: 3, has: 2, take: 2, drained: 1, nodes: 3 };
    assert_eq!((test.state(wide), test.reason(wide)), (JobState::Queued, Some(reason)));
    // Others pass it by where the policy lets them, and one of open size takes what there is.
    let (open, _) = test.submit(request(2, 6, None));
    assert_eq!(test.nodes_of(open), [0, 1]);
    let actions = test.ask(&OWNER, resume(&[2]));
    assert_eq!(kept(&actions), Some(Vec::new()));
    assert_eq!(test.state(wide), JobState::Preparing);
    assert_eq!(test.nodes_of(wide), [0, 1, 2]);
}

#[test]
fn where_all_are_drained_nothing_starts() {
    let mut test = Test::new(2);
    test.advance(20_000 * MS);
    test.ask(&OWNER, drain(&[0, 1]));
    let (open, _) = test.submit(request(1, 4, None));
    let reason = WaitReason::NodesDrained { wanted: 4, has: 0, take: 0, drained: 2, nodes: 2 };
    assert_eq!((test.state(open), test.reason(open)), (JobState::Queued, Some(reason)));
    let (at_once, actions) = (2, JobRequest { wait: Some(WaitLimit::No), ..request(2, 1, None) });
    let refused = refused(test.ask(&ALICE, ClientRequest::Submit(Box::new(actions))));
    assert!(refused.message.contains("2 are drained"), "{at_once}: {}", refused.message);
    test.ask(&OWNER, resume(&[1]));
    assert_eq!(test.nodes_of(open), [1]);
}

#[test]
fn only_the_owner_and_root_drain_nodes_that_there_are_for_a_reason() {
    let mut test = Test::new(2);
    let root = User { uid: 0, gid: 0, name: "root".into() };
    for request in [drain(&[0]), resume(&[0])] {
        let actions = test.ask(&ALICE, request);
        assert_eq!((refusal(&actions), kept(&actions)), (Some(RefusalKind::NotPermitted), None));
    }
    let nothing = ClientRequest::Drain { nodes: vec![NodeId(0)], reason: " ".into() };
    for request in [drain(&[0, 2]), drain(&[]), resume(&[u32::MAX]), nothing] {
        let actions = test.ask(&root, request);
        assert_eq!((refusal(&actions), kept(&actions)), (Some(RefusalKind::BadRequest), None));
    }
    assert!(test.nodes().iter().all(|node| node.drain.is_none()));
    assert_eq!(kept(&test.ask(&root, drain(&[0, 0]))).unwrap()[0].by, "root");
    assert_eq!(kept(&test.ask(&root, resume(&[1]))).map(|list| list.len()), Some(1));
}

#[test]
fn everybody_sees_why_and_since_when() {
    let mut test = Test::new(2);
    test.ask(&OWNER, drain(&[1]));
    let first = test.nodes()[1].drain.clone().expect("drained");
    test.advance(5_000 * MS);
    let again = ClientRequest::Drain { nodes: vec![NodeId(1)], reason: "new board".into() };
    test.ask(&OWNER, again);
    let nodes = test.nodes();
    let second = nodes[1].drain.clone().expect("drained");
    assert_eq!(&*second.reason, "new board");
    assert_eq!(second.since_ms, first.since_ms, "it has been drained since then");
    assert_eq!((&*nodes[0].name, &*nodes[1].name, &nodes[0].drain), ("n0", "n1", &None));
}

/// The list outlives the head, the policy, and the node's daemon.
#[test]
fn a_drained_node_stays_drained() {
    let mut test = Test::new(2);
    let kept = kept(&test.ask(&OWNER, drain(&[1]))).unwrap();
    let stays = |test: &mut Test, token| {
        let (job, _) = test.submit(request(token, 1, Some(1)));
        assert_eq!(test.nodes_of(job), [0]);
    };
    test.report(Report::Detached(set([1])));
    test.report(Report::Attached(vec![description(1)]));
    stays(&mut test, 1);
    let policy =
        ClientRequest::Configure { mode: None, slice: None, policy: Some("first-fit".into()) };
    test.ask(&OWNER, policy);
    // Of another size, for which the policy is made anew.
    test.report(Report::Detached(set([1])));
    test.report(Report::Attached(vec![NodeDescription { processors: 4, ..description(1) }]));
    test.ask(&OWNER, resume(&[0]));
    let nowhere = Drain { node: NodeId(7), ..kept[0].clone() };
    let config = HeadConfig { drains: vec![kept[0].clone(), nowhere], ..config(2) };
    let mut next = Test::attached(config);
    stays(&mut next, 1);
    let drains: Vec<bool> = next.nodes().iter().map(|node| node.drain.is_some()).collect();
    assert_eq!(drains, [false, true]);
}

/// Placed jobs of a drained node are taken over by the next head, and keep it.
#[test]
fn the_next_head_knows_the_jobs_of_a_drained_node() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let drains = kept(&test.ask(&OWNER, drain(&[1]))).unwrap();
    let records = test.head.records().cloned().collect();
    let config = HeadConfig { drains, ..config(2) };
    test.head = Head::new(config, records, [2; 32]).expect("a policy");
    test.event(HeadEvent::Timeout);
    test.event(HeadEvent::ChildUp(LINK));
    let nodes =
        [0, 1].map(|node| NodeDescription { jobs: vec![(job, vec![node])], ..description(node) });
    test.report(Report::Attached(nodes.to_vec()));
    assert_eq!(test.state(job), JobState::Running);
    test.advance(50 * MS);
    let columns = &test.head.timetable().columns;
    assert_eq!(columns.iter().map(|column| column.node.0).collect::<Vec<_>>(), [0, 1]);
    let (next, _) = test.submit(request(2, 1, Some(1)));
    assert_eq!(test.nodes_of(next), [0]);
}
