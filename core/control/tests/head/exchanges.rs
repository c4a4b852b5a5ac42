//! Exchanges among the nodes of a job, and messages between them.

use super::*;
use kumi_control::exchange::{MOST_EXCHANGE, MOST_GROUPS};
use kumi_control::message::{Contribution, ExchangeId, ExchangeReport, RelayReport};

fn part(node: u32, length: usize) -> Contribution {
    Contribution { node: NodeId(node), data: vec![node as u8; length] }
}

impl Test {
    /// Nodes contribute a byte each.
    fn contribute(&mut self, id: ExchangeId, nodes: &[u32]) -> Vec<HeadAction> {
        self.contribute_much(id, nodes, 1)
    }

    /// The same again, as after a lost link.
    fn repeat(&mut self, id: ExchangeId, nodes: &[u32]) -> Vec<HeadAction> {
        let parts = nodes.iter().map(|&node| part(node, 1)).collect();
        let report = ExchangeReport { id, members: set(0..3), parts, repeated: true };
        self.report(Report::Exchange(report))
    }

    fn contribute_much(&mut self, id: ExchangeId, nodes: &[u32], length: usize) -> Vec<HeadAction> {
        let parts = nodes.iter().map(|&node| part(node, length)).collect();
        let report = ExchangeReport { id, members: set(0..3), parts, repeated: false };
        self.report(Report::Exchange(report))
    }
}

fn id(job: JobId, number: u32) -> ExchangeId {
    ExchangeId { job, group: 1, number }
}

/// To whom the whole goes, and of how many nodes it is.
fn whole(actions: &[HeadAction]) -> Option<(NodeSet, usize)> {
    commands(actions).into_iter().find_map(|(nodes, command)| match command {
        Command::Exchanged { parts, .. } => Some((nodes.clone(), parts.len())),
        _ => None,
    })
}

#[test]
fn the_whole_comes_when_all_have_contributed() {
    let mut test = Test::new(3);
    let job = test.running(1, 3);
    assert_eq!(whole(&test.contribute(id(job, 0), &[0, 2])), None);
    assert_eq!(whole(&test.contribute(id(job, 0), &[0])), None, "said twice");
    assert_eq!(whole(&test.contribute(id(job, 0), &[1])), Some((set(0..3), 3)));
    assert_eq!(whole(&test.contribute(id(job, 1), &[0, 1, 2])), Some((set(0..3), 3)));
}

#[test]
fn a_node_that_missed_the_whole_gets_it_alone() {
    let mut test = Test::new(3);
    let job = test.running(1, 3);
    test.contribute(id(job, 0), &[0, 1, 2]);
    assert_eq!(whole(&test.repeat(id(job, 0), &[2])), Some((set([2]), 3)));
    // One that goes on meanwhile does not make the head forget it.
    assert_eq!(whole(&test.contribute(id(job, 1), &[0])), None);
    assert_eq!(whole(&test.repeat(id(job, 0), &[2])), Some((set([2]), 3)));
    test.contribute(id(job, 1), &[1, 2]);
    assert_eq!(whole(&test.repeat(id(job, 0), &[2])), None, "all have it");
}

/// Nodes repeat what they contributed last, and the one before it. Which these are differs from node to node.
#[test]
fn a_restarted_head_hears_of_three_exchanges_in_any_order() {
    let repeats = [(0, 0), (0, 1), (1, 2), (1, 1), (2, 1)];
    for first in 0..repeats.len() {
        let mut test = Test::new(3);
        let job = test.running(1, 3);
        let mut known = 0;
        for &(node, number) in repeats.iter().cycle().skip(first).take(repeats.len()) {
            known += usize::from(whole(&test.repeat(id(job, number), &[node])).is_some());
        }
        assert_eq!(known, 1, "number 1, from {first}");
        test.contribute(id(job, 2), &[0]);
        assert_eq!(whole(&test.contribute(id(job, 2), &[2])), Some((set(0..3), 3)), "from {first}");
    }
}

#[test]
fn who_lost_no_link_or_asks_without_end_does_not_get_the_whole_again() {
    let mut test = Test::new(3);
    let job = test.running(1, 3);
    test.contribute(id(job, 0), &[0, 1, 2]);
    assert_eq!(whole(&test.contribute(id(job, 0), &[2])), None, "it says no link was lost");
    let answers = (0..1_000).filter(|_| whole(&test.repeat(id(job, 0), &[2])).is_some()).count();
    assert!((1..=100).contains(&answers), "{answers} answers");
    assert_eq!(whole(&test.repeat(id(job, 0), &[1])), Some((set([1]), 3)), "others do");
    assert_eq!(whole(&test.contribute(id(job, 1), &[0, 1, 2])), Some((set(0..3), 3)));
    assert_eq!(whole(&test.repeat(id(job, 1), &[2])), Some((set([2]), 3)), "of the next it does");
}

