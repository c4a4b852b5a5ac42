//! Choice of partitions, compared with values computed anew from the queues each time.

use std::collections::BTreeMap;

use kumi_sched::{
    AllocationPolicy, ClusterTime, Dqt, DqtConfig, JobId, NodeResources, Placement, Policy,
    ProcessorId, Request,
};
use proptest::prelude::*;

const NOW: ClusterTime = ClusterTime(0);
const ALLOCATION_POLICIES: [AllocationPolicy; 5] = [
    AllocationPolicy::Max,
    AllocationPolicy::Min,
    AllocationPolicy::Apa,
    AllocationPolicy::Ff,
    AllocationPolicy::FfApa,
];

/// The tree as the paper defines its values: jobs by partition (first leaf and size), leaves up.
struct Naive {
    arity: u32,
    leaves: u32,
    up: Vec<bool>,
    jobs: BTreeMap<(u32, u32), u64>,
}

type Part = (u32, u32);

impl Naive {
    fn jobs(&self, part: Part) -> u64 {
        self.jobs.get(&part).copied().unwrap_or(0)
    }

    fn up(&self, (first, size): Part) -> u64 {
        (first..first + size).filter(|&leaf| self.up.get(leaf as usize) == Some(&true)).count()
            as u64
    }

    fn children(&self, (first, size): Part) -> Vec<Part> {
        let below = size / self.arity;
        (0..self.arity).filter(|_| size > 1).map(|index| (first + index * below, below)).collect()
    }

    fn most(&self, part: Part) -> u64 {
        let below = self.children(part).into_iter().map(|child| self.most(child));
        self.jobs(part) + below.max().unwrap_or(0)
    }

    fn least(&self, part: Part) -> u64 {
        let usable = self.children(part).into_iter().filter(|&child| self.up(child) > 0);
        self.jobs(part) + usable.map(|child| self.least(child)).min().unwrap_or(0)
    }

    fn amount(&self, part: Part) -> u64 {
        let below: u64 = self.children(part).into_iter().map(|child| self.amount(child)).sum();
        self.jobs(part) * self.up(part) + below
    }

    fn shortest(&self, part: Part, size: u32) -> u64 {
        if part.1 == size {
            return if self.up(part) > 0 { self.jobs(part) } else { u64::MAX };
        }
        let below = self.children(part).into_iter().map(|child| self.shortest(child, size));
        below.min().unwrap_or(u64::MAX)
    }

    /// The partition, by the policy's values with ties to the left; another if that has no room.
    fn descend(
        &self,
        allocation: AllocationPolicy,
        part: Part,
        above: u64,
        goal: (u32, u32, u64),
    ) -> Option<Part> {
        let (size, wanted, limit) = goal;
        if part.1 == size {
            let fits = self.up(part) >= u64::from(wanted) && above + self.most(part) < limit;
            return fits.then_some(part);
        }
        let mut children = self.children(part);
        children.retain(|&child| self.up(child) > 0);
        let per_node = |child| (self.amount(child) * 1_000_000) / self.up(child);
        children.sort_by_key(|&child| match allocation {
            AllocationPolicy::Max => (self.most(child), 0),
            AllocationPolicy::Min => (self.least(child), 0),
            AllocationPolicy::Apa => (per_node(child), 0),
            AllocationPolicy::Ff => (self.shortest(child, size), 0),
            AllocationPolicy::FfApa => (self.shortest(child, size), per_node(child)),
        });
        let above = above + self.jobs(part);
        children.into_iter().find_map(|child| self.descend(allocation, child, above, goal))
    }

