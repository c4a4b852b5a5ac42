//! The scheduling policy: by name, changed while jobs run, and what jobs may wish for.

use super::*;
use kumi_control::head::{PolicyError, check_policy};
use kumi_control::message::{ClusterStatus, LONGEST_ESTIMATE, MOST_PRIORITY};
use kumi_sched::DqtState;

fn configure(policy: &str) -> ClientRequest {
    ClientRequest::Configure { mode: None, slice: None, policy: Some(policy.into()) }
}

fn status(test: &mut Test) -> ClusterStatus {
    let actions = test.ask(&ALICE, ClientRequest::Cluster);
    let found = actions.into_iter().find_map(|action| match action {
        HeadAction::ToClient(_, ClientReply::Cluster(status)) => Some(status),
        _ => None,
    });
    found.expect("a status")
}

fn nodes_of(test: &Test, job: JobId) -> Vec<u32> {
    let record = test.head.records().find(|record| record.spec.job == job).expect("known");
    record.spec.layout.iter().map(|part| part.node.0).collect()
}

/// A running job with one rank on each of so many nodes that the policy chose.
fn running_on(test: &mut Test, token: u128, nodes: u32) -> JobId {
    let (job, _) = test.submit(request(token, nodes, Some(nodes)));
    let nodes = nodes_of(test, job);
    test.prepare(job, nodes.into_iter().map(|node| (node, 1)));
    assert_eq!(test.state(job), JobState::Running);
    job
}

fn ends(test: &mut Test, job: JobId) {
    let nodes = set(nodes_of(test, job));
    test.report(Report::Freed { job, nodes });
    assert_eq!(test.state(job), JobState::Ended(Outcome::Success));
}

#[test]
fn only_policies_of_a_cluster_are_taken() {
    let new = |policy: &str| {
        let config = HeadConfig { policy: policy.into(), ..config(1) };
        Head::new(config, Vec::new(), [1; 32]).map(drop)
    };
    assert_eq!(new("fair-dqt:apa+shares"), Ok(()));
    assert!(matches!(new("esy"), Err(PolicyError::Unknown(_))));
    assert_eq!(new("dqt+migrate"), Err(PolicyError::Migrates("dqt+migrate".into())));
    let message = check_policy("dqt4+migrate").unwrap_err().to_string();
    assert!(message.contains("needs checkpoints, and this version has none"), "{message}");
}

#[test]
fn a_change_keeps_jobs_where_they_are_and_the_rhythm() {
    let mut test = Test::with_policy(4, "matrix");
    let (wide, narrow) = (running_on(&mut test, 1, 4), running_on(&mut test, 2, 2));
    // The limit is two jobs a node.
    let other = running_on(&mut test, 3, 2);
    let waiting = test.submit(request(4, 4, Some(4))).0;
    assert_eq!(test.state(waiting), JobState::Queued);
    let places: Vec<_> = [wide, narrow, other].map(|job| nodes_of(&test, job)).into();
    for name in ["dqt", "fcfs", "dhc:no-disabling", "fair-dqt:max", "scan", "matrix"] {
        test.advance(23 * MS);
        let before = test.head.timetable().clone();
        let actions = test.ask(&OWNER, configure(name));
        assert!(replied(&actions, &ClientReply::Done), "{name}: {actions:?}");
        let after = test.head.timetable();
        let boundary = |table: &Timetable| (table.tick_start(1).0) % table.slice_ns;
        assert_eq!(boundary(after), boundary(&before), "{name} begins another rhythm");
        assert_eq!(after.columns.len(), 4, "{name}");
        for node in 0..4 {
            let column = &after.column(NodeId(node)).expect("jobs").slots;
            assert!(column.contains(&vec![wide]), "{name}: {column:?}");
        }
        assert_eq!(status(&mut test).policy, name);
        for (job, nodes) in [wide, narrow, other].into_iter().zip(&places) {
            assert_eq!((&nodes_of(&test, job), test.state(job)), (nodes, JobState::Running));
        }
        assert_eq!(test.state(waiting), JobState::Queued, "{name}");
    }
    for job in [wide, narrow, other] {
        ends(&mut test, job);
    }
    assert_eq!(test.state(waiting), JobState::Preparing);
}

#[test]
fn the_same_policy_again_changes_nothing() {
    let mut test = Test::new(2);
    running_on(&mut test, 1, 2);
    let generation = test.head.timetable().generation;
    assert!(replied(&test.ask(&OWNER, configure("dqt")), &ClientReply::Done));
    assert_eq!(test.head.timetable().generation, generation);
}

#[test]
fn those_that_wait_queue_again_in_order() {
    let mut test = Test::with_policy(2, "fcfs");
    let first = running_on(&mut test, 1, 2);
    let waiting: Vec<JobId> =
        (2..6).map(|token| test.submit(request(token, 1, Some(1))).0).collect();
    test.ask(&OWNER, configure("matrix"));
    // Two jobs a node: the first beside it.
    let states: Vec<bool> =
        waiting.iter().map(|&job| test.state(job) == JobState::Preparing).collect();
    assert_eq!(states, [true, true, false, false]);
    test.ask(&OWNER, configure("first-fit"));
    assert_eq!(test.state(waiting[2]), JobState::Queued, "they share no time");
    ends(&mut test, first);
    assert_eq!(test.state(waiting[2]), JobState::Queued, "both nodes have a job yet");
}

