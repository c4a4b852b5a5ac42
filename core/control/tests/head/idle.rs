//! Jobs that only wait leave the rotation, and come back.

use super::*;

impl Test {
    fn idle(&mut self, job: JobId, nodes: impl IntoIterator<Item = u32>, idle: bool) -> usize {
        let nodes = set(nodes);
        let actions = self.report(Report::Idle(IdleReport { job, nodes, idle }));
        timetables(&actions)
    }

    fn idle_jobs(&self) -> &[JobId] {
        &self.head.timetable().idle
    }

    /// The jobs that have slots on a node.
    fn slots(&self, node: u32) -> Vec<JobId> {
        let column = self.head.timetable().column(NodeId(node));
        let mut jobs: Vec<JobId> =
            column.into_iter().flat_map(|column| column.slots.iter().flatten()).copied().collect();
        jobs.sort();
        jobs.dedup();
        jobs
    }
}

fn timetables(actions: &[HeadAction]) -> usize {
    commands(actions).iter().filter(|(_, c)| matches!(c, Command::Timetable(_))).count()
}

#[test]
fn a_job_that_is_idle_everywhere_has_no_slots_until_it_stirs() {
    let mut test = Test::new(3);
    let (first, second) = (test.running(1, 3), test.running(2, 2));
    assert_eq!(test.idle(first, [0, 1], true), 0, "not everywhere");
    assert_eq!(test.slots(0), [first, second]);
    assert_eq!(test.idle(first, [2], true), 1);
    assert_eq!((test.slots(0), test.slots(2)), (vec![second], vec![]));
    assert_eq!(test.idle_jobs(), [first]);
    let column = test.head.timetable().column(NodeId(0)).cloned();
    assert_eq!(column.as_ref().and_then(|c| c.constant_jobs()), Some(&[second][..]));
    assert_eq!(test.idle(first, [0], true), 0, "said before");
    let ask = test.ask(&ALICE, ClientRequest::Jobs(JobsQuery::first_page(false)));
    let idle = |actions: &[HeadAction]| match actions {
        [HeadAction::ToClient(_, ClientReply::Jobs(JobsPage { list, .. }))] => {
            (list.records.len(), list.idle.clone())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(idle(&ask), (2, vec![first]));
    assert_eq!(test.state(first), JobState::Running);
    // Back at the first that stirs.
    assert_eq!(test.idle(first, [1], false), 1);
    assert_eq!((test.slots(0), test.slots(2)), (vec![first, second], vec![first]));
    assert!(test.idle_jobs().is_empty());
    assert_eq!(test.idle(first, [2], false), 0);
    assert_eq!(test.idle(first, [1], true), 0);
    assert_eq!(test.idle(first, [2], true), 1);
    // Where it has ended it has nothing to do.
    test.idle(first, [1], false);
    assert_eq!(timetables(&test.report(Report::Freed { job: first, nodes: set([1]) })), 1);
    assert_eq!(test.idle_jobs(), [first]);
    test.report(Report::Freed { job: first, nodes: set([0, 2]) });
    assert_eq!(test.state(first), JobState::Ended(Outcome::Success));
    assert!(test.idle_jobs().is_empty());
    assert_eq!(test.idle(first, [0], true), 0, "over");
}

#[test]
fn what_is_not_known_counts_as_something_to_do() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    test.idle(job, [0, 1], true);
    assert_eq!(test.idle_jobs(), [job]);
    // A node leaves, and comes back with the job.
    let actions = test.event(HeadEvent::Child(LINK, Up::Report(Report::Detached(set([1])))));
    assert_eq!(timetables(&actions), 1);
    assert!(test.idle_jobs().is_empty());
    let back = |attachment| {
        let path = vec![Hop { incarnation: 1, attachment }];
        NodeDescription { jobs: vec![(job, vec![1])], path, ..description(1) }
    };
    test.report(Report::Attached(vec![back(1)]));
    assert!(test.idle_jobs().is_empty());
    test.idle(job, [1], true);
    assert_eq!(test.idle_jobs(), [job]);
    // It attaches by another way; what it said on the old one comes late.
    let other = LinkId(9);
    test.event(HeadEvent::ChildUp(other));
    test.event(HeadEvent::Child(other, Up::Report(Report::Attached(vec![back(2)]))));
    assert!(test.idle_jobs().is_empty());
    assert_eq!(test.idle(job, [1], true), 0);
    assert!(test.idle_jobs().is_empty());
    let report = Report::Idle(IdleReport { job, nodes: set([1]), idle: true });
    test.event(HeadEvent::Child(other, Up::Report(report)));
    assert_eq!(test.idle_jobs(), [job]);
}

#[test]
fn another_policy_and_another_mode_keep_it_out() {
    let mut test = Test::new(2);
    let (job, other) = (test.running(1, 2), test.running(2, 2));
    test.idle(job, [0, 1], true);
    for name in ["matrix", "dqt:ff"] {
        let policy = Some(name.into());
        test.ask(&OWNER, ClientRequest::Configure { mode: None, slice: None, policy });
        assert_eq!((test.slots(0), test.idle_jobs()), (vec![other], &[job][..]), "{name}");
    }
    test.idle(job, [0], false);
    assert_eq!(test.slots(1), [job, other]);
    // A idle job ends like any other.
    test.idle(job, [0], true);
    test.ask(&ALICE, ClientRequest::Kill { job, grace_ns: 0 });
    assert!(test.idle_jobs().is_empty());
    assert_eq!(test.slots(0), [other]);
    // A head that starts anew has all of them take their turns.
    test.idle(other, [0, 1], true);
    assert_eq!(test.idle_jobs(), [other]);
    test.head = Head::new(config(2), test.records.clone(), [1; 32]).expect("a policy");
    test.event(HeadEvent::ChildUp(LINK));
    assert!(test.idle_jobs().is_empty());
    assert_eq!(test.slots(1), [other]);
}
