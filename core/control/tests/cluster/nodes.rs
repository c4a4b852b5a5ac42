//! A node: the real agent, and a driver that runs pretended ranks.

use std::collections::{BTreeMap, BTreeSet};

use kumi_control::agent::{Agent, AgentAction, AgentConfig, AgentEvent};
use kumi_control::message::{
    ContentHash, JobSpec, MessageCounts, NodeDescription, NodeSample, PartUse, PreparedRanks,
    RankAddress, RankStatus, Refusal, RefusalKind, Stream, SwitchSample,
};
use kumi_control::tree::Parent;
use kumi_sched::{JobId, NodeId, Timetable};

use crate::keepers::Held;
use crate::world::{Event, MS, World};

/// By then the head knows that a job has something to do again, or that it does not know it any more:
/// broken links are noticed within 600 ms.
const NOTICED: u64 = 800 * MS;

#[derive(Default)]
pub struct NodeSim {
    pub agent: Option<Agent>,
    /// What came while there was no daemon, and of which daemon's time it is.
    pub missed: Vec<(u64, AgentEvent)>,
    pub incarnation: u64,
    pub parent: Option<u64>,
    armed: Option<u64>,
    pub jobs: BTreeMap<JobId, Local>,
    pub programs: BTreeSet<ContentHash>,
    storing: BTreeMap<ContentHash, u64>,
    pub timetable: Option<Timetable>,
    pub asleep_until: u64,
    /// What keepers hold of jobs, and the lease that was known when the daemon ended.
    pub held: BTreeMap<JobId, Held>,
    pub held_lease: Option<u64>,
    /// Jobs of daemons from this one on may run.
    kept_from: u64,
}

pub struct Local {
    pub spec: JobSpec,
    pub alive: BTreeSet<u32>,
    pub started: bool,
    killed: bool,
    waits_for_program: bool,
    /// Its ranks wait, and how often that has changed.
    pub idle: bool,
    stirs: u64,
    /// Exchanges that the node has got.
    pub exchanged: u32,
    pub started_at: Option<u64>,
    /// The daemon that prepared it.
    born: u64,
}

impl Local {
    pub fn is_killed(&self) -> bool {
        self.killed
    }

    /// Whether ranks of it run.
    pub fn runs(&self) -> bool {
        self.started && !self.killed && !self.alive.is_empty()
    }
}

/// What the daemon of a node measures of a job that is over there.
pub fn used_by(job: JobId, number: u32) -> PartUse {
    let memory = number.is_multiple_of(2).then_some(1 << 20);
    let job = job.number().0;
    PartUse { turns_us: 1_000 * job, used_us: job + u64::from(number), memory }
}

impl NodeSim {
    pub fn alive(&self, incarnation: u64) -> bool {
        self.agent.is_some() && self.incarnation == incarnation
    }

    /// Daemons that started jobs which may run.
    fn kept(&self, incarnation: u64) -> bool {
        (self.kept_from..=self.incarnation).contains(&incarnation)
    }

    /// What a daemon knows by itself only.
    pub fn forget_what_dies(&mut self) {
        self.parent = None;
        self.armed = None;
        self.storing.clear();
        self.timetable = None;
        self.asleep_until = 0;
    }

    pub fn current_incarnation(&self) -> Option<u64> {
        self.agent.is_some().then_some(self.incarnation)
    }
}

impl World {
    fn node(&mut self, node: u32) -> &mut NodeSim {
        &mut self.nodes[node as usize]
    }

    pub fn node_starts(&mut self, number: u32) {
        let node = self.node(number);
        if node.agent.is_some() {
            return;
        }
        node.incarnation += 1;
        let incarnation = node.incarnation;
        let description = NodeDescription {
            node: NodeId(number),
            incarnation,
            name: format!("n{number}"),
            processors: 2,
            memory: 0,
            devices: Vec::new(),
            max_ranks: 8,
            limits: Vec::new(),
            jobs: Vec::new(),
            path: Vec::new(),
        };
        node.agent = Some(Agent::new(AgentConfig { description }));
        self.adopt(number);
        self.at(0, Event::Connect { node: number, incarnation, candidate: 0 });
    }

