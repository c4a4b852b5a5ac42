//! Backfilling against references that count nodes instant by instant. The tests check each placement. They
//! also check that no job starts that would delay the first (EASY) or any other (conservative).

use std::collections::{BTreeMap, VecDeque};

use kumi_sched::registry::{Limits, by_name};
use kumi_sched::{ClusterTime, JobId, NodeResources, Policy, ProcessorId, Request};
use proptest::prelude::*;

/// No plan reaches farther.
const HORIZON: usize = 4000;

#[derive(Clone, Copy, Debug)]
struct Job {
    arrives: u64,
    nodes: u32,
    estimate: u64,
    runs: u64,
}

/// Jobs, with what they run as a part of what they say.
fn jobs(overrun: bool) -> impl Strategy<Value = Vec<Job>> {
    let most: u64 = if overrun { 8 } else { 4 };
    let job = (0..6u64, 1..=8u32, 1..20u64, 1..=most);
    prop::collection::vec(job, 1..40).prop_map(|raw| {
        let mut now = 0;
        let job = |(gap, nodes, estimate, quarters): (u64, u32, u64, u64)| {
            now += gap;
            let runs = (estimate * quarters / 4).max(1);
            Job { arrives: now, nodes, estimate, runs }
        };
        raw.into_iter().map(job).collect()
    })
}

/// Free nodes at each instant from now on.
#[derive(Clone)]
struct Plan(Vec<i64>);

impl Plan {
    fn change(&mut self, from: u64, to: u64, nodes: i64) {
        let (from, to) = (from as usize, (to as usize).min(HORIZON));
        self.0[from.min(to)..to].iter_mut().for_each(|free| *free += nodes);
    }

    fn earliest(&self, job: &Job, from: u64) -> u64 {
        let fits = |start: &u64| {
            let window = *start as usize..(*start + job.estimate) as usize;
            self.0[window].iter().all(|&free| free >= i64::from(job.nodes))
        };
        (from..).find(fits).unwrap()
    }
}

/// A machine of `size` nodes and the policy that is tested on it.
struct World<'a> {
    size: u32,
    jobs: &'a [Job],
    policy: Box<dyn Policy + Send>,
    now: u64,
    /// By number, when it started.
    running: BTreeMap<usize, u64>,
    queue: VecDeque<usize>,
    starts: BTreeMap<usize, u64>,
}

impl<'a> World<'a> {
    fn new(name: &str, size: u32, jobs: &'a [Job]) -> Self {
        Self::limited(name, size, jobs, Limits::default())
    }

    fn limited(name: &str, size: u32, jobs: &'a [Job], limits: Limits) -> Self {
        let mut policy = by_name(name, limits).unwrap();
        (0..size).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
        let (running, queue, starts) = Default::default();
        Self { size, jobs, policy, now: 0, running, queue, starts }
    }

    fn free(&self) -> u32 {
        self.size - self.running.keys().map(|&job| self.jobs[job].nodes).sum::<u32>()
    }

    /// The free nodes beside the running jobs, by their estimates.
    fn plan(&self) -> Plan {
        let mut plan = Plan(vec![i64::from(self.size); HORIZON]);
        for (&job, &start) in &self.running {
            let Job { nodes, estimate, .. } = self.jobs[job];
            plan.change(self.now, start + estimate, -i64::from(nodes));
        }
        plan
    }

    /// Goes on to the next instant at which something ends or comes: those that do.
    fn next_instant(&mut self) -> Option<(Vec<usize>, Vec<usize>)> {
        let end = |(&job, &start): (&usize, &u64)| start + self.jobs[job].runs;
        let came = self.starts.len() + self.queue.len();
        let arrival = self.jobs.get(came).map(|job| job.arrives);
        self.now = self.running.iter().map(end).chain(arrival).min()?;
        let ended: Vec<usize> =
            self.running.iter().filter(|&run| end(run) == self.now).map(|run| *run.0).collect();
        let arrives = |&job: &usize| self.jobs[job].arrives == self.now;
        let arrived = (came..self.jobs.len()).take_while(arrives).collect();
        Some((ended, arrived))
    }

    fn end(&mut self, job: usize) {
        self.running.remove(&job);
        self.policy.leave(JobId(job as u64), ClusterTime(self.now));
    }

    fn arrive(&mut self, job: usize) {
        let Job { nodes, estimate, .. } = self.jobs[job];
        let request =
            Request { estimate_ns: Some(estimate), ..Request::new(JobId(job as u64), nodes) };
        self.policy.arrive(&request, ClusterTime(self.now)).unwrap();
        self.queue.push_back(job);
    }

