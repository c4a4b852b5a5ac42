//! The life of a job, and when the timetable goes out.

use std::net::{IpAddr, Ipv6Addr};

use super::*;

#[test]
fn a_job_from_submission_to_its_end() {
    let mut test = Test::new(3);
    let (job, actions) = test.submit(request(1, 5, None));
    let prepare = position(&actions, |a| matches!(command_of(a), Some((_, Command::Prepare(_)))));
    assert!(position(&actions, |a| is_state(a, &JobState::Preparing)) < prepare);
    let Some((nodes, Command::Prepare(spec))) = command_of(&actions[prepare]) else { panic!() };
    assert_eq!(*nodes, set(0..3), "two processors a node");
    let layout: Vec<_> = spec.layout.iter().map(|p| (p.node.0, p.first, p.count)).collect();
    assert_eq!(layout, [(0, 0, 2), (1, 2, 2), (2, 4, 1)]);
    assert!(
        actions
            .iter()
            .any(|a| matches!(a, HeadAction::Follow { offset: 0, wait: true, paces: true, .. }))
    );

    assert!(commands(&test.prepare(job, [(0, 2), (2, 1)])).is_empty(), "one is not prepared");
    let actions = test.prepare(job, [(1, 2)]);
    let persisted = position(&actions, |a| is_state(a, &JobState::Running));
    let timetable =
        position(&actions, |a| matches!(command_of(a), Some((_, Command::Timetable(_)))));
    let start = position(&actions, |a| matches!(command_of(a), Some((_, Command::Start { .. }))));
    assert!(persisted < timetable && timetable < start);
    let Some((_, Command::Timetable(sent))) = command_of(&actions[timetable]) else { panic!() };
    assert!(sent.start.0 > test.now && sent.start.0 < test.now + 10 * MS);
    assert!(sent.columns.iter().all(|column| column.constant_jobs() == Some(&[job][..])));
    let Some((_, Command::Start { addresses, max_datagram, .. })) = command_of(&actions[start])
    else {
        panic!()
    };
    let owners: Vec<IpAddr> = addresses.iter().map(|address| address.ip).collect();
    let expected = [0, 0, 1, 1, 2].map(|node| IpAddr::from([10, 0, 0, node]));
    assert_eq!((owners, *max_datagram), (expected.to_vec(), 1400));

    let data = b"hello\n".to_vec();
    let output = Report::Output {
        job,
        rank: 4,
        node: NodeId(2),
        stream: Stream::Out,
        base: 0,
        at: 0,
        data: data.clone(),
    };
    let spool = HeadAction::Spool { job, rank: 4, stream: Stream::Out, at: 0, data };
    assert_eq!(test.report(output), [spool]);
    let actions = test.event(HeadEvent::Spooled { job });
    let kept = vec![KeptOutput { rank: 4, stream: Stream::Out, next: 6 }];
    let kept = Command::OutputKept { job, kept, again: false };
    assert_eq!(commands(&actions), [(&set([2]), &kept)]);
    assert!(test.report(Report::Freed { job, nodes: set([0, 1]) }).is_empty());
    let actions = test.report(Report::Freed { job, nodes: set([2]) });
    let ended = position(&actions, |a| is_state(a, &JobState::Ended(Outcome::Success)));
    let spool = HeadAction::EndSpool { job, outcome: Outcome::Success, not_kept: 0 };
    assert!(ended < position(&actions, |a| *a == spool));
    assert!(commands(&actions).contains(&(&set(0..3), &Command::Forget { job })));
    assert!(test.head.timetable().columns.is_empty());
}

/// The jobs whose records and output are to be removed.
fn discarded(actions: &[HeadAction]) -> Vec<JobId> {
    let discarded = actions.iter().filter_map(|action| match action {
        HeadAction::Discard(job) => Some(*job),
        _ => None,
    });
    discarded.collect()
}

impl Test {
    /// A job that ended.
    fn ended(&mut self, token: u128) -> (JobId, Vec<HeadAction>) {
        let job = self.running(token, 1);
        (job, self.report(Report::Freed { job, nodes: set([0]) }))
    }
}

#[test]
fn of_too_many_ended_jobs_the_first_are_forgotten() {
    let retention = Retention { jobs: 2, age_ms: u64::MAX };
    let mut test = Test::attached(HeadConfig { retention, ..config(1) });
    let live = test.running(9, 1);
    let [first, second] = [1, 2].map(|token| test.ended(token).0);
    let (third, actions) = test.ended(3);
    assert_eq!(discarded(&actions), [first]);
    let ended = position(&actions, |a| is_state(a, &JobState::Ended(Outcome::Success)));
    assert!(ended < position(&actions, |a| matches!(a, HeadAction::Discard(_))));
    let known: Vec<JobId> = test.head.records().map(|record| record.spec.job).collect();
    assert_eq!(known, [live, second, third]);
    let actions = test.ask(&ALICE, ClientRequest::Follow { job: first, offset: 0, wait: false });
    assert_eq!(refusal(&actions), Some(RefusalKind::NoSuchJob));
    // A head that may keep fewer, or that did not get to remove what was to go.
    let config = HeadConfig { retention: Retention { jobs: 1, age_ms: u64::MAX }, ..config(1) };
    test.head = Head::new(config, test.records.clone(), [2; 32]).expect("a policy");
    assert_eq!(discarded(&test.event(HeadEvent::Timeout)), [first, second]);
}

