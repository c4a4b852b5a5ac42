//! The Distributed Queue Tree: the examples of the paper, and what a user would ask.

use kumi_sched::{ClusterTime, Dqt, JobId, NodeId, Policy, Request};

const NOW: ClusterTime = ClusterTime(0);

fn tree(name: &str, nodes: u32) -> Dqt {
    let mut policy = Dqt::new(name.parse().unwrap());
    (0..nodes).for_each(|node| policy.add_node(NodeId(node)));
    policy
}

/// A job that has these nodes and runs.
fn at(policy: &mut Dqt, job: u64, nodes: std::ops::Range<u32>) {
    let nodes: Vec<NodeId> = nodes.map(NodeId).collect();
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
