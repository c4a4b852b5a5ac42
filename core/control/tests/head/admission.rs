//! Bounds of what a job may ask for: the largest that is taken, and the first that is refused.

use super::*;
use kumi_control::message::{LONGEST_ESTIMATE, MOST_PRIORITY};

/// Why a head with four nodes refuses this job of Alice's, if it does.
fn refused(user: &User, change: impl FnOnce(&mut JobRequest)) -> Option<RefusalKind> {
    let mut wanted = request(1, 4, None);
    change(&mut wanted);
    refusal(&Test::new(4).ask(user, ClientRequest::Submit(Box::new(wanted))))
}

#[test]
fn as_many_nodes_as_there_are_and_as_ranks() {
    assert_eq!(refused(&ALICE, |r| (r.ranks, r.nodes) = (4, Some(4))), None);
    assert_eq!(refused(&ALICE, |r| (r.ranks, r.nodes) = (1, Some(1))), None);
    assert_eq!(refused(&ALICE, |r| (r.ranks, r.nodes) = (32, Some(4))), None);
    // Eight ranks fit a node.
    assert_eq!(refused(&ALICE, |r| (r.ranks, r.nodes) = (16, Some(2))), None);
    let large = Some(RefusalKind::TooLarge);
    assert_eq!(refused(&ALICE, |r| (r.ranks, r.nodes) = (9, Some(1))), large);
    let bad = Some(RefusalKind::BadRequest);
    assert_eq!(refused(&ALICE, |r| (r.ranks, r.nodes) = (3, Some(4))), bad);
}

#[test]
fn texts_may_have_half_a_megabyte_together() {
    // The name, the directory, the path, an argument with its zero, a variable with its zero and its sign.
    let with = |last: usize| {
        move |r: &mut JobRequest| {
            r.name = "n".repeat(1_000);
            r.cwd = format!("/{}", "d".repeat(99));
            r.program.path = format!("/{}", "p".repeat(199));
            r.args = vec!["a".repeat(299)];
            r.env = vec![("E".repeat(40), "x".repeat(last))];
        }
    };
    let others = 1_000 + 100 + 200 + 300 + 40 + 2;
    assert_eq!(refused(&ALICE, with((512 << 10) - others)), None);
    assert_eq!(refused(&ALICE, with((512 << 10) - others + 1)), Some(RefusalKind::BadRequest));
}

#[test]
fn no_text_has_a_zero_byte() {
    let bad = Some(RefusalKind::BadRequest);
    assert_eq!(refused(&ALICE, |r| r.cwd = "/a\0b".into()), bad);
    assert_eq!(refused(&ALICE, |r| r.program.path = "/a\0b".into()), bad);
    assert_eq!(refused(&ALICE, |r| r.env = vec![("A\0".into(), "b".into())]), bad);
    assert_eq!(refused(&ALICE, |r| r.env = vec![("A".into(), "b\0".into())]), bad);
    assert_eq!(refused(&ALICE, |r| r.env = vec![("A".into(), String::new())]), None);
}

#[test]
fn priorities_and_estimates_have_bounds() {
    let bad = Some(RefusalKind::BadRequest);
    for (user, priority, expected) in [
        (&ALICE, 1, None),
        (&ALICE, 4, None),
        (&ALICE, 5, Some(RefusalKind::NotPermitted)),
        (&OWNER, MOST_PRIORITY, None),
        (&OWNER, MOST_PRIORITY + 1, bad),
    ] {
        assert_eq!(refused(user, |r| r.priority = priority), expected, "{priority}");
    }
    for (estimate, expected) in
        [(0, bad), (1, None), (LONGEST_ESTIMATE, None), (LONGEST_ESTIMATE + 1, bad)]
    {
        assert_eq!(refused(&ALICE, |r| r.estimate_ns = Some(estimate)), expected, "{estimate}");
    }
    // A cluster that permits priorities up to 0 permits ordinary jobs all the same.
    let mut test = Test::attached(HeadConfig { max_priority: 0, ..config(1) });
    let mut wish = |priority| {
        let wanted = JobRequest { priority, ..request(u128::from(priority), 1, None) };
        refusal(&test.ask(&ALICE, ClientRequest::Submit(Box::new(wanted))))
    };
    assert_eq!((wish(1), wish(2)), (None, Some(RefusalKind::NotPermitted)));
}

/// A job that leaves the number of nodes open gets as many as have a processor for each rank, of which a node has two.
#[test]
fn as_many_nodes_as_ranks_need() {
    for (ranks, nodes) in [(1, 1), (2, 1), (3, 2), (4, 2), (7, 4), (8, 4), (9, 4), (32, 4)] {
        let mut test = Test::with_processors(config(4), &[2; 4]);
        let (job, _) = test.submit(request(1, ranks, None));
        let record = test.head.records().find(|record| record.spec.job == job).expect("known");
        let layout = &record.spec.layout;
        assert_eq!(layout.len(), nodes, "{ranks} ranks");
        // In blocks, the first nodes with one more.
        let mut first = 0;
        for (index, part) in layout.iter().enumerate() {
            let more = u32::from((index as u32) < ranks % nodes as u32);
            assert_eq!((part.first, part.count), (first, ranks / nodes as u32 + more));
            first += part.count;
        }
        assert_eq!(first, ranks);
    }
}
