//! The head of a cluster and a bare policy, as the simulator drives it, decide the same for the same
//! events.

use super::random::Random;
use super::*;
use kumi_control::message::NodeRanks;
use kumi_sched::registry::{self, Limits};
use kumi_sched::{
    Amounts, Demand, NodeResources, Numbering, PartSize, Policy, ProcessorId, Request, UserId,
};

/// Processors of each node, one on each or several.
const SINGLE: [u32; 8] = [1; 8];
const MIXED: [u32; 8] = [2, 4, 3, 4, 1, 4, 2, 4];
/// Memory of each of the mixed nodes.
const MEMORY: u64 = 100;
const SLICE: u64 = 10 * MS;
/// Timetables start so much after they are made; slots pass for the policy when that is due.
const LEAD: u64 = 2 * MS;
const GRACE: u64 = 30 * MS;
const STEPS: u32 = 60;
const SEEDS: u64 = 12;

/// So much memory and nothing else.
fn amounts(memory: u64) -> Amounts {
    let mut amounts = Amounts::NONE;
    amounts.0[0] = memory;
    amounts
}

/// What a job asks of the head.
#[derive(Clone, Copy, Debug)]
struct Wish {
    ranks: u32,
    nodes: Option<u32>,
    each: u32,
    memory: u64,
    exclusive: bool,
}

impl Wish {
    fn resources(&self) -> Resources {
        Resources {
            processors_per_rank: Some(self.each),
            memory_per_rank: Some(self.memory),
            exclusive: self.exclusive,
            ..Resources::default()
        }
    }

    /// What it means to a policy, as the simulator and documents say it.
    fn demand(&self) -> Demand {
        let Self { ranks, each, memory, .. } = *self;
        let Some(nodes) = self.nodes else {
            let size = PartSize::Processors(each);
            return Demand { parts: ranks, size, spread: false, amounts: amounts(memory) };
        };
        let most = ranks.div_ceil(nodes);
        let size = match self.exclusive {
            true => PartSize::WholeNode { least: most * each },
            false => PartSize::Processors(most * each),
        };
        Demand { parts: nodes, size, spread: true, amounts: amounts(u64::from(most) * memory) }
    }

    /// Whether its nodes have room for it when all are up.
    fn fits(&self, sizes: &[u32]) -> bool {
        let by_memory = MEMORY.checked_div(self.memory).unwrap_or(u64::MAX);
        let places = |size: &u32| u64::from(size / self.each).min(by_memory);
        match self.nodes {
            Some(nodes) => {
                let most = u64::from(self.ranks.div_ceil(nodes));
                let enough = sizes.iter().filter(|size| places(size) >= most).count();
                enough >= nodes as usize
            }
            None => sizes.iter().map(places).sum::<u64>() >= self.ranks.into(),
        }
    }
}

struct Pair {
    sizes: &'static [u32],
    numbering: Numbering,
    test: Test,
    policy: Box<dyn Policy + Send>,
    random: Random,
    /// Slots that have begun, but for the first, since the first timetable's tick 0 did.
    slots: u64,
    origin: u64,
    /// By job, the numbers of its processors.
    placed: Vec<(JobId, Vec<u32>)>,
    down: Vec<u32>,
    generation: u64,
    tokens: u128,
    changes: u32,
}