    fn place(&mut self) -> Option<usize> {
        let placement = self.policy.next_placement(ClusterTime(self.now))?;
        let job = placement.job.0 as usize;
        assert!(placement.processors.len() as u32 <= self.free());
        self.queue.retain(|&queued| queued != job);
        self.running.insert(job, self.now);
        self.starts.insert(job, self.now);
        Some(job)
    }

    fn possible(&self) -> Vec<usize> {
        let size = self.size;
        self.queue.iter().copied().filter(|&job| self.jobs[job].nodes <= size).collect()
    }
}

/// The first of the queue if it can start, otherwise the first other which, started now, lets that
/// one start no later.
fn easy(world: &World) -> Option<usize> {
    let queue = world.possible();
    let (&first, others) = queue.split_first()?;
    let plan = world.plan();
    let reserved = plan.earliest(&world.jobs[first], world.now);
    let fits = |job: usize| world.jobs[job].nodes <= world.free();
    if fits(first) && reserved == world.now {
        return Some(first);
    }
    let harmless = |job: &usize| {
        let Job { nodes, estimate, .. } = world.jobs[*job];
        let mut with = plan.clone();
        with.change(world.now, world.now + estimate, -i64::from(nodes));
        fits(*job) && with.earliest(&world.jobs[first], world.now) <= reserved
    };
    others.iter().copied().find(harmless)
}

/// Reservations made by counting.
struct Promises {
    /// By job.
    starts: BTreeMap<usize, u64>,
    most: usize,
}

impl Promises {
    fn new(most: usize) -> Self {
        Self { starts: BTreeMap::new(), most }
    }

    fn plan(&self, world: &World) -> Plan {
        let mut plan = world.plan();
        for (&job, &start) in &self.starts {
            let Job { nodes, estimate, .. } = world.jobs[job];
            plan.change(start, start + estimate, -i64::from(nodes));
        }
        plan
    }

    /// Those that have a reservation get the earliest time that moves no other job, one after the other. No job's time becomes
    /// later.
    fn improve(&mut self, world: &World) {
        let possible = world.possible().into_iter();
        let planned: Vec<usize> = possible.filter(|job| self.starts.contains_key(job)).collect();
        for job in planned {
            let before = self.starts.remove(&job).unwrap();
            let start = self.plan(world).earliest(&world.jobs[job], world.now);
            assert!(start <= before, "later than it was promised");
            self.starts.insert(job, start);
        }
    }

    /// Those that have no reservation get one, as long as there are not too many.
    fn extend(&mut self, world: &World) {
        for job in world.possible() {
            if !self.starts.contains_key(&job) && self.starts.len() < self.most {
                let start = self.plan(world).earliest(&world.jobs[job], world.now);
                self.starts.insert(job, start);
            }
        }
    }

    /// Whether somebody is to begin later and nothing is expected to end until then.
    fn missed(&self, world: &World) -> bool {
        let end = |(&job, &start): (&usize, &u64)| start + world.jobs[job].estimate;
        let first = self.starts.values().filter(|&&start| start > world.now).min();
        let due = self.starts.iter().filter(|(_, start)| **start <= world.now);
        first.is_some_and(|&first| due.chain(&world.running).all(|run| first < end(run)))
    }

