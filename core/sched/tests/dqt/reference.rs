//! The front as a definition by recursion that looks at the whole tree after every event, for
//! jobs of one turn each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kumi_sched::{ClusterTime, Dqt, DqtConfig, JobId, Policy, ProcessorId, Request};
use proptest::prelude::*;

const NOW: ClusterTime = ClusterTime(0);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Out,
    Own,
    Below,
}

struct Part {
    first: u32,
    size: u32,
    children: Vec<Part>,
    phase: Phase,
    /// The active jobs, the next one first.
    ring: VecDeque<JobId>,
    /// Those that are to have a turn in this round.
    owed: BTreeSet<JobId>,
    begun: bool,
    /// Has gone round since the parent's children were begun.
    done: bool,
}

impl Part {
    fn new(arity: u32, first: u32, size: u32) -> Self {
        let below = size / arity;
        let child = |index| Self::new(arity, first + index * below, below);
        let children = if size == 1 { Vec::new() } else { (0..arity).map(child).collect() };
        let (ring, owed) = (VecDeque::new(), BTreeSet::new());
        Self { first, size, children, phase: Phase::Out, ring, owed, begun: false, done: true }
    }

    /// The smallest part with both leaves.
    fn with(&mut self, first: u32, last: u32) -> &mut Self {
        let has = |part: &Self, leaf| (part.first..part.first + part.size).contains(&leaf);
        match self.children.iter().position(|child| has(child, first) && has(child, last)) {
            Some(index) => self.children[index].with(first, last),
            None => self,
        }
    }

    fn live(&self) -> bool {
        !self.ring.is_empty() || self.children.iter().any(Self::live)
    }

    fn join(&mut self, job: JobId) {
        let begun = self.phase == Phase::Own && self.begun && !self.owed.is_empty();
        if begun {
            self.ring.insert(self.owed.len(), job);
        } else {
            self.ring.push_back(job);
            if self.phase == Phase::Own && !self.begun {
                self.owed.insert(job);
            }
        }
    }

    fn quit(&mut self, job: JobId) {
        self.ring.retain(|&other| other != job);
        self.owed.remove(&job);
    }

    fn begin(&mut self) {
        if self.ring.is_empty() {
            self.below();
        } else {
            (self.phase, self.begun) = (Phase::Own, false);
            self.owed = self.ring.iter().copied().collect();
        }
    }

    fn below(&mut self) {
        self.phase = Phase::Below;
        for child in &mut self.children {
            child.done = !child.live();
            if child.live() {
                child.begin();
            }
        }
    }

    fn stop(&mut self) {
        self.phase = Phase::Out;
        self.owed.clear();
        self.children.iter_mut().for_each(Self::stop);
    }

    /// Goes on where nothing is left to wait for. Returns whether the round is over.
    fn settle(&mut self, fair: bool) -> bool {
        if self.phase == Phase::Own && self.owed.is_empty() {
            self.below();
        }
        if self.phase != Phase::Below {
            return false;
        }
        let mut again = Vec::new();
        for (index, child) in self.children.iter_mut().enumerate() {
            let begun = child.phase != Phase::Out;
            if !child.live() {
                child.stop();
                child.done = true;
            } else if begun && child.settle(fair) {
                child.done = true;
                again.push(index);
            } else if !begun {
                again.push(index);
            }
        }
        if self.children.iter().all(|child| child.done) {
            return true;
        }
        if !fair {
            for index in again {
                self.children[index].stop();
                self.children[index].begin();
            }
        }
        false
    }

    fn settle_root(&mut self, fair: bool) {
        if !self.live() {
            self.stop();
        } else if self.phase == Phase::Out || self.settle(fair) {
            self.stop();
            self.begin();
        }
    }

    fn turn(&mut self, ran: &mut Vec<JobId>) {
        if self.phase == Phase::Own {
            let job = self.ring.pop_front().unwrap();
            self.ring.push_back(job);
            self.owed.remove(&job);
            self.begun = true;
            ran.push(job);
        } else if self.phase == Phase::Below {
            self.children.iter_mut().for_each(|child| child.turn(ran));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A job on the smallest partition with both leaves.
    Arrive(u32, u32),
    Leave(usize),
    Toggle(usize),
    Slots(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<u32>().prop_map(|leaf| Step::Arrive(leaf, leaf)),
        4 => any::<(u32, u32)>().prop_map(|(first, last)| Step::Arrive(first, last)),
        3 => any::<usize>().prop_map(Step::Leave),
        4 => any::<usize>().prop_map(Step::Toggle),
        6 => (1..8u32).prop_map(Step::Slots),
    ]
}

struct Pair {
    policy: Dqt,
    root: Part,
    leaves: u32,
    /// Where each job is and whether it is active.
    jobs: BTreeMap<JobId, (u32, u32, bool)>,
    next: u64,
}

impl Pair {
    fn new(arity: u32, height: u32, fair: bool) -> Self {
        let leaves = arity.pow(height);
        let policy = Dqt::new(DqtConfig { arity, fair, ..DqtConfig::default() });
        let root = Part::new(arity, 0, leaves);
        Self { policy, root, leaves, jobs: BTreeMap::new(), next: 0 }
    }

    fn set_active(&mut self, job: JobId, active: bool) {
        let (first, last, was) = self.jobs[&job];
        if active != was {
            self.jobs.insert(job, (first, last, active));
            self.policy.set_active(job, active);
            let part = self.root.with(first, last);
            if active {
                part.join(job);
            } else {
                part.quit(job);
            }
            self.root.settle_root(self.policy.config().fair);
        }
    }

    fn some_job(&self, index: usize) -> Option<JobId> {
        self.jobs.keys().nth(index % self.jobs.len().max(1)).copied()
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Arrive(one, two) => {
                let (one, two) = (one % self.leaves, two % self.leaves);
                let (first, last) = (one.min(two), one.max(two));
                let job = JobId(self.next);
                self.next += 1;
                // The tree grows to where its jobs are; the reference is tall from the beginning.
                let nodes = [ProcessorId(first), ProcessorId(last)];
                self.policy.restore(&Request::new(job, 0), &nodes, NOW).unwrap();
                self.jobs.insert(job, (first, last, false));
                self.set_active(job, true);
            }
            Step::Leave(index) => {
                if let Some(job) = self.some_job(index) {
                    self.set_active(job, false);
                    self.policy.leave(job, NOW);
                    self.jobs.remove(&job);
                }
            }
            Step::Toggle(index) => {
                if let Some(job) = self.some_job(index) {
                    self.set_active(job, !self.jobs[&job].2);
                }
            }
            Step::Slots(count) => (0..count).for_each(|_| self.slot()),
        }
    }

    fn slot(&mut self) {
        let (mut ran, mut expected) = (Vec::new(), Vec::new());
        self.policy.run_slot(&mut |job| ran.push(job));
        self.root.turn(&mut expected);
        self.root.settle_root(self.policy.config().fair);
        ran.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ran, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// The state machines and their messages do what the definition by recursion says, whatever
    /// comes, goes and sleeps between any two slots, and while the tree grows.
    #[test]
    fn the_front_is_where_the_definition_says(
        (arity, height) in prop_oneof![(Just(2u32), 0..5u32), (Just(3), 0..4u32), (Just(4), 0..3u32)],
        fair in any::<bool>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut pair = Pair::new(arity, height, fair);
        for step in &steps {
            pair.apply(step);
        }
        (0..40).for_each(|_| pair.slot());
    }
}