#[test]
fn ended_jobs_are_forgotten_when_they_are_old() {
    let hour = 3_600_000;
    let retention = Retention { jobs: 4096, age_ms: hour };
    let mut test = Test::attached(HeadConfig { retention, ..config(1) });
    let (first, _) = test.ended(1);
    test.advance(hour / 2 * MS);
    let (second, actions) = test.ended(2);
    assert_eq!(discarded(&actions), []);
    let actions = test.advance(hour / 2 * MS + MS);
    assert_eq!(discarded(&actions), [first], "at its time, without another event");
    assert_eq!(discarded(&test.advance(hour * MS)), [], "the last job's number is not given again");
    let records: Vec<JobRecord> = test.head.records().cloned().collect();
    let config = HeadConfig { retention, ..config(1) };
    test.head = Head::new(config, records, [2; 32]).expect("a policy");
    test.event(HeadEvent::Timeout);
    test.event(HeadEvent::ChildUp(LINK));
    test.report(Report::Attached(vec![description(0)]));
    let (third, actions) = test.submit(request(3, 1, Some(1)));
    assert!(third > second);
    assert_eq!(discarded(&actions), [second]);
}

/// Ranks with IPv4 addresses and ranks with IPv6 addresses cannot send to each other.
#[test]
fn a_job_on_nodes_of_both_families_is_refused() {
    let mut test = Test::new(3);
    let (job, _) = test.submit(request(1, 3, Some(3)));
    test.prepare(job, [(0, 1), (2, 1)]);
    let addresses = vec![RankAddress { ip: Ipv6Addr::LOCALHOST.into(), port: 9 }];
    let result = Ok(PreparedRanks { addresses, max_datagram: 1400 });
    let nodes = vec![PreparedNode { node: NodeId(1), result }];
    let actions = test.report(Report::Prepared { job, nodes });
    assert!(
        !commands(&actions).iter().any(|(_, command)| matches!(command, Command::Start { .. }))
    );
    test.report(Report::Freed { job, nodes: set(0..3) });
    let JobState::Ended(Outcome::Refused(refusal)) = test.state(job) else { panic!() };
    assert_eq!(refusal.kind, RefusalKind::BadRequest);
    for part in ["node 0 with an IPv4", "node 1 with an IPv6"] {
        assert!(refusal.message.contains(part), "{}", refusal.message);
    }
}

#[test]
fn the_first_failing_rank_ends_the_job_everywhere() {
    let mut test = Test::new(3);
    let job = test.running(1, 3);
    let status = RankStatus::Signalled(11);
    let failed = |rank, node| Report::RankFailed { job, rank, node: NodeId(node), status };
    assert!(test.report(failed(1, 2)).is_empty(), "rank 1 is not on node 2");
    assert!(test.report(failed(9, 1)).is_empty(), "there is no rank 9");
    let actions = test.report(failed(1, 1));
    let outcome = Outcome::RankFailed { rank: 1, node: NodeId(1), status };
    assert!(commands(&actions).contains(&(&set(0..3), &Command::Kill { job })));
    test.report(failed(2, 2));
    assert_eq!(test.state(job), JobState::Ending(outcome.clone()), "the first counts");
    test.report(Report::Freed { job, nodes: set(0..3) });
    assert_eq!(test.state(job), JobState::Ended(outcome));
}

#[test]
fn ranks_that_were_asked_to_end_may_finish() {
    let mut test = Test::new(2);
    let status = RankStatus::Exited(9);
    let failed = |job, rank| Report::RankFailed { job, rank, node: NodeId(rank), status };
    let outcome = |rank| Outcome::RankFailed { rank, node: NodeId(rank), status };
    // All end by themselves: nothing is killed, and the first is named.
    let job = test.running(1, 2);
    test.ask(&ALICE, ClientRequest::Signal { job, signal: 15 });
    assert!(test.report(failed(job, 1)).is_empty());
    assert!(test.report(failed(job, 0)).is_empty());
    assert_eq!(test.state(job), JobState::Running);
    test.report(Report::Freed { job, nodes: set(0..2) });
    assert_eq!(test.state(job), JobState::Ended(outcome(1)));
    // One stays: it is killed after a second.
    let job = test.running(2, 2);
    test.ask(&ALICE, ClientRequest::Signal { job, signal: 2 });
    assert!(test.report(failed(job, 0)).is_empty());
    let kills = |actions: &[HeadAction]| {
        commands(actions).iter().any(|(_, command)| **command == Command::Kill { job })
    };
    assert!(!kills(&test.advance(900 * MS)));
    assert!(kills(&test.advance(200 * MS)));
    assert_eq!(test.state(job), JobState::Ending(outcome(0)));
    // A signal that does not ask for an end changes nothing.
    let job = test.running(3, 2);
    test.ask(&ALICE, ClientRequest::Signal { job, signal: 10 });
    test.report(failed(job, 0));
    assert_eq!(test.state(job), JobState::Ending(outcome(0)));
}