    fn place(
        &self,
        allocation: AllocationPolicy,
        wanted: u32,
        limit: u64,
    ) -> Option<(Part, Vec<ProcessorId>)> {
        let parts =
            |size: u32| (0..self.leaves).step_by(size as usize).map(move |first| (first, size));
        let mut size = 1;
        while !parts(size).any(|part| self.up(part) >= u64::from(wanted)) {
            size *= self.arity;
            if size > self.leaves {
                return None;
            }
        }
        let part = self.descend(allocation, (0, self.leaves), 0, (size, wanted, limit))?;
        let leaves =
            (part.0..part.0 + part.1).filter(|&leaf| self.up.get(leaf as usize) == Some(&true));
        Some((part, leaves.take(wanted as usize).map(ProcessorId).collect()))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u32),
    Leave(usize),
    Turn(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any::<u32>().prop_map(Step::Arrive),
        4 => any::<u32>().prop_map(|wanted| Step::Arrive(wanted % 3)),
        6 => any::<usize>().prop_map(Step::Leave),
        1 => any::<u32>().prop_map(Step::Turn),
    ]
}

struct Pair {
    policy: Dqt,
    naive: Naive,
    placed: Vec<(JobId, Part)>,
    queue: Vec<(JobId, u32)>,
}

impl Pair {
    fn place(&mut self) {
        loop {
            let up = self.naive.up((0, self.naive.leaves));
            let first = self.queue.iter().position(|&(_, wanted)| u64::from(wanted) <= up);
            let &DqtConfig { allocation, max_jobs_per_processor, .. } = self.policy.config();
            let expected = first.and_then(|index| {
                let (job, wanted) = self.queue[index];
                let (part, nodes) =
                    self.naive.place(allocation, wanted, u64::from(max_jobs_per_processor))?;
                Some((index, part, Placement { job, processors: nodes }))
            });
            let placement = self.policy.next_placement(NOW);
            assert_eq!(placement, expected.clone().map(|(_, _, placement)| placement));
            let Some((index, part, placement)) = expected else { break };
            self.queue.remove(index);
            *self.naive.jobs.entry(part).or_default() += 1;
            self.placed.push((placement.job, part));
        }
        assert!(self.policy.queued().into_iter().eq(self.queue.iter().map(|&(job, _)| job)));
        let whole = (0, self.naive.leaves);
        assert_eq!(u64::from(self.policy.max_tqlb()), self.naive.most(whole));
        assert_eq!(u64::from(self.policy.min_tqlb()), self.naive.least(whole));
    }

    fn apply(&mut self, number: u64, nodes: u32, step: &Step) {
        match *step {
            Step::Arrive(wanted) => {
                let request = Request::new(JobId(number), wanted % nodes + 1);
                self.policy.arrive(&request, NOW).unwrap();
                self.queue.push((request.job, request.demand.parts));
            }
            Step::Leave(index) if !self.placed.is_empty() => {
                let (job, part) = self.placed.remove(index % self.placed.len());
                self.policy.leave(job, NOW);
                *self.naive.jobs.get_mut(&part).unwrap() -= 1;
            }
            Step::Leave(_) => {}
            Step::Turn(node) => {
                let up = &mut self.naive.up[(node % nodes) as usize];
                *up = !*up;
                let node = ProcessorId(node % nodes);
                if *up {
                    self.policy.add_node(&NodeResources::single(node));
                } else {
                    self.policy.remove_node(node);
                }
            }
        }
        self.place();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn partitions_are_those_of_the_definitions(
        arity in 2..5u32, nodes in 1..34u32, allocation in 0..5usize,
        limit in prop_oneof![Just(u32::MAX), 1..4u32],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let config =
            DqtConfig { arity, allocation: ALLOCATION_POLICIES[allocation], max_jobs_per_processor: limit, ..DqtConfig::default() };
        let mut policy = Dqt::new(config);
        (0..nodes).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
        let mut leaves = 1;
        while leaves < nodes {
            leaves *= arity;
        }
        let naive =
            Naive { arity, leaves, up: vec![true; nodes as usize], jobs: BTreeMap::new() };
        let mut pair = Pair { policy, naive, placed: Vec::new(), queue: Vec::new() };
        for (number, step) in steps.iter().enumerate() {
            pair.apply(number as u64, nodes, step);
        }
        let used: u64 = pair.policy.tree().iter().flat_map(|node| &node.queue)
            .map(|job| u64::from(job.processors)).sum();
        prop_assert_eq!(pair.policy.fragmentation().used, used);
    }
}
