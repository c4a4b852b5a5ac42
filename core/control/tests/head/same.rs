//! The head of a cluster and a bare policy, as the simulator drives it, decide the same for the same
//! events.

use super::*;
use kumi_sched::registry::{self, Limits};
use kumi_sched::{Policy, Request, UserId};

const NODES: u32 = 8;
const SLICE: u64 = 10 * MS;
/// Timetables start so much after they are made; slots pass for the policy when that is due.
const LEAD: u64 = 2 * MS;
const GRACE: u64 = 30 * MS;
const STEPS: u32 = 60;
const SEEDS: u64 = 12;

/// Numbers that are a function of the seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len() as u64) as usize])
    }
}

struct Pair {
    test: Test,
    policy: Box<dyn Policy + Send>,
    random: Random,
    /// Slots that have begun, but for the first, since the first timetable's tick 0 did.
    slots: u64,
    origin: u64,
    /// By job, its nodes.
    placed: Vec<(JobId, Vec<u32>)>,
    down: Vec<u32>,
    generation: u64,
    tokens: u128,
    changes: u32,
}

impl Pair {
    fn new(name: &str, seed: u64) -> Self {
        let config = HeadConfig { policy: name.into(), detach_grace_ns: GRACE, ..config(NODES) };
        let test = Test::attached(config);
        let mut policy = registry::by_name(name, Limits { jobs_per_node: 2, ..Limits::default() })
            .expect("a policy");
        (0..NODES).for_each(|node| policy.add_node(NodeId(node)));
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let timetable = test.head.timetable();
        let (origin, generation) = (timetable.start.0 - timetable.phase_ns, timetable.generation);
        let (placed, down) = Default::default();
        Self {
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
            let nodes: Vec<u32> = placement.nodes.iter().map(|node| node.0).collect();
            new.push((placement.job, nodes));
        }
        self.placed.extend(new.iter().cloned());
        self.compare();
        for (job, nodes) in new {
            self.prepared(job, &nodes);
        }
    }

    fn compare(&mut self) {
        let record = |job| self.test.head.records().find(|record| record.spec.job == job);
        for (job, nodes) in &self.placed {
            let layout = &record(*job).expect("known").spec.layout;
            let placed: Vec<u32> = layout.iter().map(|part| part.node.0).collect();
            assert_eq!(&placed, nodes, "nodes of job {job}");
        }
        let queued = self.test.head.records().filter(|record| record.state == JobState::Queued);
        let queued: Vec<JobId> = queued.map(|record| record.spec.job).collect();
        let mut waiting = self.policy.queued();
        waiting.sort_unstable();
        assert_eq!(queued, waiting, "those that wait");
        let (timetable, columns) = (self.test.head.timetable(), self.policy.columns());
        if timetable.generation != self.generation {
            self.generation = timetable.generation;
            self.changes += 1;
            assert_eq!(timetable.columns, columns, "a new timetable");
        }
        let tick = timetable.tick_at(ClusterTime(self.test.now + LEAD));
        for node in (0..NODES).map(NodeId) {
            let column = columns.iter().find(|column| column.node == node);
            let first = column.and_then(|column| column.slots[0]);
            assert_eq!(timetable.job_at(node, tick), first, "node {node} now");
        }
    }

    fn prepared(&mut self, job: JobId, nodes: &[u32]) {
        let ready = |&node: &u32| PreparedNode {
            node: NodeId(node),
            result: Ok(PreparedRanks {
                addresses: vec![RankAddress { ip: [10, 0, 0, node as u8].into(), port: 9 }],
                max_datagram: 1400,
            }),
        };
        let report = Report::Prepared { job, nodes: nodes.iter().map(ready).collect() };
        self.report(report, |policy, _| policy.set_active(job, true));
    }

    fn report(&mut self, report: Report, told: impl FnOnce(&mut dyn Policy, ClusterTime)) {
        self.step(HeadEvent::Child(LINK, Up::Report(report)), told);
    }

    fn arrives(&mut self) {
        let nodes = 1 + self.random.below(NODES.into()) as u32;
        let priority = 1 + self.random.below(3) as u16;
        let estimate_ns = Some((1 + self.random.below(40)) * SLICE);
        let user = self.random.of(&[ALICE.uid, BOB.uid]).map_or(ALICE, |uid| User { uid, gid: 1 });
        self.tokens += 1;
        let wish = JobRequest { priority, estimate_ns, ..request(self.tokens, nodes, Some(nodes)) };
        let job = JobId(self.tokens as u64);
        let asked = Request { job, nodes, user: UserId(user.uid), priority, estimate_ns };
        let submit = ClientRequest::Submit(Box::new(wish));
        self.step(HeadEvent::Client(CLIENT, user, submit), |policy, now| {
            policy.arrive(&asked, now).expect("taken");
        });
    }

    fn leaves(&mut self, job: JobId) {
        let place = self.placed.iter().position(|(placed, _)| *placed == job);
        match place.map(|index| self.placed.remove(index)) {
            Some((_, nodes)) => {
                let report = Report::Freed { job, nodes: set(nodes) };
                self.report(report, |policy, now| policy.leave(job, now));
            }
            None => {
                let kill = ClientRequest::Kill { job };
                let event = HeadEvent::Client(CLIENT, OWNER, kill);
                self.step(event, |policy, now| policy.leave(job, now));
            }
        }
    }

    /// A node goes; after the grace the jobs that it had end, and are freed on their other nodes.
    fn loses(&mut self, node: u32) {
        let mut lost_at = GRACE;
        self.report(Report::Detached(set([node])), |policy, now| {
            lost_at += now.0;
            policy.remove_node(NodeId(node));
        });
        self.down.push(node);
        let (hit, rest) =
            self.placed.drain(..).partition(|(_, nodes): &(_, Vec<u32>)| nodes.contains(&node));
        let hit: Vec<(JobId, Vec<u32>)> = hit;
        // They have their nodes until then.
        self.placed = rest;
        self.placed.extend(hit.iter().cloned());
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
        let report = Report::Attached(vec![description(node)]);
        self.report(report, |policy, _| policy.add_node(NodeId(node)));
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
                let node = self.random.below(NODES.into()) as u32;
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

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn the_head_and_a_bare_policy_decide_the_same() {
    let listed = registry::names().map(|(name, _)| name);
    for name in listed.chain(["dqt4:ff", "dqt:min+shares"]) {
        if migrates(name) {
            continue;
        }
        for seed in 1..=SEEDS {
            let mut pair = Pair::new(name, seed);
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