    /// The daemon is killed; its watcher kills the ranks.
    pub fn node_dies(&mut self, number: u32) {
        if self.calm || self.nodes[number as usize].agent.is_none() {
            return;
        }
        self.disturb(number);
        let jobs = self.nodes[number as usize].jobs.iter();
        let running = jobs.filter(|(_, local)| local.started && !local.alive.is_empty());
        for job in running.map(|(&job, _)| job).collect::<Vec<JobId>>() {
            self.ledger.must_end(job, self.now);
        }
        self.ledger.died.insert(number);
        self.peers_fail(number);
        let node = self.node(number);
        node.agent = None;
        node.jobs.clear();
        node.held.clear();
        node.kept_from = node.incarnation + 1;
        node.forget_what_dies();
        self.break_links_of(Parent::Node(NodeId(number)));
        self.soon(100 * MS, 2_500 * MS, Event::NodeStarts(number));
    }

    /// Ranks whose peers were on this node may see that before the head does, and fail.
    fn peers_fail(&mut self, number: u32) {
        let lost = self.nodes[number as usize].jobs.iter().filter(|(_, local)| local.runs());
        for job in lost.map(|(&job, _)| job).collect::<Vec<JobId>>() {
            for other in (0..self.scenario.nodes).filter(|&other| other != number) {
                let node = &self.nodes[other as usize];
                let local = node.jobs.get(&job).filter(|local| local.runs());
                let (Some(local), incarnation) = (local, node.incarnation) else { continue };
                let Some(&rank) = local.alive.first() else { continue };
                if self.random.chance(50) {
                    self.ledger.failed_for_loss.insert((job, rank));
                    let fails = true;
                    let exits = Event::RankExits { node: other, incarnation, job, rank, fails };
                    self.soon(0, 200 * MS, exits);
                }
            }
        }
    }

    /// As it was told to: nothing runs any more.
    fn node_stops(&mut self, number: u32) {
        let node = self.node(number);
        assert!(node.jobs.is_empty(), "node {number} stops and leaves something");
        node.held.clear();
        node.agent = None;
        node.parent = None;
        self.break_links_of(Parent::Node(NodeId(number)));
    }

    pub fn agent_event(&mut self, number: u32, event: AgentEvent) {
        self.trace(format_args!("node {number} hears"), &event);
        let now = self.now;
        if self.scenario.faults.restarts && self.nodes[number as usize].agent.is_some() {
            self.keep_event(number, &event);
        }
        let Some(agent) = &mut self.node(number).agent else { return };
        agent.handle(now, event);
        let mut actions = Vec::new();
        while let Some(action) = agent.poll_action() {
            actions.push(action);
        }
        let timeout = agent.next_timeout();
        for action in actions {
            self.trace(format_args!("node {number}"), &action);
            self.act(number, action);
        }
        let node = self.node(number);
        if let Some(at) = timeout
            && node.armed.is_none_or(|armed| at < armed)
        {
            node.armed = Some(at);
            let incarnation = node.incarnation;
            self.at(at.saturating_sub(now), Event::NodeTimer { node: number, incarnation });
        }
    }

    pub fn node_timer(&mut self, node: u32, incarnation: u64) {
        if self.nodes[node as usize].alive(incarnation) {
            self.node(node).armed = None;
            self.agent_event(node, AgentEvent::Timeout);
        }
    }

    pub fn later(&mut self, number: u32, low: u64, high: u64, event: AgentEvent) {
        let incarnation = self.nodes[number as usize].incarnation;
        self.soon(low, high, Event::Driver { node: number, incarnation, event });
    }

