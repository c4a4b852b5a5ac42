//! Nodes that leave, come back and talk nonsense; heads that are started again.

use super::*;

#[test]
fn a_lost_node_takes_its_jobs_with_it_after_the_grace() {
    let mut test = Test::new(3);
    let job = test.running(1, 2);
    test.report(Report::Detached(set([1])));
    test.advance(900 * MS);
    assert_eq!(test.state(job), JobState::Running);
    let mut back = description(1);
    back.jobs = vec![(job, vec![1])];
    let actions = test.report(Report::Attached(vec![back.clone()]));
    assert!(commands(&actions).iter().any(|(_, c)| matches!(c, Command::Start { .. })));
    test.advance(5_000 * MS);
    assert_eq!(test.state(job), JobState::Running, "it came back in time");

    test.report(Report::Detached(set([1])));
    let actions = test.advance(1_100 * MS);
    assert!(commands(&actions).contains(&(&set([0]), &Command::Kill { job })));
    test.report(Report::Freed { job, nodes: set([0]) });
    assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))), "it may run there");
    let actions = test.report(Report::Attached(vec![back]));
    assert!(commands(&actions).contains(&(&set([1]), &Command::Kill { job })), "half alive there");
    let actions = test.report(Report::Freed { job, nodes: set([1]) });
    assert!(commands(&actions).contains(&(&set([0, 1]), &Command::Forget { job })));
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(1))));
}

/// Until then it may run there: who starts it again must not meet it. The other nodes are free for others.
#[test]
fn a_job_that_lost_a_node_is_over_when_the_lease_of_the_node_is() {
    let mut test = Test::with_policy(2, "fcfs");
    let job = test.running(1, 2);
    let (next, _) = test.submit(request(2, 1, Some(1)));
    assert_eq!(test.state(next), JobState::Queued);
    test.report(Report::Detached(set([1])));
    let cut = test.now;
    test.advance(1_100 * MS);
    let ending = JobState::Ending(Outcome::NodeLost(NodeId(1)));
    assert_eq!(test.state(job), ending);
    test.report(Report::Freed { job, nodes: set([0]) });
    assert_eq!(test.state(job), ending);
    assert_eq!(test.state(next), JobState::Preparing);
    // The last lease before it was cut off, and a second that clocks may differ.
    test.advance(cut + 3_999 * MS - test.now);
    assert_eq!(test.state(job), ending);
    test.advance(2 * MS);
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(1))));

    // A node that comes back without the job has nothing of it.
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    test.report(Report::Detached(set([1])));
    test.advance(1_100 * MS);
    test.report(Report::Freed { job, nodes: set([0]) });
    assert_eq!(test.state(job), ending);
    test.report(Report::Attached(vec![description(1)]));
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(1))));
}

/// After a stall of the head all nodes are away for a moment. It was not their fault.
#[test]
fn a_head_that_stalled_gives_nodes_time_to_come_back() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    test.advance(5_000 * MS);
    test.now += 60_000 * MS;
    test.report(Report::Detached(set([0, 1])));
    test.advance(3_500 * MS);
    assert_eq!(test.state(job), JobState::Running);
    let nodes = [0, 1].map(|node| {
        let mut back = description(node);
        back.jobs = vec![(job, vec![node])];
        back
    });
    test.report(Report::Attached(nodes.to_vec()));
    test.advance(20_000 * MS);
    assert_eq!(test.state(job), JobState::Running);
    // Long after the stall a node that goes has the usual time.
    test.report(Report::Detached(set([1])));
    test.advance(1_100 * MS);
    assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))));
}

/// A head that was not run for seconds has not read yet what the node said meanwhile.
#[test]
fn a_head_that_was_not_run_does_not_call_nodes_lost() {
    let back = |job| {
        let mut node = description(1);
        node.jobs = vec![(job, vec![1])];
        Report::Attached(vec![node])
    };
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    // Not run right after the node went, or half-way: it has what is left of its time from then on.
    for (before, after) in [(0, 700), (600, 150)] {
        test.report(Report::Detached(set([1])));
        test.advance(before * MS);
        test.now += 2_500 * MS;
        test.event(HeadEvent::Timeout);
        test.advance(after * MS);
        assert_eq!(test.state(job), JobState::Running, "{before}");
        test.report(back(job));
    }
    // Not run long enough to be sure: the node's lease has ended, whatever the head has seen.
    test.report(Report::Detached(set([1])));
    test.now += 3_900 * MS;
    test.event(HeadEvent::Timeout);
    assert_eq!(test.state(job), JobState::Running);
    test.now += 200 * MS;
    test.event(HeadEvent::Timeout);
    assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))));
    // Always late by a second: not for ever.
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    test.report(Report::Detached(set([1])));
    let mut looks = 0;
    while test.state(job) == JobState::Running {
        test.now = test.head.next_timeout().expect("a look") + 1_000 * MS;
        test.event(HeadEvent::Timeout);
        looks += 1;
    }
    assert!((3..=5).contains(&looks), "{looks}");
}

