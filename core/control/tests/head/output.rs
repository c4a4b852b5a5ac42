//! Output of ranks at the head: each byte once, in order, acknowledged, and asked for again.

use super::*;

/// What a rank wrote to its standard output.
fn wrote(job: JobId, (base, at): (u64, u64), data: &[u8]) -> Report {
    let (rank, node, stream) = (0, NodeId(0), Stream::Out);
    Report::Output { job, rank, node, stream, base, at, data: data.to_vec() }
}

/// The bytes that are taken, with where they begin, and the first one that is not acknowledged.
type Taken = (Option<(u64, Vec<u8>)>, Option<u64>);

impl Test {
    fn output(&mut self, report: Report) -> Taken {
        let Report::Output { job, .. } = report else { panic!("no output") };
        let mut actions = self.report(report);
        actions.extend(self.event(HeadEvent::Spooled { job }));
        self.now += 3 * MS;
        actions.extend(self.event(HeadEvent::Timeout));
        let taken = actions.iter().find_map(|action| match action {
            HeadAction::Spool { at, data, .. } => Some((*at, data.clone())),
            _ => None,
        });
        let next = commands(&actions).into_iter().find_map(|(_, command)| match command {
            Command::OutputKept { kept, again: false, .. } => Some(kept[0].next),
            _ => None,
        });
        (taken, next)
    }
}

fn taken(at: u64, data: &[u8], next: u64) -> Taken {
    (Some((at, data.to_vec())), Some(next))
}

#[test]
fn each_byte_is_taken_once() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    assert_eq!(test.output(wrote(job, (0, 0), b"abc")), taken(0, b"abc", 3));
    assert_eq!(test.output(wrote(job, (0, 0), b"abc")), (None, Some(3)), "known");
    assert_eq!(test.output(wrote(job, (0, 1), b"bcde")), taken(3, b"de", 5), "known in part");
    assert_eq!(test.output(wrote(job, (0, 7), b"hi")), (None, Some(5)), "behind a hole");
    assert_eq!(test.output(wrote(job, (0, 5), b"fg")), taken(5, b"fg", 7));
    // The node has nothing before it any more: an earlier head acknowledged it and lost it.
    assert_eq!(test.output(wrote(job, (20, 20), b"xy")), taken(20, b"xy", 22));
    assert_eq!(test.output(wrote(job, (0, u64::MAX), b"xy")), (None, Some(22)), "nonsense");
}

/// What only an earlier head had is told to the spool, which marks it, though nothing more comes of the stream.
#[test]
fn a_stream_that_had_come_further_is_told_once() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    assert_eq!(test.output(wrote(job, (0, 0), b"abc")), taken(0, b"abc", 3));
    assert_eq!(test.output(wrote(job, (3, 0), b"")), (None, None), "nothing is missing");
    assert_eq!(test.output(wrote(job, (9, 0), b"")), (Some((9, Vec::new())), None));
    assert_eq!(test.output(wrote(job, (9, 0), b"")), (None, None), "known");
    assert_eq!(test.output(wrote(job, (9, 9), b"de")), taken(9, b"de", 11));
}

#[test]
fn acknowledgements_of_a_burst_go_together() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    let acknowledged = |actions: &[HeadAction]| {
        let kept = commands(actions).into_iter().filter_map(|(_, command)| match command {
            Command::OutputKept { kept, .. } => Some(kept[0].next),
            _ => None,
        });
        kept.collect::<Vec<u64>>()
    };
    let put = |test: &mut Test, at| {
        test.report(wrote(job, (0, at), b"a"));
        acknowledged(&test.event(HeadEvent::Spooled { job }))
    };
    assert_eq!(put(&mut test, 0), [1], "at once");
    for at in 1..5 {
        assert_eq!(put(&mut test, at), []);
    }
    let due = test.head.next_timeout().expect("it is due");
    assert!(due <= test.now + 3 * MS, "{due}");
    test.now = due;
    assert_eq!(acknowledged(&test.event(HeadEvent::Timeout)), [5]);
}

