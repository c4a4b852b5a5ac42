//! What jobs have used, as nodes say it and as the record has it.

use super::*;
use kumi_control::message::{PartUse, UseReport};

fn part(used_us: u64, memory: Option<u64>) -> PartUse {
    PartUse { turns_us: 10 * used_us, used_us, memory }
}

impl Test {
    fn used(&mut self, job: JobId, nodes: &[(u32, PartUse)]) {
        let nodes = nodes.iter().map(|&(node, used)| (NodeId(node), used)).collect();
        assert!(self.report(Report::Used(UseReport { job, nodes })).is_empty());
    }

    fn record(&self, job: JobId) -> &JobRecord {
        self.records.iter().find(|record| record.spec.job == job).expect("a record")
    }
}

#[test]
fn the_record_of_a_job_that_is_over_says_what_it_has_used() {
    let mut test = Test::new(3);
    let job = test.running(1, 2);
    test.used(job, &[(0, part(5, None)), (2, part(1_000, None))]);
    test.used(job, &[(1, part(7, Some(9)))]);
    let so_far = test.head.usage_so_far();
    let [usage] = &so_far[..] else { panic!("{so_far:?}") };
    assert_eq!((usage.job, usage.uid, usage.ended_ms), (job, ALICE.uid, None));
    assert_eq!((usage.used.processors, usage.used.nodes), (2, 2), "node 2 has no part of it");
    assert_eq!(usage.used.measured, PartUse { turns_us: 120, used_us: 12, memory: Some(9) });
    // What nodes say later counts in the place of what they said before.
    test.used(job, &[(0, part(6, Some(1)))]);
    // A former parent of that node repeats what it had heard.
    test.used(job, &[(0, part(5, None))]);
    test.report(Report::Freed { job, nodes: set(0..2) });
    assert!(test.head.usage_so_far().is_empty());
    let record = test.record(job);
    assert_eq!(record.state, JobState::Ended(Outcome::Success));
    assert_eq!(record.used.measured, PartUse { turns_us: 130, used_us: 13, memory: Some(10) });
    // Said again by a node that missed that it is over.
    let before = record.used;
    test.used(job, &[(0, part(100, None))]);
    assert_eq!(test.head.records().next().expect("known").used, before);
}

/// Nodes repeat what they have said, and no head adds it twice.
#[test]
fn a_restart_of_the_head_counts_nothing_twice() {
    let mut test = Test::new(2);
    let job = test.running(1, 2);
    test.used(job, &[(0, part(5, None)), (1, part(7, None))]);
    let mut next = Test {
        head: Head::new(config(2), test.records.clone(), [2; 32]).expect("a policy"),
        now: test.now,
        records: test.records.clone(),
    };
    next.event(HeadEvent::ChildUp(LINK));
    let jobs = |node| vec![(job, vec![node])];
    let nodes =
        [0, 1].map(|node| NodeDescription { jobs: jobs(node), ..description(node) }).to_vec();
    next.report(Report::Attached(nodes));
    for _ in 0..2 {
        next.used(job, &[(0, part(5, None)), (1, part(8, None))]);
    }
    next.report(Report::Freed { job, nodes: set(0..2) });
    let used = next.record(job).used;
    assert_eq!((used.measured.used_us, used.nodes, used.processors), (13, 2, 2));
}

#[test]
fn a_job_that_never_started_has_used_nothing() {
    let mut test = Test::new(1);
    let (job, _) = test.submit(request(1, 1, Some(1)));
    let refusal = Refusal { kind: RefusalKind::NotFound, message: "no program".into() };
    let nodes = vec![PreparedNode { node: NodeId(0), result: Err(refusal) }];
    test.report(Report::Prepared { job, nodes });
    test.report(Report::Freed { job, nodes: set([0]) });
    let record = test.record(job);
    assert!(matches!(record.state, JobState::Ended(Outcome::Refused(_))));
    assert_eq!((record.started_ms, record.used.measured), (None, PartUse::default()));
}