#[test]
fn a_daemon_started_again_has_lost_its_jobs() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let (preparing, _) = test.submit(request(2, 2, Some(2)));
    let mut fresh = description(1);
    fresh.incarnation = 2;
    let actions = test.report(Report::Attached(vec![fresh]));
    assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))));
    let again = |(nodes, command): &(&NodeSet, &Command)| {
        **nodes == set([1]) && matches!(command, Command::Prepare(spec) if spec.job == preparing)
    };
    assert!(commands(&actions).iter().any(again), "what had not begun can begin");
}

#[test]
fn abandoned_is_not_success() {
    for (cause, outcome) in [
        (AbandonCause::Vanished, Outcome::NodeLost(NodeId(1))),
        (AbandonCause::LeaseOver, Outcome::HeadAway(NodeId(1))),
    ] {
        let mut test = Test::new(2);
        let job = test.running(1, 2);
        test.report(Report::Abandoned { job, nodes: set([1]), cause });
        test.report(Report::Freed { job, nodes: set(0..2) });
        assert_eq!(test.state(job), JobState::Ended(outcome));
    }
}

#[test]
fn a_new_head_goes_on_with_what_runs() {
    let mut test = Test::new(2);
    let running = test.running(1, 2);
    let (queued, _) = test.submit(request(2, 2, Some(2)));
    let (later, _) = test.submit(request(3, 2, Some(2)));
    let generation = test.head.timetable().generation;
    let head = Head::new(config(2), test.records.clone(), [2; 32]).expect("a policy");
    let mut test = Test { head, now: test.now + 500 * MS, records: test.records };
    test.event(HeadEvent::Timeout);
    assert_ne!(test.head.timetable().generation >> 32, generation >> 32, "another head's");
    assert_eq!(test.head.timetable().columns.len(), 2, "what ran has its slots");
    test.event(HeadEvent::ChildUp(LINK));
    let mut nodes: Vec<_> = (0..2).map(description).collect();
    nodes[0].jobs = vec![(running, vec![0]), (JobId(99), vec![5])];
    nodes[1].jobs = vec![(running, vec![])];
    let actions = test.report(Report::Attached(nodes));
    let sent = commands(&actions);
    assert!(sent.contains(&(&set([0]), &Command::Kill { job: JobId(99) })), "nobody knows it");
    assert_eq!(test.state(running), JobState::Running);
    let again =
        |(_, c): &(&NodeSet, &Command)| matches!(c, Command::Prepare(spec) if spec.job == queued);
    assert!(sent.iter().any(again), "it was being prepared, and the nodes know nothing of it");
    assert_eq!(test.state(later), JobState::Queued);
    test.prepare(running, [(0, 1), (1, 1)]);
    test.report(Report::Freed { job: running, nodes: set(0..2) });
    assert_eq!(test.state(running), JobState::Ended(Outcome::Success));
    assert_eq!(test.state(later), JobState::Preparing);
}

#[test]
fn a_new_head_gives_up_on_nodes_that_do_not_come() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let head = Head::new(config(2), test.records.clone(), [2; 32]).expect("a policy");
    let mut test = Test { head, now: test.now, records: test.records };
    test.event(HeadEvent::Timeout);
    test.advance(3_900 * MS);
    assert_eq!(test.state(job), JobState::Running);
    test.advance(200 * MS);
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(0))));
}

