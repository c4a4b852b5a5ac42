//! The Distributed Queue Tree: the examples of the paper, and what a user would ask.

mod allocation;
mod properties;
mod reference;
mod speed;

use kumi_sched::{
    ArriveError, ClusterTime, Dqt, DqtConfig, DqtNameError, DqtState, JobId, NodeResources, Policy,
    ProcessorId, Request,
};

const NOW: ClusterTime = ClusterTime(0);

fn tree(name: &str, nodes: u32) -> Dqt {
    let mut policy = Dqt::new(name.parse().unwrap());
    (0..nodes).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
    policy
}

/// A job that has these nodes and runs.
fn at(policy: &mut Dqt, job: u64, nodes: std::ops::Range<u32>) {
    let nodes: Vec<ProcessorId> = nodes.map(ProcessorId).collect();
    policy.restore(&Request::new(JobId(job), 0), &nodes, NOW).unwrap();
    policy.set_active(JobId(job), true);
}

fn slot(policy: &mut Dqt) -> Vec<u64> {
    let mut ran = Vec::new();
    policy.run_slot(&mut |job| ran.push(job.0));
    ran.sort_unstable();
    ran
}

fn slots(policy: &mut Dqt, count: usize) -> Vec<Vec<u64>> {
    (0..count).map(|_| slot(policy)).collect()
}

/// The tree of figure 7.1: job 10 i + j is the j-th in queue i.
fn figure_7_1() -> Dqt {
    let mut policy = tree("dqt", 4);
    let spans = [0..4, 0..2, 2..4, 0..1, 1..2, 2..3, 3..4];
    for (queue, (span, jobs)) in spans.into_iter().zip([2, 2, 1, 1, 2, 3, 2]).enumerate() {
        for job in 0..jobs {
            at(&mut policy, queue as u64 * 10 + job, span.clone());
        }
    }
    policy
}

/// Figure 7.2, which the paper gives for twelve slots; then it repeats.
#[test]
fn figure_7_2() {
    let mut policy = figure_7_1();
    let expected: [&[u64]; 12] = [
        &[0],
        &[1],
        &[10, 20],
        &[11, 50, 60],
        &[30, 40, 51, 61],
        &[30, 41, 52, 60],
        &[0],
        &[1],
        &[10, 20],
        &[11, 50, 61],
        &[30, 40, 51, 60],
        &[30, 41, 52, 61],
    ];
    let columns = policy.columns();
    let column = |node: usize| -> Vec<u64> {
        columns[node].slots.iter().map(|job| job.unwrap().0).collect()
    };
    assert_eq!(column(0), [0, 1, 10, 11, 30, 30, 0, 1, 10, 11, 30, 30]);
    assert_eq!(column(3), [0, 1, 20, 60, 61, 60, 0, 1, 20, 61, 60, 61]);
    assert_eq!(slots(&mut policy, 12), expected);
    assert_eq!(slots(&mut policy, 12), expected);
    assert_eq!(policy.columns(), columns);
}

/// The front as the numbers of the tree nodes that are on it.
fn front(policy: &Dqt) -> Vec<u32> {
    let tree = policy.tree();
    tree.iter().filter(|node| node.state == DqtState::Rounding).map(|node| node.number).collect()
}

/// Fronts before each of so many slots.
fn fronts(policy: &mut Dqt, count: usize) -> Vec<Vec<u32>> {
    let step = |_| {
        let before = front(policy);
        policy.advance(1);
        before
    };
    (0..count).map(step).collect()
}

/// One job in every queue of the left half of four leaves, none in the leaf queues of the right.
fn uneven(name: &str) -> Dqt {
    let mut policy = tree(name, 4);
    for (job, span) in [0..4, 0..2, 2..4, 0..1, 0..1, 1..2].into_iter().enumerate() {
        at(&mut policy, job as u64, span);
    }
    policy
}

/// Figure 7.4 (a): level at first; the lighter side gets to its leaves first and goes back up to
/// where the imbalance is, again and again, until the heavier side is through.
#[test]
fn figure_7_4_a_the_front_goes_up_and_down() {
    let mut policy = uneven("dqt");
    let round: [&[u32]; 4] = [&[0], &[1, 2], &[2, 3, 4], &[2, 3, 4]];
    assert_eq!(fronts(&mut policy, 8), [round, round].concat());
    // In the second slot on the leaves the job of leaf 1 runs again, and that of queue 2 all along.
    assert_eq!(slots(&mut policy, 4), [vec![0], vec![1, 2], vec![2, 3, 5], vec![2, 4, 5]]);
    let states =
        |policy: &Dqt| -> Vec<DqtState> { policy.tree().iter().map(|node| node.state).collect() };
    policy.advance(2);
    use DqtState::{Idle, Ready, Rounded, Rounding};
    assert_eq!(states(&policy), [Rounded, Rounded, Rounding, Rounding, Rounding, Idle, Idle]);
    policy.advance(2);
    assert_eq!(states(&policy), [Rounding, Ready, Ready, Ready, Ready, Idle, Idle]);
}

/// Figure 7.4 (b): in a Fair-DQT the lighter side waits.
#[test]
fn figure_7_4_b_the_fair_front_waits() {
    let mut policy = uneven("fair-dqt");
    let round: [&[u32]; 4] = [&[0], &[1, 2], &[3, 4], &[3]];
    assert_eq!(fronts(&mut policy, 8), [round, round].concat());
    assert_eq!(slots(&mut policy, 4), [vec![0], vec![1, 2], vec![3, 5], vec![4]]);
}