impl Pair {
    fn new(name: &str, seed: u64, sizes: &'static [u32]) -> Self {
        let nodes = sizes.len() as u32;
        let config = HeadConfig { policy: name.into(), detach_grace_ns: GRACE, ..config(nodes) };
        let mut test = Test::from_config(config);
        let all = (0..nodes).map(|node| node_of(sizes, node));
        test.report(Report::Attached(all.collect()));
        // Jobs that leave their nodes open wait for nodes while the head is new.
        test.advance(GRACE * 100);
        let mut policy =
            registry::by_name(name, Limits { jobs_per_processor: 2, ..Limits::default() })
                .expect("a policy");
        let numbers = (0..).map(NodeId).zip(sizes.iter().copied());
        let numbering = Numbering::new(policy.arity(), numbers);
        (0..nodes).for_each(|node| policy.add_node(&resources_of(&numbering, node)));
        let random = Random::new(seed);
        let timetable = test.head.timetable();
        let (origin, generation) = (timetable.start.0 - timetable.phase_ns, timetable.generation);
        let (placed, down) = Default::default();
        Self {
            sizes,
            numbering,
            test,
            policy,
            random,
            slots: 0,
            origin,
            placed,
            down,
            generation,
            tokens: 0,
            changes: 0,
        }
    }

    /// Both get the event, the policy as what it means to it; then they are compared.
    fn step(&mut self, event: HeadEvent, told: impl FnOnce(&mut dyn Policy, ClusterTime)) {
        self.test.event(event);
        let now = ClusterTime(self.test.now);
        let due = (now.0 + LEAD).saturating_sub(self.origin) / SLICE;
        while self.slots < due {
            self.slots += 1;
            self.policy.run_slot(&mut |_| {});
        }
        told(&mut *self.policy, now);
        let mut new = Vec::new();
        while let Some(placement) = self.policy.next_placement(now) {
            let processors = placement.processors.iter().map(|processor| processor.0);
            new.push((placement.job, processors.collect::<Vec<u32>>()));
        }
        self.placed.extend(new.iter().cloned());
        self.compare();
        for (job, _) in new {
            self.prepared(job);
        }
    }

    /// The nodes of these processors.
    fn nodes_of(&self, processors: &[u32]) -> Vec<u32> {
        let node = |&processor: &u32| self.numbering.place(ProcessorId(processor)).expect("one").0;
        let mut nodes: Vec<u32> = processors.iter().map(|processor| node(processor).0).collect();
        nodes.dedup();
        nodes
    }

    fn compare(&mut self) {
        let record = |job| self.test.head.records().find(|record| record.spec.job == job);
        for (job, processors) in &self.placed {
            let spec = &record(*job).expect("known").spec;
            let part = |part: &NodeRanks| -> Vec<u32> {
                let node = self.numbering.processors(part.node);
                match &part.processors[..] {
                    [] => node.collect(),
                    some => some.iter().map(|place| node.start + place).collect(),
                }
            };
            let placed: Vec<u32> = spec.layout.iter().flat_map(part).collect();
            assert_eq!(&placed, processors, "processors of job {job}");
            let ranks: u32 = spec.layout.iter().map(|part| part.count).sum();
            assert_eq!(ranks, spec.request.ranks, "ranks of job {job}");
        }
        let queued = self.test.head.records().filter(|record| record.state == JobState::Queued);
        let queued: Vec<JobId> = queued.map(|record| record.spec.job).collect();
        let mut waiting = self.policy.queued();
        waiting.sort_unstable();
        assert_eq!(queued, waiting, "those that wait");
        let (timetable, columns) =
            (self.test.head.timetable(), self.numbering.columns(&self.policy.columns()));
        if timetable.generation != self.generation {
            self.generation = timetable.generation;
            self.changes += 1;
            assert_eq!(timetable.columns, columns, "a new timetable");
        }
        let tick = timetable.tick_at(ClusterTime(self.test.now + LEAD));
        for node in (0..self.sizes.len() as u32).map(NodeId) {
            let column = columns.iter().find(|column| column.node == node);
            let first = column.map_or(&[][..], |column| &column.slots[0]);
            assert_eq!(timetable.jobs_at(node, tick), first, "node {node} now");
        }
    }