    fn act(&mut self, number: u32, action: AgentAction) {
        match action {
            AgentAction::ToParent(report) => {
                self.note_lease_over(number, &report);
                if let Some(id) = self.nodes[number as usize].parent {
                    self.send_up(id, report);
                }
            }
            AgentAction::ToChild(link, nodes, command) => self.send_down(link.0, nodes, command),
            AgentAction::Revoke(_) => {}
            AgentAction::Prepare(spec) => self.prepare(number, *spec),
            AgentAction::Start { job, addresses, .. } => self.start(number, job, &addresses),
            AgentAction::StoreProgram { hash, offset, total, data } => {
                self.store(number, hash, offset, total, data.len() as u64);
            }
            AgentAction::ProgramMissing(hash) => self.program_missing(number, hash),
            AgentAction::Signal { .. } | AgentAction::Input { .. } | AgentAction::Resize { .. } => {
            }
            AgentAction::LeaseExpired => self.lease_is_over(number),
            AgentAction::Kill { job } => self.kill(number, job),
            AgentAction::Apply(timetable) => {
                let node = self.node(number);
                let newer = |old: &Timetable| {
                    let (old, new) = (old.generation, timetable.generation);
                    old >> 32 != new >> 32 || old < new
                };
                assert!(node.timetable.as_ref().is_none_or(newer), "timetables only get newer");
                assert!(timetable.columns.iter().all(|column| column.node == NodeId(number)));
                node.timetable = Some(timetable);
            }
            AgentAction::Sample { request }
            | AgentAction::SamplePeers { request, .. }
            | AgentAction::SampleChannels { request, .. }
            | AgentAction::SampleLoad { request, .. }
            | AgentAction::SampleTrace { request, .. } => {
                let sample = NodeSample {
                    node: NodeId(number),
                    ranks: Vec::new(),
                    channels: Vec::new(),
                    traces: Vec::new(),
                    load: None,
                    machine_clock: String::new(),
                    switching: SwitchSample::default(),
                    control_messages: MessageCounts::default(),
                    refused: Vec::new(),
                };
                self.later(number, MS, 3 * MS, AgentEvent::Sampled { request, sample });
            }
            AgentAction::Shutdown => self.node_stops(number),
            AgentAction::Exchanged { id, parts } => self.exchanged(number, id, &parts),
            AgentAction::Relayed { .. } | AgentAction::Confirm { .. } => {}
        }
    }

    fn prepare(&mut self, number: u32, spec: JobSpec) {
        let job = spec.job;
        let part =
            spec.layout.iter().find(|part| part.node.0 == number).expect("it has ranks here");
        let alive = (part.first..part.first + part.count).collect();
        let has_program = self.nodes[number as usize].programs.contains(&spec.request.program.hash);
        let hash = spec.request.program.hash;
        let local = Local {
            spec,
            alive,
            started: false,
            killed: false,
            waits_for_program: !has_program,
            idle: false,
            stirs: 0,
            exchanged: 0,
            started_at: None,
            born: self.nodes[number as usize].incarnation,
        };
        assert!(self.node(number).jobs.insert(job, local).is_none(), "prepared twice");
        if !has_program {
            self.later(number, 0, MS, AgentEvent::ProgramNeeded { job, hash });
        } else {
            self.finish_prepare(number, job);
        }
    }

    fn finish_prepare(&mut self, number: u32, job: JobId) {
        let count = {
            let local = self.node(number).jobs.get_mut(&job).expect("prepared");
            local.waits_for_program = false;
            local.alive.len()
        };
        let result = if self.scenario.faults.ranks && !self.calm && self.random.chance(1) {
            self.ledger.refused.insert(job);
            let message = "no memory".into();
            Err(Refusal { kind: RefusalKind::NoResources, message })
        } else {
            let address = RankAddress { ip: [10, 0, 0, number as u8].into(), port: 1 };
            Ok(PreparedRanks { addresses: vec![address; count], max_datagram: 1400 })
        };
        self.later(number, MS / 2, 5 * MS, AgentEvent::Prepared { job, result });
    }

    fn store(&mut self, number: u32, hash: ContentHash, offset: u64, total: u64, length: u64) {
        let node = self.node(number);
        if offset == 0 {
            node.storing.insert(hash, 0);
        }
        if node.storing.get(&hash) != Some(&offset) {
            return;
        }
        node.storing.insert(hash, offset + length);
        if offset + length == total {
            node.programs.insert(hash);
            let waiting: Vec<JobId> = self.waiting_for(number, hash);
            for job in waiting {
                self.finish_prepare(number, job);
            }
        }
    }

