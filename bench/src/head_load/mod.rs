//! Load on a head: what it costs to serve a large cluster on which many jobs wait, start and end.
//!
//! The head is the real state machine, and time is virtual. Nodes are spoken for: they prepare each job and free it a little
//! later, and their daemons combine what they report as real ones do. What the drivers do for each action is done too: records
//! and messages are encoded as they go to the disk and to links. Only processor time of the head's thread counts.

mod meter;
mod nodes;

use crate::error::BenchError;
use kumi_control::head::{ClientId, Head, HeadAction, HeadConfig, HeadEvent, Retention};
use kumi_control::message::{
    BatchOptions, ClientReply, ClientRequest, Command, ContentHash, Down, JobRequest, JobState,
    JobsQuery, Program, Resources, Up, User, WaitLimit,
};
use kumi_node::frame::{LINK_LIMIT, encode};
use kumi_sched::{JobId, Mode, Sharing, SliceLength, registry};
use meter::Meter;
pub use meter::{EventCosts, EventKind};
use nodes::Nodes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Nanoseconds of a millisecond, and of a second.
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// How long nodes take over what they are asked.
const ANSWER: u64 = MS;
/// Environment variables of a job, and the bytes of each.
const VARIABLES: (usize, usize) = (40, 40);
/// Sizes of jobs, equally likely, in processors for each job that a processor may have.
const SIZES: [u32; 4] = [1, 2, 4, 8];
const CLIENT: ClientId = ClientId(1);
const WATCHER: ClientId = ClientId(2);
/// Milliseconds since the epoch at the begin.
const WALL_MS: u64 = 1_700_000_000_000;

/// A cluster and what happens on it.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadLoad {
    /// Name of the scheduling policy.
    pub policy: String,
    /// Nodes, and processors of each.
    pub nodes: u32,
    /// Processors of each node.
    pub processors: u32,
    /// Jobs that may share a processor.
    pub jobs_per_processor: u32,
    /// Jobs that wait.
    pub queued: u32,
    /// Jobs that run. As many run as there is room for: this bounds them.
    pub running: u32,
    /// Submissions a second, and as many ends.
    pub rate: u32,
    /// Clients that ask for the cluster and its jobs each second, as `kumi top` does.
    pub watchers: u32,
    /// How long it lasts, in seconds.
    pub seconds: u32,
}

/// What it did and cost.
#[derive(Clone, Debug)]
pub struct HeadLoadOutcome {
    /// Jobs that waited and ran at the end.
    pub left: [usize; 2],
    /// Jobs that started and ended meanwhile.
    pub changes: [u64; 2],
    /// What it cost, by kind of event.
    pub costs: BTreeMap<EventKind, EventCosts>,
    /// Virtual seconds.
    pub seconds: f64,
}

impl HeadLoadOutcome {
    /// Processor seconds in a second.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.costs.values().map(|costs| costs.nanos).sum::<u64>() as f64 / 1e9 / self.seconds
    }

    /// Bytes of timetables in a second.
    #[must_use]
    pub fn timetable_bytes(&self) -> f64 {
        self.costs.values().map(|costs| costs.timetable_bytes).sum::<u64>() as f64 / self.seconds
    }

    /// Messages with timetables in a second.
    #[must_use]
    pub fn timetables(&self) -> f64 {
        self.costs.values().map(|costs| costs.timetables).sum::<u64>() as f64 / self.seconds
    }
}

/// What is to happen at a time.
#[derive(Clone, Debug)]
enum Planned {
    Submit,
    End,
    Watch,
    Up(HeadEvent, EventKind),
}

/// The cluster while it runs.
struct Cluster {
    load: HeadLoad,
    head: Head,
    nodes: Nodes,
    now: u64,
    plan: BinaryHeap<Reverse<(u64, u64)>>,
    planned: BTreeMap<u64, Planned>,
    numbers: u64,
    random: u64,
    /// Factor of the sizes of jobs.
    scale: u32,
    /// Jobs that run, and those that wait.
    running: Vec<JobId>,
    waiting: usize,
    changes: [u64; 2],
    meter: Meter,
}

impl HeadLoad {
    /// The whole load from an empty cluster on. Only the seconds after it has filled count.
    ///
    /// # Errors
    /// The policy is unknown, or the head refuses a job.
    pub fn run(&self) -> Result<HeadLoadOutcome, BenchError> {
        let mut cluster = Cluster::new(self)?;
        cluster.fill()?;
        cluster.meter.clear();
        cluster.changes = [0; 2];
        let begin = cluster.now;
        let (events, length) =
            (u64::from(self.rate * self.seconds), u64::from(self.seconds) * SECOND);
        for event in 0..events {
            let at = begin + length / events * event;
            cluster.plan(at, Planned::Submit);
            cluster.plan(at + length / events / 2, Planned::End);
        }
        let looks = u64::from(self.watchers * self.seconds);
        for look in 0..looks {
            cluster.plan(begin + length / looks * look, Planned::Watch);
        }
        cluster.until(begin + length)?;
        Ok(HeadLoadOutcome {
            left: [cluster.waiting, cluster.running.len()],
            changes: cluster.changes,
            costs: cluster.meter.take(),
            seconds: f64::from(self.seconds),
        })
    }
}