/// Figure 7.7 shows where assigned amounts lead; here every policy with the same queues.
#[test]
fn policies_differ_where_they_should() {
    // Left: one leaf is busy, the other idle. Right: both leaves have one job.
    let place = |allocation: &str, spans: &[std::ops::Range<u32>]| {
        let mut policy = tree(&format!("dqt:{allocation}"), 4);
        for (job, span) in spans.iter().enumerate() {
            at(&mut policy, job as u64, span.clone());
        }
        policy.arrive(&Request::new(JobId(99), 1), NOW).unwrap();
        policy.next_placement(NOW).unwrap().processors[0].0
    };
    let spans = [0..1, 0..1, 2..3, 3..4];
    let chosen = ["max", "min", "apa", "ff", "ff-apa"].map(|allocation| place(allocation, &spans));
    assert_eq!(chosen, [2, 1, 1, 1, 1]);
    // A whole-half job on the left hides from FF that its leaves are busier.
    let spans = [0..2, 0..2, 2..3];
    let chosen = ["max", "min", "apa", "ff", "ff-apa"].map(|allocation| place(allocation, &spans));
    assert_eq!(chosen, [3, 3, 3, 0, 3]);
}

#[test]
fn machines_of_any_size() {
    let mut policy = tree("dqt", 6);
    let mut place = |job, wanted| {
        policy.arrive(&Request::new(JobId(job), wanted), NOW).unwrap();
        let placement = policy.next_placement(NOW)?;
        policy.set_active(placement.job, true);
        Some(placement.processors.iter().map(|node| node.0).collect::<Vec<_>>())
    };
    assert_eq!(place(1, 6), Some(vec![0, 1, 2, 3, 4, 5]));
    assert_eq!(place(2, 3), Some(vec![0, 1, 2]), "the right half has two nodes only");
    assert_eq!(place(3, 2), Some(vec![4, 5]), "equal queues, and the right has less to do");
    assert_eq!(place(4, 7), None);
    assert_eq!(place(5, 1), Some(vec![0]), "job 4 could never run, so it holds up nobody");
}

#[test]
fn a_node_that_is_down_makes_partitions_smaller() {
    let mut policy = tree("dqt", 4);
    policy.remove_node(ProcessorId(1));
    policy.arrive(&Request::new(JobId(1), 2), NOW).unwrap();
    assert_eq!(policy.next_placement(NOW).unwrap().processors, [ProcessorId(2), ProcessorId(3)]);
    policy.arrive(&Request::new(JobId(2), 3), NOW).unwrap();
    assert_eq!(
        policy.next_placement(NOW).unwrap().processors,
        [ProcessorId(0), ProcessorId(2), ProcessorId(3)]
    );
    assert_eq!(policy.fragmentation().unused, 0);
    policy.add_node(&NodeResources::single(ProcessorId(1)));
    assert_eq!((policy.fragmentation().used, policy.fragmentation().unused), (5, 1));
}

#[test]
fn priority_is_a_lower_bound() {
    let mut policy = tree("dqt", 2);
    at(&mut policy, 1, 0..2);
    let request = Request { priority: 3, ..Request::new(JobId(2), 0) };
    policy.restore(&request, &[ProcessorId(0)], NOW).unwrap();
    policy.set_active(JobId(2), true);
    at(&mut policy, 3, 1..2);
    policy.advance(1);
    // Job 3 asks for one turn and runs beside job 2.
    assert_eq!(slots(&mut policy, 4), [vec![2, 3], vec![2, 3], vec![2, 3], vec![1]]);
}

#[test]
fn names() {
    let read = |name: &str| name.parse::<DqtConfig>();
    for name in ["dqt:ff-apa", "fair-dqt:max", "dqt4:min+migrate", "dqt:apa+migrate+shares"] {
        assert_eq!(read(name).unwrap().to_string(), name);
    }
    assert_eq!(read("dqt"), Ok(DqtConfig::default()));
    assert_eq!(read("fair-dqt3+shares").unwrap().to_string(), "fair-dqt3:ff-apa+shares");
    for wrong in ["easy", "fair-", "dqtx", "dqt1", "dqt65", "dqt+4", "dqt:", "dqt:best", "dqt+fast"]
    {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    assert_eq!(read("dqt+migrate+migrate"), Err(DqtNameError::Suffix));
    assert_eq!(read("dqt99:ff"), Err(DqtNameError::Arity));
}

#[test]
fn refusals() {
    let mut policy = tree("dqt", 2);
    let none = Request::new(JobId(1), 0);
    assert_eq!(policy.arrive(&none, NOW), Err(ArriveError::NoProcessors(JobId(1))));
    assert_eq!(policy.restore(&none, &[], NOW), Err(ArriveError::NoProcessors(JobId(1))));
    policy.arrive(&Request::new(JobId(1), 2), NOW).unwrap();
    assert_eq!(policy.restore(&none, &[ProcessorId(0)], NOW), Err(ArriveError::Known(JobId(1))));
    policy.leave(JobId(1), NOW);
    assert!(policy.queued().is_empty() && policy.columns().is_empty());
    policy.leave(JobId(7), NOW);
    policy.set_active(JobId(7), true);
    policy.remove_node(ProcessorId(700));
}