    fn waiting_for(&self, number: u32, hash: ContentHash) -> Vec<JobId> {
        let jobs = self.nodes[number as usize].jobs.iter();
        let waits = |local: &Local| {
            local.waits_for_program && !local.killed && local.spec.request.program.hash == hash
        };
        jobs.filter(|(_, local)| waits(local)).map(|(&job, _)| job).collect()
    }

    fn program_missing(&mut self, number: u32, hash: ContentHash) {
        for job in self.waiting_for(number, hash) {
            let message = "no program".into();
            let result = Err(Refusal { kind: RefusalKind::NotFound, message });
            self.later(number, 0, MS, AgentEvent::Prepared { job, result });
        }
    }

    fn start(&mut self, number: u32, job: JobId, addresses: &[RankAddress]) {
        let now = self.now;
        let local = self.node(number).jobs.get_mut(&job).expect("start of a prepared job");
        assert!(!local.started && !local.killed, "job {job} started in a wrong state");
        local.started = true;
        self.hold_started(number, job);
        self.check_only_start(number, job);
        let local = self.node(number).jobs.get_mut(&job).expect("it is there");
        local.started_at = Some(now);
        let ranks: Vec<u32> = local.alive.iter().copied().collect();
        assert_eq!(addresses.len() as u32, local.spec.request.ranks);
        let plan = self.plan_of(job);
        for rank in ranks {
            self.ledger.rank_started(job, rank);
            let data = format!("rank {rank}\n").into_bytes();
            let stream = Stream::Out;
            self.later(number, 0, MS, AgentEvent::Output { job, rank, stream, data });
            let fails = plan.fails == Some(rank);
            if plan.runs_for_ever && !fails {
                continue;
            }
            let incarnation = self.nodes[number as usize].incarnation;
            let exits = Event::RankExits { node: number, incarnation, job, rank, fails };
            self.soon(2 * MS, plan.longest, exits);
        }
        // Where the messages of a large job are counted its ranks only compute.
        if self.scenario.jobs > 0 {
            self.stirs_later(number, job);
        }
        self.later(number, 0, MS, AgentEvent::Started { job, result: Ok(()) });
        self.contribute(number, job);
    }

    pub fn stirs_later(&mut self, number: u32, job: JobId) {
        let incarnation = self.nodes[number as usize].incarnation;
        self.soon(20 * MS, 700 * MS, Event::Stirs { node: number, incarnation, job });
    }

    /// The ranks of a job fall idle on a node, or have something to do again.
    pub fn stirs(&mut self, number: u32, incarnation: u64, job: JobId) {
        if self.calm || !self.nodes[number as usize].alive(incarnation) {
            return;
        }
        // Mostly idle, or jobs with many nodes would never be idle.
        let idle = self.random.chance(75);
        let Some(local) = self.node(number).jobs.get_mut(&job).filter(|local| !local.killed) else {
            return;
        };
        let stirs = local.stirs + 1;
        let changed = local.idle != idle;
        if changed {
            (local.idle, local.stirs) = (idle, stirs);
            self.agent_event(number, AgentEvent::Idle { job, idle });
        }
        if changed && !idle {
            self.at(NOTICED, Event::Stirred { node: number, incarnation, job, stirs });
        }
        self.stirs_later(number, job);
    }

    /// Since so long the job has had something to do there.
    pub fn stirred(&mut self, number: u32, incarnation: u64, job: JobId, stirs: u64) {
        if !self.nodes[number as usize].alive(incarnation) {
            return;
        }
        let local = self.nodes[number as usize].jobs.get(&job);
        if let (Some(local), Some(head)) = (local, &self.head.head)
            && local.stirs == stirs
            // A node that sleeps passes nothing on.
            && self.nodes.iter().all(|node| node.asleep_until < self.now - NOTICED)
            && !self.head.machine.stood_still_since(self.now - NOTICED)
        {
            let idle = &head.timetable().idle;
            let last = head.records().find(|record| record.spec.job == job.number());
            let is_last = last.is_some_and(|record| record.restarts == job.restarts());
            let idle = is_last && idle.contains(&job.number());
            assert!(!idle, "job {job} has something to do on node {number}");
        }
    }