    fn prepared(&mut self, job: JobId) {
        let record = self.test.head.records().find(|record| record.spec.job == job);
        let layout = &record.expect("known").spec.layout;
        let ready = |part: &NodeRanks| PreparedNode {
            node: part.node,
            result: Ok(PreparedRanks {
                addresses: vec![
                    RankAddress { ip: [10, 0, 0, part.node.0 as u8].into(), port: 9 };
                    part.count as usize
                ],
                max_datagram: 1400,
            }),
        };
        let report = Report::Prepared { job, nodes: layout.iter().map(ready).collect() };
        self.report(report, |policy, _| policy.set_active(job, true));
    }

    fn report(&mut self, report: Report, told: impl FnOnce(&mut dyn Policy, ClusterTime)) {
        self.step(HeadEvent::Child(LINK, Up::Report(report)), told);
    }

    /// A job that the nodes have room for when all are up.
    fn wish(&mut self) -> Wish {
        let count = self.sizes.len() as u64;
        if self.sizes.iter().all(|&size| size == 1) {
            let nodes = 1 + self.random.below(count) as u32;
            return Wish { ranks: nodes, nodes: Some(nodes), each: 1, memory: 0, exclusive: false };
        }
        loop {
            let nodes = (self.random.below(2) == 0).then(|| 1 + self.random.below(count) as u32);
            let each = 1 + self.random.below(3) as u32;
            // Those that leave their nodes open have room, too, when three nodes are down. Otherwise they would share processors.
            let ranks = match nodes {
                Some(nodes) => nodes * (1 + self.random.below(3) as u32),
                None => 1 + self.random.below(if each == 1 { 8 } else { 4 }) as u32,
            };
            let memory = self.random.of(&[0, 0, 25, 40]).unwrap_or(0);
            let exclusive = nodes.is_some() && self.random.below(4) == 0;
            let wish = Wish { ranks, nodes, each, memory, exclusive };
            if wish.fits(self.sizes) {
                return wish;
            }
        }
    }

    fn arrives(&mut self) {
        let wanted = self.wish();
        let priority = 1 + self.random.below(3) as u16;
        let estimate_ns = Some((1 + self.random.below(40)) * SLICE);
        let user = self.random.of(&[ALICE.uid, BOB.uid]).map_or(ALICE, |uid| User {
            uid,
            gid: 1,
            name: String::new(),
        });
        self.tokens += 1;
        let resources = wanted.resources();
        let wish = request(self.tokens, wanted.ranks, wanted.nodes);
        let wish = JobRequest { priority, estimate_ns, resources, ..wish };
        let job = JobId(self.tokens as u64);
        let asked =
            Request { job, demand: wanted.demand(), user: UserId(user.uid), priority, estimate_ns };
        let submit = ClientRequest::Submit(Box::new(wish));
        self.step(HeadEvent::Client(CLIENT, user, submit), |policy, now| {
            policy.arrive(&asked, now).expect("taken");
        });
    }

    fn leaves(&mut self, job: JobId) {
        let place = self.placed.iter().position(|(placed, _)| *placed == job);
        match place.map(|index| self.placed.remove(index)) {
            Some((_, processors)) => {
                let report = Report::Freed { job, nodes: set(self.nodes_of(&processors)) };
                self.report(report, |policy, now| policy.leave(job, now));
            }
            None => {
                let kill = ClientRequest::Kill { job, grace_ns: 0 };
                let event = HeadEvent::Client(CLIENT, OWNER, kill);
                self.step(event, |policy, now| policy.leave(job, now));
            }
        }
    }