fn failed(what: impl std::fmt::Display) -> BenchError {
    BenchError::HeadLoad(what.to_string())
}

impl Cluster {
    fn new(load: &HeadLoad) -> Result<Self, BenchError> {
        let limits =
            registry::Limits { jobs_per_processor: load.jobs_per_processor, ..Default::default() };
        let policy = registry::by_name(&load.policy, limits).map_err(failed)?;
        let scale = match policy.sharing() {
            Sharing::Space => 1,
            Sharing::SpaceAndTime => load.jobs_per_processor,
        };
        let head = Head::new(config(load), Vec::new(), [1; 32]).map_err(failed)?;
        let mut cluster = Self {
            load: load.clone(),
            head,
            nodes: Nodes::new(load.nodes, load.processors),
            now: 0,
            plan: BinaryHeap::new(),
            planned: BTreeMap::new(),
            numbers: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            scale,
            running: Vec::new(),
            waiting: 0,
            changes: [0; 2],
            meter: Meter::default(),
        };
        cluster.event(HeadEvent::Timeout, EventKind::Timer)?;
        for event in cluster.nodes.attach() {
            cluster.event(event, EventKind::Timer)?;
        }
        // Nodes are no longer expected.
        cluster.until(30 * SECOND)?;
        Ok(cluster)
    }

    fn plan(&mut self, at: u64, what: Planned) {
        self.numbers += 1;
        self.plan.push(Reverse((at, self.numbers)));
        self.planned.insert(self.numbers, what);
    }

    /// Jobs come until no more run and enough wait.
    fn fill(&mut self) -> Result<(), BenchError> {
        while self.running.len() < self.load.running as usize && self.waiting == 0 {
            self.submit()?;
            self.until(self.now + 2 * ANSWER)?;
        }
        while self.waiting < self.load.queued as usize {
            self.submit()?;
        }
        self.until(self.now + 2 * SECOND)
    }

    /// Lets everything happen that is due until then.
    fn until(&mut self, end: u64) -> Result<(), BenchError> {
        loop {
            let planned = self.plan.peek().map(|Reverse((at, _))| *at);
            let timeout = self.head.next_timeout();
            let Some(next) = planned.into_iter().chain(timeout).min().filter(|at| *at <= end)
            else {
                self.now = end;
                return Ok(());
            };
            self.now = self.now.max(next);
            if planned.is_none_or(|at| at > next) {
                self.event(HeadEvent::Timeout, EventKind::Timer)?;
                continue;
            }
            let number = self.plan.pop().map(|Reverse((_, number))| number);
            match number.and_then(|number| self.planned.remove(&number)) {
                Some(Planned::Submit) => self.submit()?,
                Some(Planned::End) => self.end()?,
                Some(Planned::Watch) => self.watch()?,
                Some(Planned::Up(event, kind)) => self.event(event, kind)?,
                None => {}
            }
        }
    }