    pub fn rank_exits(
        &mut self,
        number: u32,
        incarnation: u64,
        job: JobId,
        rank: u32,
        fails: bool,
    ) {
        if !self.nodes[number as usize].kept(incarnation) {
            return;
        }
        let exit = Event::RankExits { node: number, incarnation, job, rank, fails };
        if self.nodes[number as usize].agent.is_none() {
            // Nobody hears of it yet.
            return self.at(5 * MS, exit);
        }
        if !fails && self.exchanges_first(number, job, exit) {
            return;
        }
        let Some(local) = self.node(number).jobs.get_mut(&job) else { return };
        if local.killed || !local.alive.remove(&rank) {
            return;
        }
        let last = local.alive.is_empty();
        // As a program that writes the rest of its buffer.
        let (stream, data) = (Stream::Out, format!("rank {rank} ends\n").into_bytes());
        self.agent_event(number, AgentEvent::Output { job, rank, stream, data });
        // So far. What it says at the end counts in the place of this.
        let used = PartUse { used_us: 1, ..PartUse::default() };
        self.agent_event(number, AgentEvent::Used { job, used });
        let status = if fails { RankStatus::Exited(3) } else { RankStatus::Exited(0) };
        self.ledger.exits.insert((job, rank), status);
        if fails {
            self.ledger.must_end(job, self.now);
        }
        self.agent_event(number, AgentEvent::RankExited { job, rank, status });
        if last && self.nodes[number as usize].jobs.get(&job).is_some_and(|local| !local.killed) {
            self.later(number, MS, 3 * MS, AgentEvent::Freed { job });
        }
    }

    fn kill(&mut self, number: u32, job: JobId) {
        let incarnation = self.nodes[number as usize].incarnation;
        let Some(local) = self.node(number).jobs.get_mut(&job) else {
            self.later(number, 0, MS, AgentEvent::Freed { job });
            return;
        };
        if local.killed {
            // A former daemon killed it, and the head does not know how far it came.
            assert!(local.born < incarnation, "killed twice");
            return;
        }
        local.killed = true;
        self.node(number).held.entry(job).or_default().killed = true;
        let local = self.node(number).jobs.get_mut(&job).expect("it is there");
        let ranks = std::mem::take(&mut local.alive);
        for rank in ranks {
            let status = RankStatus::Signalled(9);
            self.later(number, 0, MS, AgentEvent::RankExited { job, rank, status });
        }
        self.later(number, MS, 3 * MS, AgentEvent::Freed { job });
    }

    pub fn driver(&mut self, number: u32, incarnation: u64, event: AgentEvent) {
        if !self.nodes[number as usize].alive(incarnation) {
            return self.driver_of_former(number, incarnation, event);
        }
        self.driver_now(number, event);
    }

    /// What the daemon did not hear before it ended: what ranks of jobs that run on wrote, and how they ended.
    pub fn driver_of_former(&mut self, number: u32, incarnation: u64, event: AgentEvent) {
        let node = &self.nodes[number as usize];
        let (AgentEvent::Output { job, .. } | AgentEvent::RankExited { job, .. }) = &event else {
            return;
        };
        let killed = matches!(&event, AgentEvent::RankExited { .. })
            && node.held.get(job).is_some_and(|held| held.killed);
        let born = |local: &Local| local.born <= incarnation;
        let runs = !killed && node.jobs.get(job).is_some_and(born);
        if !node.kept(incarnation) || !runs {
            return;
        }
        if node.agent.is_none() {
            self.node(number).missed.push((incarnation, event));
            return;
        }
        self.driver_now(number, event);
    }

    fn driver_now(&mut self, number: u32, event: AgentEvent) {
        if let AgentEvent::Freed { job } = event
            && let Some(local) = self.node(number).jobs.remove(&job)
            && local.started
        {
            self.agent_event(number, AgentEvent::Used { job, used: used_by(job, number) });
        }
        self.agent_event(number, event);
    }
}