/// The head and node 0 are on one machine that loses its power. Node 1 has not been lost, whoever comes back first.
#[test]
fn a_loss_of_power_at_the_heads_machine_is_not_blamed_on_others() {
    let attach = |test: &mut Test, job, node: u32| {
        let mut back = description(node);
        match node {
            0 => back.incarnation = 2,
            _ => back.jobs = vec![(job, vec![node])],
        }
        test.report(Report::Attached(vec![back]));
    };
    let lease_over = |test: &mut Test, job| {
        let cause = AbandonCause::LeaseOver;
        test.report(Report::Abandoned { job, nodes: set([1]), cause });
    };
    let (lost, away) = (Outcome::NodeLost(NodeId(0)), Outcome::HeadAway(NodeId(1)));
    for (order, outlived, outcome) in [
        ([1, 0], true, &lost),
        ([0, 1], true, &lost),
        ([1, 0], false, &away),
        ([0, 1], false, &lost),
    ] {
        let mut test = Test::new(2);
        let job = test.running(1, 2);
        let head = Head::new(config(2), test.records.clone(), [2; 32]).expect("a policy");
        let mut test = Test { head, now: test.now + 2_000 * MS, records: test.records };
        test.event(HeadEvent::Timeout);
        test.event(HeadEvent::ChildUp(LINK));
        for node in order {
            attach(&mut test, job, node);
            if node == 1 && !outlived {
                lease_over(&mut test, job);
            }
        }
        test.report(Report::Freed { job, nodes: set([0, 1]) });
        test.advance(20_000 * MS);
        assert_eq!(test.state(job), JobState::Ended(outcome.clone()), "{order:?} {outlived}");
    }
}

#[test]
fn a_new_head_may_have_fewer_nodes() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    let head = Head::new(config(1), test.records.clone(), [2; 32]).expect("a policy");
    let mut test = Test { head, now: test.now, records: test.records };
    test.event(HeadEvent::Timeout);
    assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))));
    test.event(HeadEvent::ChildUp(LINK));
    let mut node = description(0);
    node.jobs = vec![(job, vec![0])];
    let actions = test.report(Report::Attached(vec![node]));
    assert!(commands(&actions).contains(&(&set([0]), &Command::Kill { job })));
    test.report(Report::Freed { job, nodes: set([0]) });
    assert_eq!(test.state(job), JobState::Ending(Outcome::NodeLost(NodeId(1))));
    test.advance(4_000 * MS);
    assert_eq!(test.state(job), JobState::Ended(Outcome::NodeLost(NodeId(1))));
}

#[test]
fn nonsense_from_daemons_does_no_harm() {
    let mut test = Test::new(2);
    let job = test.running(1, 1);
    let all = all_numbers();
    test.report(Report::Freed { job: JobId(5), nodes: all.clone() });
    test.report(Report::Detached(set([])));
    test.report(Report::Attached(vec![description(2), description(u32::MAX)]));
    test.report(Report::Freed { job, nodes: set([1]) });
    assert_eq!(test.state(job), JobState::Running, "node 1 is not its node");
    let wrote = |job, rank, node| Report::Output {
        job,
        rank,
        node: NodeId(node),
        stream: Stream::Out,
        base: 0,
        at: 0,
        data: vec![1],
    };
    let mut spools = |report| {
        let actions = test.report(report);
        actions.iter().any(|action| matches!(action, HeadAction::Spool { .. }))
    };
    assert!(!spools(wrote(JobId(9), 0, 0)));
    assert!(!spools(wrote(job, 1, 0)));
    assert!(!spools(wrote(job, 0, 1)), "node 1 has no rank of it");
    assert!(spools(wrote(job, 0, 0)));
    let stranger = Up::Report(Report::Detached(all.clone()));
    assert!(test.event(HeadEvent::Child(LinkId(9), stranger)).is_empty(), "no such link");
    assert!(test.head.is_up(NodeId(0)));
    let (short, _) = test.submit(request(2, 4, Some(2)));
    test.prepare(short, [(0, 1)]);
    match test.state(short) {
        JobState::Ending(Outcome::Refused(refusal)) => {
            assert_eq!(refusal.kind, RefusalKind::Internal);
        }
        other => panic!("{other:?}"),
    }
    test.report(Report::Detached(all));
    assert!(!test.head.is_up(NodeId(0)));
}

/// A set that names every number there is, as only the wire can bring it.
fn all_numbers() -> NodeSet {
    postcard::from_bytes(&postcard::to_allocvec(&vec![(0u32, u32::MAX)]).unwrap()).unwrap()
}
