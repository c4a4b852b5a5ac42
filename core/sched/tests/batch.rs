//! Rules for all policies of these families under any events, and the order of jobs in each policy.

use std::collections::{BTreeMap, BTreeSet};

use kumi_sched::registry::{Limits, by_name};
use kumi_sched::{
    ArriveError, ClusterTime, JobId, NodeResources, Policy, ProcessorColumn, ProcessorId, Request,
    Sharing,
};
use proptest::prelude::*;

const NAMES: [&str; 10] = [
    "fcfs",
    "fcfs-bb",
    "first-fit",
    "easy",
    "conservative",
    "scan",
    "scan-up",
    "scan-down",
    "dhc",
    "dhc:no-disabling",
];
/// Most jobs on a node, for those that share time.
const LIMIT: u32 = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Nodes and estimate.
    Arrive(u32, u64),
    Restore(Vec<u32>, Option<u64>),
    /// The placed or queued job of this index (modulo their number) leaves.
    Leave(usize),
    NodeDown(u32),
    NodeUp(u32),
    Active(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..=20u32, 0..20u64).prop_map(|(nodes, estimate)| Step::Arrive(nodes, estimate)),
        1 => (prop::collection::vec(0..24u32, 1..4), prop::option::of(0..20u64))
            .prop_map(|(nodes, estimate)| Step::Restore(nodes, estimate)),
        6 => any::<usize>().prop_map(Step::Leave),
        1 => (0..20u32).prop_map(Step::NodeDown),
        2 => (0..20u32).prop_map(Step::NodeUp),
        1 => any::<usize>().prop_map(Step::Active),
        4 => (0..15u64).prop_map(Step::Pass),
    ]
}

/// A reference for a policy.
struct Model {
    name: &'static str,
    policy: Box<dyn Policy + Send>,
    now: u64,
    up: BTreeSet<ProcessorId>,
    placed: BTreeMap<JobId, BTreeSet<ProcessorId>>,
    /// Blocks of jobs in buddy partitions.
    blocks: BTreeMap<JobId, BTreeSet<ProcessorId>>,
    active: BTreeSet<JobId>,
    /// In order of arrival.
    queue: Vec<(JobId, u32)>,
    next: u64,
    restored: bool,
}

impl Model {
    fn new(name: &'static str, nodes: u32) -> Self {
        let mut policy =
            by_name(name, Limits { jobs_per_processor: LIMIT, ..Limits::default() }).unwrap();
        (0..nodes).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
        Self {
            name,
            policy,
            now: 0,
            up: (0..nodes).map(ProcessorId).collect(),
            placed: BTreeMap::new(),
            blocks: BTreeMap::new(),
            active: BTreeSet::new(),
            queue: Vec::new(),
            next: 0,
            restored: false,
        }
    }

    fn time(&self) -> ClusterTime {
        ClusterTime(self.now)
    }

    fn apply(&mut self, step: &Step) {
        let now = self.time();
        self.next += 1;
        let job = JobId(self.next);
        match step {
            Step::Arrive(nodes, estimate) => {
                let request = Request { estimate_ns: Some(*estimate), ..Request::new(job, *nodes) };
                self.policy.arrive(&request, now).unwrap();
                assert_eq!(self.policy.arrive(&request, now), Err(ArriveError::Known(job)));
                self.queue.push((job, *nodes));
            }
            Step::Restore(nodes, estimate) => {
                let nodes: Vec<ProcessorId> = nodes.iter().copied().map(ProcessorId).collect();
                let request = Request { estimate_ns: *estimate, ..Request::new(job, 0) };
                self.policy.restore(&request, &nodes, now).unwrap();
                assert_eq!(
                    self.policy.restore(&request, &nodes, now),
                    Err(ArriveError::Known(job))
                );
                self.policy.set_active(job, true);
                self.active.insert(job);
                self.placed.insert(job, nodes.into_iter().collect());
                self.restored = true;
            }
            Step::Leave(index) => self.leave(*index),
            Step::NodeDown(node) => {
                self.policy.remove_node(ProcessorId(*node));
                self.up.remove(&ProcessorId(*node));
            }
            Step::NodeUp(node) => {
                self.policy.add_node(&NodeResources::single(ProcessorId(*node)));
                self.up.insert(ProcessorId(*node));
            }
            Step::Active(index) => {
                if let Some(&job) = self.placed.keys().nth(index % self.placed.len().max(1)) {
                    let active = !self.active.remove(&job);
                    if active {
                        self.active.insert(job);
                    }
                    self.policy.set_active(job, active);
                }
            }
            Step::Pass(time) => {
                self.now += time;
                self.policy.advance(*time);
            }
        }
    }