#[test]
fn jobs_wait_for_nodes_and_rows() {
    let mut test = Test::without_nodes(2);
    let (first, actions) = test.submit(request(1, 2, Some(2)));
    assert!(actions.iter().any(|a| is_state(a, &JobState::Queued)));
    let (too_large, _) = test.submit(request(2, 16, Some(1)));
    test.report(Report::Attached(vec![description(0)]));
    assert_eq!(test.state(first), JobState::Queued);
    assert_eq!(test.state(too_large), JobState::Queued, "the other node may take so many ranks");
    let actions = test.report(Report::Attached(vec![description(1)]));
    assert!(matches!(test.state(too_large), JobState::Ended(Outcome::Refused(_))), "{actions:?}");
    assert_eq!(test.state(first), JobState::Preparing);
    let (second, _) = test.submit(request(3, 2, Some(2)));
    let (third, _) = test.submit(request(4, 2, Some(2)));
    assert_eq!(test.state(second), JobState::Preparing);
    assert_eq!(test.state(third), JobState::Queued, "two rows");
    let actions = test.ask(&ALICE, ClientRequest::Kill { job: second, grace_ns: 0 });
    assert!(!replied(&actions, &ClientReply::Done), "something may be left");
    let actions = test.report(Report::Freed { job: second, nodes: set(0..2) });
    assert!(replied(&actions, &ClientReply::Done));
    assert_eq!(test.state(third), JobState::Preparing);
}

#[test]
fn the_timetable_goes_out_once_per_change() {
    let timetables = |actions: &[HeadAction]| {
        commands(actions).iter().filter(|(_, c)| matches!(c, Command::Timetable(_))).count()
    };
    let mut test = Test::new(2);
    let (job, _) = test.submit(request(1, 2, Some(2)));
    assert_eq!(timetables(&test.prepare(job, [(0, 1), (1, 1)])), 1);
    let actions = test.advance(10_000 * MS);
    assert_eq!(timetables(&actions), 0, "slices cost nothing");
    let leases =
        commands(&actions).iter().filter(|(_, c)| matches!(c, Command::Lease { .. })).count();
    assert!((9..=11).contains(&leases), "{leases}");
    let configure = |mode, slice_ns: Option<u64>| {
        let slice = slice_ns.map(SliceLength::Fixed);
        ClientRequest::Configure { mode, slice, policy: None }
    };
    assert_eq!(timetables(&test.ask(&OWNER, configure(None, Some(10 * MS)))), 0, "as it was");
    assert_eq!(timetables(&test.ask(&OWNER, configure(Some(Mode::OperatingSystem), None))), 1);
    assert_eq!(timetables(&test.ask(&OWNER, configure(None, Some(250_000)))), 1);
    let too_short = test.ask(&OWNER, configure(None, Some(1)));
    assert_eq!(refusal(&too_short), Some(RefusalKind::BadRequest));
    let attached = test.report(Report::Attached(vec![description(1)]));
    assert!(timetables(&attached) >= 1, "whoever attaches gets it");
}

#[test]
fn a_new_timetable_goes_on_where_the_old_one_was() {
    let mut test = Test::new(3);
    test.running(1, 3);
    test.running(2, 2);
    let old = test.head.timetable().clone();
    assert_eq!(old.cycle(), 2);
    test.advance(1_234 * MS + 567);
    let (third, _) = test.submit(request(3, 1, Some(1)));
    test.prepare(third, [(2, 1)]);
    let new = test.head.timetable();
    assert!(new.generation > old.generation && new.start > old.start);
    let at = |timetable: &Timetable, node, time| {
        timetable.jobs_at(NodeId(node), timetable.tick_at(ClusterTime(time))).to_vec()
    };
    for time in (new.start.0..new.start.0 + 50 * MS).step_by(100_000) {
        assert_eq!(at(&old, 0, time), at(new, 0, time), "at {time}: jobs beside it notice nothing");
    }
    let switch = new.tick_start(1).0;
    assert_eq!((switch - old.tick_start(1).0) % old.slice_ns, 0, "slices keep their length");
    assert!((0..2).any(|tick| new.jobs_at(NodeId(2), tick) == [third]));
}