#[test]
fn refused_changes_leave_everything_as_it_was() {
    let mut test = Test::with_policy(2, "fcfs");
    running_on(&mut test, 1, 2);
    let waiting = test.submit(request(2, 2, Some(2))).0;
    let before = status(&mut test);
    let cases = [
        (&OWNER, "esy", RefusalKind::BadRequest, "did you mean easy?"),
        (&OWNER, &*format!("dqt{}2", "0".repeat(100)), RefusalKind::BadRequest, "not 104"),
        (&OWNER, "dqt+migrate", RefusalKind::BadRequest, "needs checkpoints"),
        (&OWNER, "easy", RefusalKind::BadRequest, "job 2 has no estimate"),
        (&ALICE, "dqt", RefusalKind::NotPermitted, "only the cluster's owner"),
    ];
    for (user, name, kind, says) in cases {
        let request = ClientRequest::Configure {
            mode: None,
            slice: Some(SliceLength::Fixed(MS)),
            policy: Some(name.into()),
        };
        let refusal = refused(test.ask(user, request));
        assert_eq!(refusal.kind, kind, "{name}");
        assert!(refusal.message.contains(says), "{}", refusal.message);
        let after = status(&mut test);
        assert_eq!(after.timetable, before.timetable, "{name}");
        assert_eq!((after.policy, after.slice), ("fcfs".into(), before.slice));
        assert_eq!(test.state(waiting), JobState::Queued);
    }
    test.ask(&OWNER, ClientRequest::Kill { job: waiting, grace_ns: 0 });
    assert!(replied(&test.ask(&OWNER, configure("easy")), &ClientReply::Done));
}

#[test]
fn jobs_that_wait_for_the_nodes_to_come_count_too() {
    let mut test = Test::without_nodes(2);
    let (job, _) = test.submit(request(1, 1, None));
    let refusal = refused(test.ask(&OWNER, configure("conservative")));
    assert!(refusal.message.contains("job 1 has no estimate"), "{}", refusal.message);
    assert!(replied(&test.ask(&OWNER, configure("scan")), &ClientReply::Done));
    test.report(Report::Attached((0..2).map(description).collect()));
    assert_eq!(test.state(job), JobState::Preparing);
}

#[test]
fn wishes_are_checked() {
    let mut test = Test::new(2);
    let wish = |token, priority, estimate_ns| {
        let request = JobRequest { priority, estimate_ns, ..request(token, 1, Some(1)) };
        ClientRequest::Submit(Box::new(request))
    };
    for (user, priority, estimate, kind) in [
        (&OWNER, MOST_PRIORITY + 1, None, RefusalKind::BadRequest),
        (&ALICE, 5, None, RefusalKind::NotPermitted),
        (&ALICE, 1, Some(0), RefusalKind::BadRequest),
        (&ALICE, 1, Some(LONGEST_ESTIMATE + 1), RefusalKind::BadRequest),
    ] {
        let refusal = refused(test.ask(user, wish(9, priority, estimate)));
        assert_eq!(refusal.kind, kind, "{}", refusal.message);
    }
    assert_eq!(test.head.records().count(), 0, "nothing of a refused job is kept");
    for (token, user, priority) in [(1, &ALICE, 4), (2, &OWNER, MOST_PRIORITY), (3, &ALICE, 1)] {
        let actions = test.ask(user, wish(token, priority, Some(LONGEST_ESTIMATE)));
        assert_eq!(refusal(&actions), None, "{actions:?}");
    }
}

#[test]
fn jobs_that_do_not_say_get_the_clusters_wishes() {
    let wishes = HeadConfig {
        policy: "easy".into(),
        priority: 3,
        estimate_ns: Some(60_000 * MS),
        ..config(1)
    };
    let mut test = Test::attached(wishes);
    let mut of = |token, priority, estimate_ns| {
        let (job, _) =
            test.submit(JobRequest { priority, estimate_ns, ..request(token, 1, Some(1)) });
        let record = test.head.records().find(|record| record.spec.job == job).expect("known");
        (record.spec.request.priority, record.spec.request.estimate_ns)
    };
    assert_eq!(of(1, 0, None), (3, Some(60_000 * MS)));
    assert_eq!(of(2, 1, Some(7)), (1, Some(7)));
}