    fn leave(&mut self, index: usize) {
        let queued = self.queue.iter().map(|&(job, _)| job);
        let all: Vec<JobId> = self.placed.keys().copied().chain(queued).collect();
        let Some(&job) = all.get(index % all.len().max(1)) else { return };
        self.policy.leave(job, self.time());
        self.policy.leave(job, self.time());
        self.placed.remove(&job);
        self.blocks.remove(&job);
        self.active.remove(&job);
        self.queue.retain(|&(queued, _)| queued != job);
    }

    fn free(&self) -> usize {
        let held = |node: &&ProcessorId| !self.placed.values().any(|nodes| nodes.contains(node));
        self.up.iter().filter(held).count()
    }

    fn place(&mut self) {
        loop {
            let expected = self.expected();
            let Some(placement) = self.policy.next_placement(self.time()) else {
                assert!(expected.is_none_or(|job| job.is_none()), "{} lets wait", self.name);
                break;
            };
            let (job, nodes) = (placement.job, placement.processors);
            assert!(expected.is_none_or(|expected| expected == Some(job)), "{}", self.name);
            let index = self.queue.iter().position(|&(queued, _)| queued == job).expect("waits");
            let (_, wanted) = self.queue.remove(index);
            assert_eq!(nodes.len(), wanted as usize, "{}", self.name);
            assert!(nodes.is_sorted_by(|a, b| a < b));
            assert!(nodes.iter().all(|node| self.up.contains(node)), "{}: down", self.name);
            let nodes: BTreeSet<ProcessorId> = nodes.into_iter().collect();
            self.check_room(&nodes);
            if let Some((block, _)) = self.block_of(wanted, &nodes) {
                self.blocks.insert(job, block);
            }
            self.placed.insert(job, nodes);
            self.policy.set_active(job, true);
            self.active.insert(job);
        }
        let queued: BTreeSet<JobId> = self.policy.queued().into_iter().collect();
        assert_eq!(queued, self.queue.iter().map(|&(job, _)| job).collect());
    }

    /// A job that is placed has its nodes to itself, or as one of a limited number.
    fn check_room(&self, nodes: &BTreeSet<ProcessorId>) {
        let limit = match self.policy.sharing() {
            Sharing::Space => 1,
            Sharing::SpaceAndTime => LIMIT as usize,
        };
        for node in nodes {
            let others = self.placed.values().filter(|held| held.contains(node)).count();
            assert!(others < limit, "{}: node {node} has {others} jobs", self.name);
        }
    }

    /// The next job, for policies where a line or two can compute it.
    fn expected(&self) -> Option<Option<JobId>> {
        let free = self.free();
        let fits = |wanted: u32| wanted as usize <= free;
        let first = self.queue.iter().find(|&&(_, wanted)| wanted as usize <= self.up.len());
        let next = match self.name {
            "fcfs" => first.filter(|&&(_, wanted)| fits(wanted)),
            "first-fit" => self.queue.iter().find(|&&(_, wanted)| fits(wanted)),
            "fcfs-bb" => first.filter(|&&(_, wanted)| self.free_block(wanted)),
            _ => return None,
        };
        Some(next.map(|&(job, _)| job))
    }

    /// Blocks of the least level that has any with so many nodes up, and their nodes that are up.
    fn blocks(&self, wanted: u32) -> Vec<(BTreeSet<ProcessorId>, usize)> {
        let level = |level: u32| -> Vec<(BTreeSet<ProcessorId>, usize)> {
            let block =
                |first: u32| (first << level..(first + 1) << level).map(ProcessorId).collect();
            (0..32 >> level)
                .map(block)
                .map(|block: BTreeSet<ProcessorId>| (block.intersection(&self.up).count(), block))
                .filter(|&(up, _)| up >= wanted as usize)
                .map(|(up, block)| (block, up))
                .collect()
        };
        let least = (0..=5).filter(|level| 1 << level >= wanted).map(level);
        least.into_iter().find(|blocks| !blocks.is_empty()).unwrap_or_default()
    }

    fn free_block(&self, wanted: u32) -> bool {
        let taken = |block: &BTreeSet<ProcessorId>| {
            self.blocks.values().any(|other| !other.is_disjoint(block))
                || self.placed.values().any(|nodes| !nodes.is_disjoint(block))
        };
        self.blocks(wanted).iter().any(|(block, _)| !taken(block))
    }

    /// The block of a job that has just been placed on these nodes.
    fn block_of(
        &self,
        wanted: u32,
        nodes: &BTreeSet<ProcessorId>,
    ) -> Option<(BTreeSet<ProcessorId>, usize)> {
        if !self.name.starts_with("scan") && self.name != "fcfs-bb" {
            return None;
        }
        let found = self.blocks(wanted).into_iter().find(|(block, _)| nodes.is_subset(block));
        let (block, up) = found.expect("within a block of its size");
        let others = self.blocks.values().all(|other| other.is_disjoint(&block));
        assert!(others, "{}: partitions do not overlap", self.name);
        let before = block.intersection(&self.up).take(wanted as usize).eq(nodes.iter());
        assert!(before, "{}: the first nodes of the partition", self.name);
        Some((block, up))
    }