    /// A number below `bound` (xorshift).
    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % bound
    }

    fn submit(&mut self) -> Result<(), BenchError> {
        self.numbers += 1;
        let size = SIZES[self.below(SIZES.len())] * self.scale;
        let request = request(self.numbers.into(), size);
        // Every other one is followed by its client, which hears what it waits for.
        let request = Box::new(request);
        let submission = match self.numbers.is_multiple_of(2) {
            true => ClientRequest::Submit(request),
            false => ClientRequest::SubmitBatch { request, array: None },
        };
        self.waiting += 1;
        self.event(HeadEvent::Client(CLIENT, user(), submission), EventKind::Submission)
    }

    /// Somebody looks at the cluster.
    fn watch(&mut self) -> Result<(), BenchError> {
        let jobs = ClientRequest::Jobs(JobsQuery::first_page(false));
        for request in [ClientRequest::Cluster, jobs] {
            self.event(HeadEvent::Client(WATCHER, user(), request), EventKind::Look)?;
        }
        Ok(())
    }

    /// One of the running jobs ends on all of its nodes.
    fn end(&mut self) -> Result<(), BenchError> {
        if self.running.is_empty() {
            return Ok(());
        }
        let index = self.below(self.running.len());
        let job = self.running.swap_remove(index);
        for event in self.nodes.free(job) {
            self.event(event, EventKind::End)?;
        }
        Ok(())
    }

    /// Hands an event to the head and does what the driver does with its actions. Then nodes answer.
    fn event(&mut self, event: HeadEvent, kind: EventKind) -> Result<(), BenchError> {
        let mut actions = Vec::new();
        self.meter.begin();
        self.head.handle(self.now, WALL_MS + self.now / MS, event);
        while let Some(action) = self.head.poll_action() {
            self.drive(&action)?;
            actions.push(action);
        }
        self.meter.end(kind);
        for action in actions {
            self.answer(action)?;
        }
        Ok(())
    }

    /// What the driver does with an action, but for sockets and disks.
    fn drive(&mut self, action: &HeadAction) -> Result<(), BenchError> {
        match action {
            HeadAction::Persist(record) => {
                let record = record.clone();
                let bytes = encode(&record, usize::MAX).map_err(failed)?;
                self.meter.recorded(bytes.len());
            }
            HeadAction::ToChild(_, nodes, command) => {
                let down = Down::Command(nodes.clone(), command.clone());
                let bytes = encode(&down, LINK_LIMIT).map_err(failed)?;
                self.meter.sent(bytes.len(), matches!(command, Command::Timetable(_)));
            }
            HeadAction::ToClient(_, reply) | HeadAction::ToClients(_, reply) => {
                let bytes = encode(reply, LINK_LIMIT).map_err(failed)?;
                self.meter.sent(bytes.len(), false);
            }
            _ => {}
        }
        Ok(())
    }

    /// What comes of an action on nodes.
    fn answer(&mut self, action: HeadAction) -> Result<(), BenchError> {
        match action {
            HeadAction::ToChild(link, nodes, Command::Prepare(spec)) => {
                let report = self.nodes.prepare(link, &nodes, &spec);
                let event = HeadEvent::Child(link, Up::Report(report));
                self.plan(self.now + ANSWER, Planned::Up(event, EventKind::Start));
            }
            HeadAction::Persist(record) => match record.state {
                JobState::Preparing => self.waiting -= 1,
                JobState::Running => {
                    self.running.push(record.spec.job);
                    self.changes[0] += 1;
                }
                JobState::Ended(_) => self.changes[1] += 1,
                JobState::Queued | JobState::Ending(_) => {}
            },
            HeadAction::ToClient(_, ClientReply::Refused(refusal)) => {
                return Err(failed(refusal.message));
            }
            _ => {}
        }
        Ok(())
    }
}

fn user() -> User {
    User { uid: 1000, gid: 1000, name: "user".into() }
}

fn config(load: &HeadLoad) -> HeadConfig {
    HeadConfig {
        cluster_name: "load".into(),
        nodes: (0..load.nodes).map(|node| format!("node{node}")).collect(),
        mode: Mode::Gang { force_switch: false, fill: true },
        slice: SliceLength::Auto,
        policy: load.policy.clone(),
        max_jobs_per_processor: load.jobs_per_processor,
        max_jobs_per_user: u32::MAX,
        max_priority: 4,
        priority: 1,
        estimate_ns: Some(600 * SECOND),
        time_limit_ns: None,
        wait: WaitLimit::Forever,
        owner_uid: 1000,
        root_jobs: false,
        show_others: Default::default(),
        lease_ns: 300 * SECOND,
        detach_grace_ns: 60 * SECOND,
        encrypt: true,
        env: Vec::new(),
        resources: Resources::default(),
        retention: Retention { jobs: 4096, age_ms: 30 * 86_400_000 },
        revoked: Vec::new(),
        drains: Vec::new(),
        removed: Vec::new(),
        shares: None,
    }
}

fn request(token: u128, ranks: u32) -> JobRequest {
    let program =
        Program { path: "/usr/bin/program".into(), hash: ContentHash([7; 32]), size: 1 << 20 };
    let (count, length) = VARIABLES;
    let env = (0..count).map(|number| (format!("VARIABLE_{number}"), "x".repeat(length)));
    JobRequest {
        env: env.collect(),
        cwd: "/home/user/work".into(),
        batch: BatchOptions { detached: true, ..BatchOptions::default() },
        ..JobRequest::new(token, "job", program, ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_wait_start_and_end() {
        let load = HeadLoad {
            policy: "dqt".into(),
            nodes: 20,
            processors: 2,
            jobs_per_processor: 3,
            queued: 30,
            running: 40,
            rate: 20,
            watchers: 2,
            seconds: 2,
        };
        for policy in ["dqt", "matrix", "fcfs", "easy"] {
            let outcome = HeadLoad { policy: policy.into(), ..load.clone() }.run().unwrap();
            let [queued, running] = outcome.left;
            assert!(queued > 0 && running > 5, "{policy}: {outcome:?}");
            assert_eq!(outcome.changes[1], 40, "{policy}: {outcome:?}");
            assert!(outcome.changes[0] > 10, "{policy}: {outcome:?}");
            assert!(outcome.timetables() > 0.0 && outcome.share() > 0.0, "{policy}: {outcome:?}");
        }
    }

    #[test]
    fn an_unknown_policy_is_refused() {
        let load = HeadLoad {
            policy: "none".into(),
            nodes: 1,
            processors: 1,
            jobs_per_processor: 1,
            queued: 1,
            running: 1,
            rate: 1,
            watchers: 0,
            seconds: 1,
        };
        assert!(load.run().is_err());
    }
}
