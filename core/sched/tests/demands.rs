//! Jobs whose parts are each on one node, with memory and devices, under every policy.

use std::collections::{BTreeMap, BTreeSet};

use kumi_sched::registry::{self, Limits};
use kumi_sched::{
    Amounts, ClusterTime, Demand, JobId, KINDS, NodeId, NodeResources, Numbering, PartSize,
    Placement, Policy, Request,
};
use proptest::prelude::*;

fn amounts(of: [u64; 2]) -> Amounts {
    let mut amounts = [0; KINDS];
    amounts[..2].copy_from_slice(&of);
    Amounts(amounts)
}

/// Processors, and two amounts.
type Size = (u32, [u64; 2]);

#[derive(Clone, Debug)]
enum Step {
    Arrive(Demand),
    /// The n-th of the jobs that are placed, or that wait if none is.
    Leave(usize),
    Away(usize),
    Back(usize),
    Slots(u64),
}

fn demands() -> impl Strategy<Value = Demand> {
    let size = prop_oneof![
        3 => Just(PartSize::Processors(1)),
        3 => (1..5u32).prop_map(PartSize::Processors),
        1 => (1..5u32).prop_map(|least| PartSize::WholeNode { least }),
    ];
    let of = prop_oneof![2 => Just([0, 0]), 1 => [0..6u64, 0..3u64]];
    (1..6u32, size, any::<bool>(), of).prop_map(|(parts, size, spread, of)| Demand {
        parts,
        size,
        spread,
        amounts: amounts(of),
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => demands().prop_map(Step::Arrive),
        3 => (0..8usize).prop_map(Step::Leave),
        1 => (0..6usize).prop_map(Step::Away),
        2 => (0..6usize).prop_map(Step::Back),
        1 => (1..5u64).prop_map(Step::Slots),
    ];
    prop::collection::vec(step, 1..60)
}

struct Model {
    name: &'static str,
    policy: Box<dyn Policy + Send>,
    numbering: Numbering,
    sizes: Vec<Size>,
    up: BTreeSet<usize>,
    demands: BTreeMap<JobId, Demand>,
    waiting: BTreeSet<JobId>,
    placed: BTreeMap<JobId, Placement>,
    next: u64,
    now: u64,
}

impl Model {
    fn new(name: &'static str, sizes: &[Size]) -> Self {
        let limits = Limits { jobs_per_processor: 3, ..Limits::default() };
        let policy = registry::by_name(name, limits).expect("a policy");
        let numbered = (0..).map(NodeId).zip(sizes.iter().map(|&(processors, _)| processors));
        let numbering = Numbering::new(policy.arity(), numbered);
        let mut model = Self {
            name,
            policy,
            numbering,
            sizes: sizes.to_vec(),
            up: BTreeSet::new(),
            demands: BTreeMap::new(),
            waiting: BTreeSet::new(),
            placed: BTreeMap::new(),
            next: 0,
            now: 0,
        };
        (0..sizes.len()).for_each(|node| model.comes(node));
        model
    }

    fn resources(&self, node: usize) -> NodeResources {
        let processors = self.numbering.processors(NodeId(node as u32));
        NodeResources { processors, amounts: amounts(self.sizes[node].1) }
    }

    fn comes(&mut self, node: usize) {
        let resources = self.resources(node);
        self.policy.add_node(&resources);
        self.up.insert(node);
    }

    fn run(&mut self, step: &Step) {
        self.now += 1;
        match *step {
            Step::Arrive(demand) => {
                self.next += 1;
                let job = JobId(self.next);
                let request = Request {
                    demand,
                    estimate_ns: Some(self.next % 7 + 1),
                    ..Request::new(job, 1)
                };
                self.policy.arrive(&request, ClusterTime(self.now)).expect("taken");
                self.demands.insert(job, demand);
                self.waiting.insert(job);
            }
            Step::Leave(index) => {
                let mut jobs = self.placed.keys().chain(&self.waiting).copied();
                if let Some(job) = jobs.nth(index) {
                    self.leaves(job);
                }
            }
            Step::Away(node) if self.up.remove(&(node % self.sizes.len())) => {
                let first = self.resources(node % self.sizes.len()).first();
                self.policy.remove_node(first);
            }
            Step::Away(_) => {}
            Step::Back(node) => self.comes(node % self.sizes.len()),
            Step::Slots(slots) => self.policy.advance(slots),
        }
        self.place();
        self.check();
    }

    fn leaves(&mut self, job: JobId) {
        self.policy.leave(job, ClusterTime(self.now));
        self.placed.remove(&job);
        self.waiting.remove(&job);
    }

    fn place(&mut self) {
        while let Some(placement) = self.policy.next_placement(ClusterTime(self.now)) {
            let job = placement.job;
            assert!(self.waiting.remove(&job), "{}: job {job} waited", self.name);
            self.check_placement(&placement);
            self.placed.insert(job, placement);
            self.policy.set_active(job, true);
        }
    }

    /// By node: the places of the job's processors.
    fn nodes_of(&self, placement: &Placement) -> BTreeMap<usize, usize> {
        let mut nodes = BTreeMap::new();
        for &processor in &placement.processors {
            let (node, _) = self.numbering.place(processor).expect("a processor");
            *nodes.entry(node.0 as usize).or_insert(0) += 1;
        }
        nodes
    }

    /// How many parts of a job are on a node where it has so many processors.
    fn parts(&self, demand: &Demand, node: usize, has: usize) -> u32 {
        match demand.size {
            PartSize::Processors(each) => {
                assert_eq!(has as u32 % each, 0, "{}: a part on two nodes", self.name);
                has as u32 / each
            }
            PartSize::WholeNode { least } => {
                let all = self.sizes[node].0;
                assert!(has as u32 == all && all >= least, "{}: {has} of {all}", self.name);
                1
            }
        }
    }

    fn check_placement(&self, placement: &Placement) {
        let demand = &self.demands[&placement.job];
        assert!(placement.processors.is_sorted_by(|a, b| a < b));
        let nodes = self.nodes_of(placement);
        assert!(nodes.keys().all(|node| self.up.contains(node)), "{}: on a lost node", self.name);
        let parts = nodes.iter().map(|(&node, &has)| self.parts(demand, node, has));
        let parts: Vec<u32> = parts.collect();
        assert_eq!(parts.iter().sum::<u32>(), demand.parts, "{}: {demand:?}", self.name);
        assert!(!demand.spread || parts.iter().all(|&count| count == 1), "{}", self.name);
    }

    fn check(&self) {
        self.check_amounts();
        let columns = self.policy.columns();
        let slots = |job: JobId, processor| -> Vec<bool> {
            let column = columns.iter().find(|column| column.processor == processor);
            let column = column.unwrap_or_else(|| panic!("{}: no column", self.name));
            column.slots.iter().map(|slot| *slot == Some(job)).collect()
        };
        for (&job, placement) in &self.placed {
            let first = slots(job, placement.processors[0]);
            assert!(first.contains(&true), "{}: job {job} has no turn", self.name);
            for &processor in &placement.processors {
                assert_eq!(slots(job, processor), first, "{}: not together", self.name);
            }
        }
        // On nodes a slot shows all jobs that have processors there in it.
        for column in self.numbering.columns(&columns) {
            for (index, jobs) in column.slots.iter().enumerate() {
                let node = self.numbering.processors(column.node);
                let here = columns.iter().filter(|one| node.contains(&one.processor.0));
                let all: BTreeSet<JobId> = here.filter_map(|one| one.slots[index]).collect();
                assert!(all.iter().eq(jobs));
            }
        }
    }

    /// What jobs have of a node is at most what it has.
    fn check_amounts(&self) {
        let mut taken = vec![[0; 2]; self.sizes.len()];
        for (job, placement) in &self.placed {
            let demand = &self.demands[job];
            for (node, has) in self.nodes_of(placement) {
                let parts = u64::from(self.parts(demand, node, has));
                for (kind, sum) in taken[node].iter_mut().enumerate() {
                    *sum += parts * demand.amounts.0[kind];
                }
            }
        }
        for (taken, (_, total)) in taken.iter().zip(&self.sizes) {
            assert!(taken.iter().zip(total).all(|(taken, total)| taken <= total), "{}", self.name);
        }
    }

    /// When all others leave, every job is placed that fits on the machine.
    fn finish(mut self) {
        (0..self.sizes.len()).for_each(|node| self.comes(node));
        self.place();
        while let Some(&job) = self.placed.keys().next() {
            self.now += 1;
            self.leaves(job);
            self.place();
            self.check_amounts();
        }
        for job in &self.waiting {
            assert!(!self.fits(&self.demands[job]), "{}: job {job} starves", self.name);
        }
    }

    fn fits(&self, demand: &Demand) -> bool {
        let on = |&(processors, of): &Size| {
            let by_size = match demand.size {
                PartSize::Processors(each) => processors / each,
                PartSize::WholeNode { least } => u32::from(processors >= least),
            };
            let by_amount = of.iter().zip(&demand.amounts.0);
            let by_amount = by_amount.map(|(&has, &each)| has.checked_div(each).unwrap_or(99));
            let parts = by_size.min(by_amount.min().unwrap_or(99) as u32);
            if demand.spread { parts.min(1) } else { parts }
        };
        self.sizes.iter().map(on).sum::<u32>() >= demand.parts
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 60 }, ..ProptestConfig::default() })]

    #[test]
    fn parts_memory_and_devices_are_kept(
        sizes in prop::collection::vec((1..7u32, [0..9u64, 0..4u64]), 1..6),
        steps in steps(),
    ) {
        for (name, _) in registry::names() {
            let mut model = Model::new(name, &sizes);
            for step in &steps {
                model.run(step);
            }
            model.finish();
        }
    }
}