    /// A node goes; after the grace the jobs that it had end, and are freed on their other nodes.
    fn loses(&mut self, node: u32) {
        let mut lost_at = GRACE;
        let first = ProcessorId(self.numbering.processors(NodeId(node)).start);
        self.report(Report::Detached(set([node])), |policy, now| {
            lost_at += now.0;
            policy.remove_node(first);
        });
        self.down.push(node);
        // They have their nodes until then.
        let placed = self.placed.iter();
        let placed = placed.map(|(job, processors)| (*job, self.nodes_of(processors)));
        let hit: Vec<(JobId, Vec<u32>)> =
            placed.filter(|(_, nodes)| nodes.contains(&node)).collect();
        while self.test.now < lost_at {
            let next = self.test.head.next_timeout().unwrap_or(lost_at).min(lost_at);
            self.test.now = self.test.now.max(next.saturating_sub(1000));
            let over = self.test.now + 1000 >= lost_at;
            if over {
                self.placed.retain(|(job, _)| hit.iter().all(|(other, _)| other != job));
            }
            let mut ending: Vec<(JobId, bool)> =
                hit.iter().map(|(job, nodes)| (*job, nodes.len() == 1)).collect();
            ending.sort_unstable();
            self.step(HeadEvent::Timeout, |policy, now| {
                for (job, alone) in ending.into_iter().filter(|_| over) {
                    policy.set_active(job, false);
                    if alone {
                        policy.leave(job, now);
                    }
                }
            });
        }
        for (job, mut nodes) in hit {
            nodes.retain(|&other| other != node);
            if !nodes.is_empty() {
                let report = Report::Freed { job, nodes: set(nodes) };
                self.report(report, |policy, now| policy.leave(job, now));
            }
        }
    }

    fn returns(&mut self, node: u32) {
        self.down.retain(|&other| other != node);
        let report = Report::Attached(vec![node_of(self.sizes, node)]);
        let resources = resources_of(&self.numbering, node);
        self.report(report, |policy, _| policy.add_node(&resources));
    }

    fn anything(&mut self) {
        self.test.now += self.random.below(3) * SLICE;
        match self.random.below(12) {
            0..6 => self.arrives(),
            6..10 => {
                let waiting = self.policy.queued();
                let placed = self.placed.iter().map(|(job, _)| *job);
                // Ends are more frequent than withdrawals.
                let all: Vec<JobId> =
                    placed.clone().chain(placed).chain(waiting.first().copied()).collect();
                if let Some(job) = self.random.of(&all) {
                    self.leaves(job);
                }
            }
            10 if self.down.len() < 3 => {
                let node = self.random.below(self.sizes.len() as u64) as u32;
                if !self.down.contains(&node) {
                    self.loses(node);
                }
            }
            _ => {
                if let Some(node) = self.down.clone().first() {
                    self.returns(*node);
                }
            }
        }
    }
}

/// A node as it says it of itself.
fn node_of(sizes: &[u32], node: u32) -> NodeDescription {
    let processors = sizes[node as usize];
    NodeDescription { processors, memory: MEMORY, max_ranks: 4 * processors, ..description(node) }
}

/// The same as policies see it.
fn resources_of(numbering: &Numbering, node: u32) -> NodeResources {
    NodeResources { processors: numbering.processors(NodeId(node)), amounts: amounts(MEMORY) }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn the_head_and_a_bare_policy_decide_the_same() {
    decide_the_same(&SINGLE);
}

#[test]
#[cfg_attr(miri, ignore = "minutes, in code without unsafe blocks")]
fn the_head_and_a_bare_policy_decide_the_same_on_nodes_of_several_processors() {
    decide_the_same(&MIXED);
}

fn decide_the_same(sizes: &'static [u32]) {
    let listed = registry::names().map(|(name, _)| name);
    for name in listed.chain(["dqt4:ff", "dqt:min+shares"]) {
        if migrates(name) {
            continue;
        }
        for seed in 1..=SEEDS {
            let mut pair = Pair::new(name, seed, sizes);
            for step in 0..STEPS {
                // Shown only if the test fails.
                println!("{name}, seed {seed}, step {step}");
                pair.anything();
            }
            assert!(pair.changes > 10, "{name}: {} timetables are no test", pair.changes);
        }
    }
}

/// Policies that move jobs are not for a cluster.
fn migrates(name: &str) -> bool {
    registry::by_name(name, Limits::default()).is_ok_and(|policy| policy.migrates())
}
