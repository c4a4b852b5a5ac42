//! Published timetables are bounded, and every job has a turn in them.

use std::collections::{BTreeMap, BTreeSet};

use kumi_sched::registry::{Limits, by_name, names};
use kumi_sched::{
    ClusterTime, JobId, NodeResources, Placement, Policy, ProcessorColumn, ProcessorId, Request,
    Sharing, UserId,
};

const NOW: ClusterTime = ClusterTime(0);
/// All columns of a timetable together.
const CELLS: usize = 1 << 20;

/// A sequence of numbers that looks random and is always the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn cluster(name: &str, nodes: u32, jobs_per_processor: u32) -> Box<dyn Policy + Send> {
    let mut policy =
        by_name(name, Limits::of_cluster(nodes, jobs_per_processor)).expect("a policy");
    (0..nodes).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
    policy
}

/// Places what can be placed of so many jobs of all sizes and of many priorities and users.
fn filled(policy: &mut dyn Policy, nodes: u32, jobs: u64, dice: &mut Dice) -> Vec<Placement> {
    for job in 0..jobs {
        let most = nodes >> dice.below(u64::from(nodes.ilog2()) + 1);
        let request = Request {
            user: UserId(dice.below(3) as u32),
            priority: 1 + dice.below(100) as u16,
            ..Request::new(JobId(u64::MAX - job), 1 + dice.below(u64::from(most)) as u32)
        };
        policy.arrive(&request, NOW).expect("taken");
    }
    let placed: Vec<Placement> = std::iter::from_fn(|| policy.next_placement(NOW)).collect();
    placed.iter().for_each(|placement| policy.set_active(placement.job, true));
    placed
}

/// Each job has a slot, on all of its nodes, and never on only some of them.
fn all_have_turns(columns: &[ProcessorColumn], placed: &[Placement], name: &str) {
    let by_node: BTreeMap<ProcessorId, &ProcessorColumn> =
        columns.iter().map(|c| (c.processor, c)).collect();
    let length = columns[0].slots.len();
    assert!(columns.len() * length <= CELLS, "{name}: {} nodes, {length} slots", columns.len());
    for Placement { job, processors: nodes } in placed {
        let slots = |node: &ProcessorId| -> Vec<usize> {
            let column = &by_node[node].slots;
            (0..length).filter(|&slot| column[slot] == Some(*job)).collect()
        };
        let first = slots(&nodes[0]);
        assert!(!first.is_empty(), "{name}: job {job} has no turn");
        assert!(nodes.iter().all(|node| slots(node) == first), "{name}: job {job} is torn apart");
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn the_timetable_of_the_largest_cluster_is_bounded_and_has_everybody() {
    let (nodes, jobs) = (4096, 200);
    let families = ["dqt", "fair-dqt", "dqt4:max", "dqt+shares", "matrix", "dhc"];
    for name in families {
        let mut policy = cluster(name, nodes, 16);
        let placed = filled(&mut *policy, nodes, jobs, &mut Dice(7));
        assert!(placed.len() > 60, "{name}: {}", placed.len());
        all_have_turns(&policy.columns(), &placed, name);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn rounds_that_are_too_long_are_shortened_and_nobody_is_left_out() {
    for (name, _) in names() {
        for seed in 1..20 {
            let limits = Limits { jobs_per_processor: 8, slots: 32, ..Limits::default() };
            let mut policy = by_name(name, limits).expect("a policy");
            if policy.sharing() == Sharing::Space {
                continue;
            }
            (0..16).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
            let placed = filled(&mut *policy, 16, 60, &mut Dice(seed));
            let columns = policy.columns();
            assert!(columns[0].slots.len() <= 32, "{name}: {}", columns[0].slots.len());
            all_have_turns(&columns, &placed, name);
            // Whoever is next in the policy is so in the timetable too.
            let mut first: BTreeSet<JobId> = BTreeSet::new();
            policy.run_slot(&mut |job| assert!(first.insert(job), "twice in a slot"));
            let begins = columns.iter().filter_map(|column| column.slots[0]);
            assert!(begins.into_iter().any(|job| first.contains(&job)), "{name}");
        }
    }
}

/// As after a change from a policy that takes any nodes: most lie across the whole tree.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn jobs_placed_by_another_policy_fit_too() {
    let nodes = 1024;
    for name in ["dqt", "fair-dqt+shares"] {
        let mut policy = cluster(name, nodes, 16);
        let mut placed = Vec::new();
        for (job, first) in (0..nodes / 2).zip((0..nodes / 2).map(|at| at * 2 % 512)) {
            let apart = [ProcessorId(first), ProcessorId(first + 512)];
            let (job, request) =
                (JobId(job.into()), Request { priority: 9, ..Request::new(JobId(job.into()), 2) });
            policy.restore(&request, &apart, NOW).expect("taken back");
            policy.set_active(job, true);
            placed.push(Placement { job, processors: apart.to_vec() });
        }
        let columns = policy.columns();
        all_have_turns(&columns, &placed, name);
        // Timetables begin with who is next in the tree, and that is everybody in time.
        let mut firsts = BTreeSet::new();
        for _ in 0..9 * placed.len() {
            policy.run_slot(&mut |job| {
                firsts.insert(job);
            });
        }
        assert_eq!(firsts.len(), placed.len(), "{name}");
    }
}

#[test]
fn a_large_cluster_has_fewer_jobs_on_a_node() {
    let of = |nodes, jobs| {
        let Limits { jobs_per_processor, slots, .. } = Limits::of_cluster(nodes, jobs);
        (jobs_per_processor, slots)
    };
    assert_eq!(of(4096, 16), (16, 256));
    assert_eq!(of(4096, 1024), (64, 256));
    assert_eq!(of(64, 1024), (1024, 16_384));
    assert_eq!(of(0, 0), (1, 1 << 20));
    assert_eq!(of(u32::MAX, 16), (1, 4));
}