    fn next(&self, world: &World) -> Option<usize> {
        let begun = |job: &usize| self.starts.get(job).is_some_and(|&start| start <= world.now);
        let due = |job: &usize| begun(job) && world.jobs[*job].nodes <= world.free();
        world.possible().into_iter().find(due)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn easy_places_whom_the_reference_does(size in 1..9u32, jobs in jobs(false)) {
        let mut world = World::new("easy", size, &jobs);
        let mut promised = BTreeMap::new();
        while let Some((ended, arrived)) = world.next_instant() {
            ended.into_iter().for_each(|job| world.end(job));
            arrived.into_iter().for_each(|job| world.arrive(job));
            loop {
                let expected = easy(&world);
                prop_assert_eq!(world.place(), expected);
                if expected.is_none() {
                    break;
                }
            }
            if let Some(&first) = world.possible().first() {
                let start = world.plan().earliest(&jobs[first], world.now);
                let promise = promised.entry(first).or_insert(start);
                prop_assert!(start <= *promise, "the first is delayed");
                *promise = start;
            }
        }
        for (job, promise) in promised {
            prop_assert!(world.starts[&job] <= promise);
        }
    }

    /// With few reservations, and with more than there are jobs.
    #[test]
    fn conservative_delays_nobody(
        size in 1..9u32,
        jobs in jobs(false),
        reservations in prop_oneof![1..6_usize, Just(1_000)],
    ) {
        let limits = Limits { reservations, ..Limits::default() };
        let mut world = World::limited("conservative", size, &jobs, limits);
        let mut promises = Promises::new(reservations);
        while let Some((ended, arrived)) = world.next_instant() {
            let early = ended.iter().any(|&job| jobs[job].runs < jobs[job].estimate);
            ended.into_iter().for_each(|job| world.end(job));
            if early {
                promises.improve(&world);
            }
            promises.extend(&world);
            arrived.into_iter().for_each(|job| world.arrive(job));
            loop {
                promises.extend(&world);
                while promises.missed(&world) {
                    promises.improve(&world);
                }
                let expected = promises.next(&world);
                prop_assert_eq!(world.place(), expected);
                let Some(job) = expected else { break };
                prop_assert_eq!(promises.starts.remove(&job), Some(world.now));
            }
        }
        prop_assert!(promises.starts.is_empty());
    }

    /// Estimates that do not hold, and a decision after each event: everybody runs all the same,
    /// and when nobody runs the first does at once.
    #[test]
    fn wrong_estimates_stop_nobody(size in 1..9u32, jobs in jobs(true), name in prop::bool::ANY) {
        let mut world = World::new(if name { "easy" } else { "conservative" }, size, &jobs);
        while let Some((ended, arrived)) = world.next_instant() {
            for job in ended {
                world.end(job);
                while world.place().is_some() {}
            }
            for job in arrived {
                world.arrive(job);
                while world.place().is_some() {}
            }
            prop_assert!(!world.running.is_empty() || world.possible().is_empty());
        }
        let small = jobs.iter().filter(|job| job.nodes <= size).count();
        prop_assert_eq!(world.starts.len(), small);
    }
}

/// The policy assumes that a job beyond its estimate takes twice as long. Jobs that fit into that time may
/// overtake the first, and no others.
#[test]
fn an_estimate_that_is_overrun_is_doubled() {
    for name in ["easy", "conservative"] {
        let mut policy = by_name(name, Limits::default()).unwrap();
        (0..2).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
        let ask = |policy: &mut dyn Policy, job, nodes, estimate, now| {
            let estimate_ns = Some(estimate);
            let request = Request { estimate_ns, ..Request::new(JobId(job), nodes) };
            policy.arrive(&request, ClusterTime(now)).unwrap();
            policy.next_placement(ClusterTime(now)).map(|placement| placement.job.0)
        };
        assert_eq!(ask(&mut *policy, 1, 1, 10, 0), Some(1));
        assert_eq!(ask(&mut *policy, 2, 2, 10, 5), None, "{name}");
        assert_eq!(ask(&mut *policy, 3, 1, 6, 5), None, "{name}: until 11, but the first has 10");
        assert_eq!(ask(&mut *policy, 4, 1, 8, 12), Some(3), "{name}: until 18, the first has 20");
        policy.leave(JobId(3), ClusterTime(18));
        assert_eq!(policy.next_placement(ClusterTime(18)), None, "{name}: until 26");
        assert_eq!(ask(&mut *policy, 5, 1, 30, 21), Some(4), "{name}: until 29, the first has 40");
    }
}

/// Who has no reservation waits, even where there is room. It gets one when one of those before it begins.
#[test]
fn there_are_no_more_reservations_than_may_be() {
    let limits = Limits { reservations: 2, ..Limits::default() };
    let mut policy = by_name("conservative", limits).unwrap();
    (0..4).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
    let arrive = |policy: &mut dyn Policy, job, nodes| {
        let request = Request { estimate_ns: Some(10), ..Request::new(JobId(job), nodes) };
        policy.arrive(&request, ClusterTime(0)).unwrap();
    };
    let next = |policy: &mut dyn Policy, now| {
        policy.next_placement(ClusterTime(now)).map(|placement| placement.job.0)
    };
    arrive(&mut *policy, 1, 3);
    assert_eq!(next(&mut *policy, 0), Some(1));
    (2..4).for_each(|job| arrive(&mut *policy, job, 4));
    arrive(&mut *policy, 4, 1);
    assert_eq!(next(&mut *policy, 0), None, "a node is free, but two have reservations");
    policy.leave(JobId(3), ClusterTime(0));
    assert_eq!(next(&mut *policy, 0), Some(4), "one of them left");
    assert_eq!(next(&mut *policy, 0), None);
}