#[test]
fn a_policy_that_plans_wants_estimates() {
    let mut test = Test::with_policy(2, "easy");
    let without = ClientRequest::Submit(Box::new(request(1, 1, Some(1))));
    let refusal = refused(test.ask(&ALICE, without));
    assert_eq!(refusal.kind, RefusalKind::BadRequest);
    assert!(refusal.message.contains("--estimate 10m"), "{}", refusal.message);
    assert_eq!(test.head.records().count(), 0);
    let estimated = |token, nodes, seconds: u64| JobRequest {
        estimate_ns: Some(seconds * 1_000 * MS),
        ..request(token, nodes, Some(nodes))
    };
    let first = test.submit(estimated(1, 1, 60)).0;
    test.prepare(first, [(0, 1)]);
    let wide = test.submit(estimated(2, 2, 60)).0;
    test.advance(30_000 * MS);
    // Would end after the first should, and so would delay the wide one.
    let long = test.submit(estimated(3, 1, 40)).0;
    let short = test.submit(estimated(4, 1, 20)).0;
    let states = [wide, long, short].map(|job| test.state(job));
    assert_eq!(states, [JobState::Queued, JobState::Queued, JobState::Preparing]);

    // A head that starts again knows how much of the estimate is left.
    test.prepare(short, [(1, 1)]);
    ends(&mut test, short);
    let records = test.records.clone();
    let head =
        Head::new(HeadConfig { policy: "easy".into(), ..config(2) }, records, [2; 32]).unwrap();
    let mut again = Test { head, now: test.now, records: test.records.clone() };
    again.event(HeadEvent::ChildUp(LINK));
    let has = |node: u32| NodeDescription {
        jobs: if node == 0 { vec![(first, vec![0])] } else { Vec::new() },
        ..description(node)
    };
    again.report(Report::Attached((0..2).map(has).collect()));
    assert_eq!(again.state(long), JobState::Queued, "30 s are left of the first");
    let next = again.submit(estimated(5, 1, 29)).0;
    assert_eq!(again.state(next), JobState::Preparing);
}

#[test]
fn more_important_jobs_have_more_turns() {
    let mut test = Test::new(1);
    let jobs = [1_u16, 3].map(|priority| {
        let wish = JobRequest { priority, ..request(priority.into(), 1, Some(1)) };
        let (job, _) = test.submit(wish);
        test.prepare(job, [(0, 1)]);
        job
    });
    let column = &test.head.timetable().columns[0].slots;
    let turns = |job| column.iter().filter(|slot| **slot == [job]).count();
    assert_eq!(turns(jobs[1]), 3 * turns(jobs[0]), "{column:?}");
    assert!(column.iter().all(|slot| slot.len() == 1));
}

#[test]
fn the_status_shows_the_front_as_it_is_now() {
    let mut test = Test::new(4);
    let (whole, half) = (running_on(&mut test, 1, 4), running_on(&mut test, 2, 2));
    let mut fronts = Vec::new();
    for _ in 0..40 {
        test.advance(5 * MS);
        let status = status(&mut test);
        let tree = status.tree.expect("a tree");
        let now = ClusterTime(test.now);
        let runs =
            status.timetable.jobs_at(NodeId(0), status.timetable.tick_at(now)).first().copied();
        let front = tree.iter().find(|node| node.state == DqtState::Rounding).expect("a front");
        assert_eq!(front.queue.first().map(|job| job.job), runs, "{tree:#?}");
        fronts.push(runs);
    }
    assert!(fronts.contains(&Some(whole)) && fronts.contains(&Some(half)));
    let os =
        ClientRequest::Configure { mode: Some(Mode::OperatingSystem), slice: None, policy: None };
    test.ask(&OWNER, os);
    assert_eq!(status(&mut test).tree, None);
    let gang = ClientRequest::Configure {
        mode: Some(Mode::Gang { force_switch: false, fill: true }),
        slice: None,
        policy: Some("matrix".into()),
    };
    test.ask(&OWNER, gang);
    assert_eq!(status(&mut test).tree, None);
}

#[test]
fn partitions_that_a_change_does_not_concern_keep_their_slots() {
    let mut test = Test::wide(4, 16);
    for token in 1..=4 {
        running_on(&mut test, token, 2);
    }
    let mut left: Vec<JobId> = Vec::new();
    for round in 0..40_u128 {
        test.advance((round as u64 * 7 % 31) * MS);
        let before = test.head.timetable().clone();
        if left.len() < 3 && round % 5 != 4 {
            // The right half is kept busier than the left one: it goes there.
            let (job, _) = test.submit(request(10 + round, 2, Some(2)));
            if nodes_of(&test, job) == [0, 1] {
                test.prepare(job, [(0, 1), (1, 1)]);
                left.push(job);
            } else {
                // Prepared, it takes no turns.
                test.ask(&OWNER, ClientRequest::Kill { job, grace_ns: 0 });
                test.report(Report::Freed { job, nodes: set([2, 3]) });
            }
        } else if let Some(job) = left.pop() {
            ends(&mut test, job);
        }
        let after = test.head.timetable();
        for slot in 0..60 {
            let time = ClusterTime(after.start.0 + slot * 10 * MS + MS);
            for node in [2, 3].map(NodeId) {
                let jobs = |table: &Timetable| table.jobs_at(node, table.tick_at(time)).to_vec();
                assert_eq!(jobs(after), jobs(&before), "round {round}, node {node}, slot {slot}");
            }
        }
    }
    assert!(test.head.timetable().generation & 0xffff_ffff > 20);
}