#[test]
fn what_the_spool_has_not_taken_is_not_acknowledged() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    let kept = |actions: &[HeadAction]| {
        commands(actions).iter().any(|(_, command)| matches!(command, Command::OutputKept { .. }))
    };
    test.report(wrote(job, (0, 0), b"abc"));
    test.report(wrote(job, (0, 0), b"abc"));
    test.now += 100 * MS;
    assert!(!kept(&test.event(HeadEvent::Timeout)));
    assert!(!kept(&test.event(HeadEvent::Spooled { job: JobId(99) })));
    assert!(kept(&test.event(HeadEvent::Spooled { job })));
    // How far another stream had come says nothing of this one.
    test.report(wrote(job, (3, 3), b"c"));
    let (rank, node, stream) = (0, NodeId(0), Stream::Err);
    let far = Report::Output { job, rank, node, stream, base: 9, at: 0, data: Vec::new() };
    test.now += 100 * MS;
    assert!(!kept(&test.report(far)), "the spool has not taken it");
    assert!(kept(&test.event(HeadEvent::Spooled { job })));
    // Nothing more comes of the node: its end is not held up.
    test.report(wrote(job, (4, 4), b"d"));
    test.now += 100 * MS;
    assert!(kept(&test.report(wrote(job, (4, 5), b""))));
    // Nor is that of a job that is killed.
    test.report(wrote(job, (5, 5), b"e"));
    test.now += 100 * MS;
    assert!(kept(&test.ask(&ALICE, ClientRequest::Kill { job, grace_ns: 0 })));
    test.now += 100 * MS;
    assert!(kept(&test.report(wrote(job, (6, 6), b"f"))));
}

#[test]
fn nodes_that_attach_are_told_what_came_and_asked_for_the_rest() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    test.output(wrote(job, (0, 0), b"abc"));
    let attached = |jobs: &[JobId]| {
        let jobs = jobs.iter().map(|&job| (job, vec![0])).collect();
        Report::Attached(vec![NodeDescription { jobs, ..description(0) }])
    };
    let kept = vec![KeptOutput { rank: 0, stream: Stream::Out, next: 3 }];
    let again = Command::OutputKept { job, kept, again: true };
    let actions = test.report(attached(&[job]));
    assert!(commands(&actions).contains(&(&set([0]), &again)), "{actions:?}");
    // Also by the next head, which has it from the spool.
    let mut head = Head::new(config(1), test.records.clone(), [2; 32]).expect("a policy");
    head.restore_output(job, [(0, Stream::Out, 3)]);
    let mut next = Test { head, now: test.now, records: test.records.clone() };
    next.event(HeadEvent::ChildUp(LINK));
    let actions = next.report(attached(&[job]));
    assert!(commands(&actions).contains(&(&set([0]), &again)), "{actions:?}");
    assert_eq!(next.output(wrote(job, (0, 2), b"cd")), taken(3, b"d", 4));
}

/// Up to 4 MiB would come for nothing.
#[test]
fn nodes_drop_the_output_of_jobs_that_are_over_and_do_not_send_it_again() {
    let mut test = Test::new(1);
    let job = test.running(1, 1);
    test.report(Report::Freed { job, nodes: set([0]) });
    for job in [job, JobId(77)] {
        let jobs = vec![(job, vec![0])];
        let actions =
            test.report(Report::Attached(vec![NodeDescription { jobs, ..description(0) }]));
        let asked = |(_, command): &(&NodeSet, &Command)| {
            matches!(command, Command::OutputKept { again: true, .. })
        };
        assert!(!commands(&actions).iter().any(asked), "{actions:?}");
        let unwanted = Command::DropOutput { job };
        assert!(commands(&actions).contains(&(&set([0]), &unwanted)), "{actions:?}");
        // What was on its way is acknowledged, so that the node can drop it, too.
        assert_eq!(test.output(wrote(job, (3, 3), b"late")), (None, Some(7)));
    }
}