#[test]
fn a_long_sentence_of_a_node_is_cut() {
    let mut test = Test::new(3);
    let job = test.running(1, 3);
    let refusal = Refusal { kind: RefusalKind::Internal, message: "ä".repeat(1 << 20) };
    let nodes = vec![PreparedNode { node: NodeId(0), result: Err(refusal) }];
    test.report(Report::Prepared { job, nodes });
    let JobState::Ending(Outcome::Refused(refusal)) = test.state(job) else { panic!() };
    assert_eq!(refusal.message.len(), Refusal::MOST_MESSAGE);
}

#[test]
fn a_restarted_head_hears_all_again() {
    let mut test = Test::new(3);
    let job = test.running(1, 3);
    // Nodes that are ahead, and one that is not.
    test.contribute(id(job, 4), &[0, 1]);
    test.contribute(id(job, 5), &[0]);
    assert_eq!(whole(&test.contribute(id(job, 4), &[2])), Some((set(0..3), 3)));
    assert_eq!(whole(&test.contribute(id(job, 5), &[1, 2])), Some((set(0..3), 3)));
}

#[test]
fn only_nodes_of_a_running_job_contribute() {
    let mut test = Test::new(4);
    let job = test.running(1, 3);
    let stranger = ExchangeReport {
        id: id(job, 0),
        members: set(0..4),
        parts: vec![part(3, 1)],
        repeated: false,
    };
    assert_eq!(whole(&test.report(Report::Exchange(stranger))), None);
    assert_eq!(whole(&test.contribute(id(job, 0), &[0, 1, 3])), None, "node 3 is none of it");
    assert_eq!(whole(&test.contribute(id(job, 0), &[2])), Some((set(0..3), 3)));
    assert_eq!(test.contribute(id(JobId(99), 0), &[0, 1, 2]), []);
    test.report(Report::Freed { job, nodes: set(0..3) });
    assert_eq!(test.contribute(id(job, 1), &[0, 1, 2]), []);
}

#[test]
fn too_much_ends_the_job_with_a_sentence() {
    let mut test = Test::new(3);
    let job = test.running(1, 3);
    test.contribute_much(id(job, 0), &[0], MOST_EXCHANGE - 10);
    assert_eq!(test.state(job), JobState::Running);
    test.contribute_much(id(job, 0), &[1], 11);
    let JobState::Ending(Outcome::Refused(refusal)) = test.state(job) else { panic!() };
    assert_eq!(refusal.kind, RefusalKind::TooLarge);
    assert!(refusal.message.contains("8 MiB"), "{}", refusal.message);
    let job = test.running(2, 3);
    for group in 0..MOST_GROUPS as u64 {
        test.contribute(ExchangeId { job, group, number: 0 }, &[0]);
    }
    assert_eq!(test.state(job), JobState::Running);
    test.contribute(ExchangeId { job, group: 999, number: 0 }, &[0]);
    assert!(matches!(test.state(job), JobState::Ending(_)));
}

#[test]
fn what_is_kept_counts_for_the_user_until_the_job_is_over() {
    let mut test = Test::new(3);
    // Together more than a user may have at a time.
    for token in 0..50 {
        let job = test.running(token, 3);
        test.contribute_much(id(job, 0), &[0], MOST_EXCHANGE - 100);
        assert_eq!(test.state(job), JobState::Running);
        let (rank, node, status) = (0, NodeId(0), RankStatus::Exited(1));
        test.report(Report::RankFailed { job, rank, node, status });
        test.report(Report::Freed { job, nodes: set(0..3) });
        assert!(matches!(test.state(job), JobState::Ended(_)));
    }
}

#[test]
fn messages_go_from_node_to_node_of_a_job() {
    let mut test = Test::new(4);
    let job = test.running(1, 3);
    let mut relay = |from: u32, to: u32| {
        let (from, to) = (NodeId(from), NodeId(to));
        let actions = test.report(Report::Relay(RelayReport { job, from, to, data: vec![7] }));
        commands(&actions).into_iter().map(|(nodes, _)| nodes.clone()).collect::<Vec<_>>()
    };
    assert_eq!(relay(0, 2), [set([2])]);
    assert_eq!((relay(0, 3), relay(3, 0)), (vec![], vec![]), "node 3 has no rank of it");
}
