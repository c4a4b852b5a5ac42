//! Distributed hierarchical control: what a round keeps busy, and that nobody is left out.

use kumi_sched::registry::{Limits, by_name};
use kumi_sched::{ClusterTime, JobId, NodeId, Policy, Request};

const NOW: ClusterTime = ClusterTime(0);

fn machine(name: &str, nodes: u32) -> Box<dyn Policy + Send> {
    let mut policy = by_name(name, Limits::default()).unwrap();
    (0..nodes).for_each(|node| policy.add_node(NodeId(node)));
    policy
}

fn start(policy: &mut dyn Policy, job: u64, nodes: u32) -> Vec<u32> {
    policy.arrive(&Request::new(JobId(job), nodes), NOW).unwrap();
    let placement = policy.next_placement(NOW).expect("no limit");
    policy.set_active(JobId(job), true);
    placement.nodes.into_iter().map(|node| node.0).collect()
}

/// The part of nodes and slots of a round in which a node has a job.
fn utilisation(policy: &dyn Policy, nodes: u32) -> f64 {
    let columns = policy.columns();
    let cycle = columns[0].slots.len();
    let busy: usize = columns.iter().map(|column| column.slots.iter().flatten().count()).sum();
    busy as f64 / (cycle * nodes as usize) as f64
}

/// What a round keeps busy by the one slot that each job is owed, and by all slots.
///
/// Jobs are known beforehand, so the largest are placed first; how many of each size is given.
fn offline(name: &str, nodes: u32, jobs_of: impl Fn(u32) -> u32) -> (f64, f64) {
    let mut policy = machine(name, nodes);
    let sizes = (1..=nodes).rev().flat_map(|size| (0..jobs_of(size)).map(move |_| size));
    let mut owed = 0;
    for (job, size) in sizes.enumerate() {
        start(&mut *policy, job as u64, size);
        owed += size;
    }
    let cycle = policy.columns()[0].slots.len();
    (f64::from(owed) / (cycle as f64 * f64::from(nodes)), utilisation(&*policy, nodes))
}

/// Sizes of 1 to the whole machine. Rounding up to powers of two leaves three quarters of what is
/// given to jobs of equally frequent sizes, and 1/(2 ln 2) where a size is the rarer the larger it
/// is; disabling selectively leaves 80 % and about 90 %. Beyond that, slots of a round in which a
/// part of the machine has nothing to do are given to its jobs as well.
#[test]
fn what_is_known_of_rounds_whose_jobs_are_known_beforehand() {
    let nodes = 64;
    let rarer = |size: u32| (2 * nodes + size / 2) / size;
    for (name, uniform, inverse) in [("dhc:no-disabling", 0.75, 0.72), ("dhc", 0.8, 0.9)] {
        for (bound, (owed, all)) in
            [(uniform, offline(name, nodes, |_| 2)), (inverse, offline(name, nodes, rarer))]
        {
            eprintln!("{name}: {owed:.3} for {bound}, in all {all:.3}");
            assert!((owed - bound).abs() < 0.03, "{name}: {owed} for {bound}");
            assert!(all >= owed);
        }
    }
}
