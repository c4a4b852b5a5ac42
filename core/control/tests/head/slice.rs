//! Slices that the head chooses for the jobs that take turns.

use super::*;
use kumi_control::message::ClusterStatus;

/// How far ahead timetables start, so that all nodes have them by then.
const LEAD: u64 = 2 * MS;

fn automatic(nodes: u32) -> Test {
    let slice = SliceLength::Auto;
    Test::attached(HeadConfig { slice, max_jobs_per_processor: 16, ..config(nodes) })
}

/// The timetables that go out, with the nodes that get them.
fn timetables(actions: &[HeadAction]) -> Vec<(&NodeSet, &Timetable)> {
    let sent = commands(actions).into_iter();
    sent.filter_map(|(nodes, command)| match command {
        Command::Timetable(timetable) => Some((nodes, timetable)),
        _ => None,
    })
    .collect()
}

fn slice_ms(test: &Test) -> u64 {
    assert_eq!(test.head.timetable().slice_ns % MS, 0);
    test.head.timetable().slice_ns / MS
}

fn stir(test: &mut Test, job: JobId, idle: bool) -> Vec<HeadAction> {
    test.report(Report::Idle(IdleReport { job, nodes: set([0, 1]), idle }))
}

fn configure(test: &mut Test, slice: SliceLength) -> Vec<HeadAction> {
    let configure = ClientRequest::Configure { mode: None, slice: Some(slice), policy: None };
    test.ask(&OWNER, configure)
}

fn status(test: &mut Test) -> ClusterStatus {
    match &test.ask(&ALICE, ClientRequest::Cluster)[..] {
        [HeadAction::ToClient(_, ClientReply::Cluster(status))] => status.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn slices_follow_the_number_of_jobs() {
    let mut test = automatic(2);
    let (mut jobs, mut slices) = (Vec::new(), Vec::new());
    for token in 1..=6 {
        let (job, _) = test.submit(request(token, 2, Some(2)));
        let actions = test.prepare(job, [(0, 1), (1, 1)]);
        let [(nodes, timetable)] = timetables(&actions)[..] else { panic!("{actions:?}") };
        assert_eq!(*nodes, set([0, 1]), "every node gets it");
        assert_eq!(timetable.start, ClusterTime(test.now + LEAD), "and in time");
        assert_eq!(timetable.slice_ns, test.head.timetable().slice_ns);
        slices.push(slice_ms(&test));
        jobs.push(job);
        test.advance(1_234 * MS);
    }
    assert_eq!(slices, [100, 100, 66, 50, 50, 33], "40 ms instead of 50 are no change");
    slices.clear();
    for job in jobs {
        let actions = test.report(Report::Freed { job, nodes: set([0, 1]) });
        assert_eq!(timetables(&actions).len(), 1);
        slices.push(slice_ms(&test));
    }
    assert_eq!(slices, [33, 50, 66, 100, 100, 100]);
}

#[test]
fn a_job_that_somebody_works_with_makes_rounds_short_for_a_while() {
    let mut test = automatic(2);
    let [first, second, editor] = [1, 2, 3].map(|token| test.running(token, 2));
    assert_eq!(slice_ms(&test), 66);
    stir(&mut test, editor, true);
    assert_eq!(slice_ms(&test), 100, "two take turns");
    test.advance(60_000 * MS);
    assert_eq!(timetables(&stir(&mut test, editor, false)).len(), 1);
    assert_eq!(slice_ms(&test), 33);
    assert!(timetables(&test.advance(20_000 * MS)).is_empty());
    stir(&mut test, editor, true);
    assert_eq!(slice_ms(&test), 100, "nobody waits for these");
    assert!(timetables(&test.advance(60_000 * MS)).is_empty());
    stir(&mut test, editor, false);
    assert_eq!(slice_ms(&test), 33);
    // It computes for long now.
    let generation = test.head.timetable().generation;
    let actions = test.advance(100_000 * MS);
    let [(_, timetable)] = timetables(&actions)[..] else { panic!("{actions:?}") };
    assert!(timetable.generation > generation);
    assert_eq!((timetable.slice_ns, timetable.cycle()), (66 * MS, 3));
    // The last one is nobody's but its own.
    stir(&mut test, editor, true);
    stir(&mut test, editor, false);
    for job in [first, second] {
        test.report(Report::Freed { job, nodes: set([0, 1]) });
    }
    assert_eq!(slice_ms(&test), 100);
}

#[test]
fn a_node_that_comes_back_makes_no_job_interactive() {
    let mut test = automatic(2);
    let [.., job] = [1, 2, 3].map(|token| test.running(token, 2));
    stir(&mut test, job, true);
    assert_eq!(slice_ms(&test), 100);
    test.report(Report::Detached(set([1])));
    assert_eq!(test.head.timetable().cycle(), 3, "what is not known counts as busy");
    assert_eq!(slice_ms(&test), 66);
}

#[test]
fn a_slice_that_is_set_stays_until_another_is() {
    let mut test = automatic(2);
    let before = [1, 2, 3].map(|token| test.running(token, 2));
    assert_eq!((status(&mut test).slice, slice_ms(&test)), (SliceLength::Auto, 66));
    let fixed = SliceLength::Fixed(5 * MS);
    assert_eq!(timetables(&configure(&mut test, fixed)).len(), 1);
    let said = status(&mut test);
    assert_eq!((said.slice, said.timetable.slice_ns), (fixed, 5 * MS));
    test.running(4, 2);
    stir(&mut test, before[0], true);
    stir(&mut test, before[0], false);
    assert_eq!(slice_ms(&test), 5);
    assert!(timetables(&test.advance(100_000 * MS)).is_empty(), "nobody is interactive any more");
    assert_eq!(timetables(&configure(&mut test, SliceLength::Auto)).len(), 1);
    let said = status(&mut test);
    assert_eq!((said.slice, said.timetable.slice_ns), (SliceLength::Auto, 50 * MS));
    assert!(timetables(&configure(&mut test, SliceLength::Auto)).is_empty(), "as it was");
}

/// Slices change with each of the changes, and each change comes within a slice.
#[test]
fn changes_that_come_quickly_keep_nobody_from_its_turn() {
    let mut test = automatic(2);
    let jobs = [1, 2, 3, 4].map(|token| test.running(token, 2));
    let mut had = [0_u64; 4];
    let mut slices = std::collections::BTreeSet::new();
    for step in 0..400 {
        stir(&mut test, jobs[3], step % 2 == 0);
        slices.insert(slice_ms(&test));
        let timetable = test.head.timetable();
        let from = timetable.start.0;
        for time in (from..from + 10 * MS).step_by(1_000_000) {
            let tick = timetable.tick_at(ClusterTime(time));
            for job in timetable.jobs_at(NodeId(0), tick) {
                had[jobs.iter().position(|known| known == job).expect("known")] += 1;
            }
        }
        test.advance(10 * MS);
    }
    assert_eq!(Vec::from_iter(slices), [25, 66]);
    // 4 s; a third of them is 1,333 ms.
    assert!(had[..3].iter().all(|&ms| ms > 600), "{had:?}");
}