    fn check(&mut self) {
        let columns = self.policy.columns();
        let cycle = columns.first().map_or(0, |column| column.slots.len());
        let mut jobs: BTreeMap<JobId, BTreeMap<usize, BTreeSet<ProcessorId>>> = BTreeMap::new();
        assert!(columns.is_sorted_by(|a, b| a.processor < b.processor));
        for ProcessorColumn { processor, slots } in &columns {
            assert_eq!(slots.len(), cycle);
            for (slot, job) in slots.iter().enumerate().filter_map(|(at, job)| Some((at, (*job)?)))
            {
                jobs.entry(job).or_default().entry(slot).or_default().insert(*processor);
            }
        }
        assert!(jobs.keys().eq(self.active.iter()), "{}: each has a slot", self.name);
        for (job, slots) in &jobs {
            let nodes = &self.placed[job];
            assert!(slots.values().all(|on| on == nodes), "{}: all of a job at once", self.name);
        }
        if self.policy.sharing() == Sharing::Space && !self.restored {
            assert!(cycle <= 1, "{} does not share time", self.name);
        }
        for slot in 0..cycle.max(1) {
            let mut ran = BTreeSet::new();
            self.policy.run_slot(&mut |job| assert!(ran.insert(job), "once"));
            let said = jobs.iter().filter(|(_, slots)| slots.contains_key(&slot));
            assert_eq!(ran, said.map(|(&job, _)| job).collect(), "{} slot {slot}", self.name);
        }
        assert_eq!(self.policy.columns(), columns, "{}: the sequence repeats", self.name);
        self.check_filling();
    }

    fn check_filling(&self) {
        let filling: usize = self
            .blocks
            .iter()
            .map(|(job, block)| {
                block.intersection(&self.up).count().saturating_sub(self.placed[job].len())
            })
            .sum();
        assert_eq!(self.policy.filling_processors() as usize, filling, "{}", self.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold(nodes in 1..20u32, steps in prop::collection::vec(step(), 1..if cfg!(miri) { 6 } else { 60 })) {
        for name in NAMES {
            let mut model = Model::new(name, nodes);
            for step in &steps {
                model.apply(step);
                model.place();
                model.check();
            }
            while !model.queue.is_empty() || !model.placed.is_empty() {
                (0..24).map(ProcessorId).for_each(|node| {
                    model.policy.add_node(&NodeResources::single(node));
                    model.up.insert(node);
                });
                model.now += 50;
                model.leave(0);
                model.place();
            }
            prop_assert!(model.policy.columns().is_empty());
        }
    }
}

#[test]
fn backfilling_needs_estimates_and_others_do_not() {
    for name in NAMES {
        let mut policy = by_name(name, Limits::default()).unwrap();
        let needs = ["easy", "conservative"].contains(&name);
        let said = policy.arrive(&Request::new(JobId(1), 1), ClusterTime(0));
        assert_eq!(said.is_err(), needs, "{name}: {said:?}");
        let said = policy.arrive(&Request::new(JobId(2), 0), ClusterTime(0));
        assert_eq!(said, Err(ArriveError::NoProcessors(JobId(2))));
        let said = policy.restore(&Request::new(JobId(2), 0), &[], ClusterTime(0));
        assert_eq!(said, Err(ArriveError::NoProcessors(JobId(2))));
        let huge = Request { estimate_ns: Some(u64::MAX), ..Request::new(JobId(3), u32::MAX) };
        policy.arrive(&huge, ClusterTime(0)).unwrap();
        assert_eq!(policy.next_placement(ClusterTime(0)), None, "{name}");
    }
}

#[test]
fn of_those_that_come_at_once_the_important_is_first() {
    for name in ["fcfs", "fcfs-bb", "first-fit", "easy", "conservative", "scan"] {
        let mut policy = by_name(name, Limits::default()).unwrap();
        policy.add_node(&NodeResources::single(ProcessorId(0)));
        let ask = |job, priority| Request {
            priority,
            estimate_ns: Some(5),
            ..Request::new(JobId(job), 1)
        };
        policy.arrive(&ask(1, 1), ClusterTime(0)).unwrap();
        for (job, priority) in [(2, 1), (3, 2), (4, 9), (5, 2)] {
            policy.arrive(&ask(job, priority), ClusterTime(1)).unwrap();
        }
        let queued: Vec<u64> = policy.queued().into_iter().map(|job| job.0).collect();
        assert_eq!(queued, [1, 4, 3, 5, 2], "{name}");
    }
}
