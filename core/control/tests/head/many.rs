//! Many jobs and many nodes: what an event costs, counted.

use super::*;

const NODES: u32 = 1_000;
const JOBS: u32 = 9_000;

/// How much the head looked at during what the test does.
fn considered(test: &mut Test, what: impl FnOnce(&mut Test)) -> u64 {
    let before = test.head.considered();
    what(test);
    test.head.considered() - before
}

#[test]
fn a_submission_does_not_look_at_those_that_wait_nor_at_the_nodes() {
    let mut test = Test::new(NODES);
    // Two run, the others wait for all nodes, or for as many as have a processor for each rank.
    for number in 0..JOBS {
        let nodes = (number % 2 == 0).then_some(NODES);
        let looks = considered(&mut test, |test| {
            test.submit(request(u128::from(number), NODES * 2, nodes));
        });
        assert_eq!(looks, 1, "job {number}");
    }
    // Until now nodes might have been missing because they had not come yet.
    test.advance(5_000 * MS);
    let (all, waiting) = (u64::from(NODES), u64::from(JOBS) - 2);
    let detached = |test: &mut Test| drop(test.report(Report::Detached(set([7]))));
    assert_eq!(considered(&mut test, detached), 0, "it has its grace");
    // One is missing: those that left their number open now want one node less, and queue again.
    let lost = considered(&mut test, |test| drop(test.advance(1_100 * MS)));
    assert_eq!(lost, waiting + waiting);
    let back = |test: &mut Test| drop(test.report(Report::Attached(vec![description(7)])));
    assert_eq!(considered(&mut test, back), all + waiting + waiting);
    // Heard of again, but nothing is new.
    let again = |test: &mut Test| drop(test.report(Report::Attached(vec![description(7)])));
    assert_eq!(considered(&mut test, again), all + waiting);
    let timeout = |test: &mut Test| drop(test.event(HeadEvent::Timeout));
    assert_eq!(considered(&mut test, timeout), 0);
}
