//! Nodes: the real agent, and a driver that runs pretended ranks. What really runs is checked here.

use std::collections::{BTreeMap, BTreeSet};

use kumi_control::agent::{Agent, AgentAction, AgentConfig, AgentEvent};
use kumi_control::message::{
    JobSpec, NodeDescription, PartUse, PreparedRanks, RankAddress, RankStatus, Stream,
};
use kumi_sched::{ClusterTime, JobId, NodeId};

use crate::history::Act;
use crate::world::{Event, MS, World};

pub struct NodeSim {
    agent: Agent,
    pub parent: Option<u64>,
    /// The head to be called next.
    pub likely: usize,
    armed: Option<u64>,
    pub jobs: BTreeMap<JobId, Local>,
}

/// The part of a job on a node.
pub struct Local {
    spec: JobSpec,
    alive: BTreeSet<u32>,
    started: bool,
    killed: bool,
}

impl Local {
    fn runs(&self) -> bool {
        self.started && !self.killed && !self.alive.is_empty()
    }
}

impl NodeSim {
    pub fn new(number: u32) -> Self {
        let description = NodeDescription {
            node: NodeId(number),
            incarnation: 1,
            name: format!("n{number}"),
            processors: 2,
            memory: 0,
            devices: Vec::new(),
            max_ranks: 8,
            limits: Vec::new(),
            jobs: Vec::new(),
            path: Vec::new(),
        };
        let agent = Agent::new(AgentConfig { description });
        Self { agent, parent: None, likely: 0, armed: None, jobs: BTreeMap::new() }
    }

    /// What the agent has not handed over.
    pub fn jobs_of_agent(&self) -> usize {
        self.agent.description().jobs.len()
    }
}

impl World {
    pub fn agent_event(&mut self, number: usize, event: AgentEvent) {
        self.trace(format_args!("node {number} hears"), &event);
        let now = self.now;
        // The cluster's clock is that of the head's machine.
        let head = self.nodes[number].parent.map(|id| self.links[&id].head);
        let cluster = head.map(|head| self.heads[head].clock.of_cluster(now));
        let node = &mut self.nodes[number];
        if let Some(cluster) = cluster {
            node.agent.set_cluster_time(now, ClusterTime(cluster));
        }
        node.agent.handle(now, event);
        let mut actions = Vec::new();
        while let Some(action) = node.agent.poll_action() {
            actions.push(action);
        }
        let timeout = node.agent.next_timeout();
        for action in actions {
            self.trace(format_args!("node {number}"), &action);
            self.node_acts(number, action);
        }
        let node = &mut self.nodes[number];
        if let Some(at) = timeout
            && node.armed.is_none_or(|armed| at < armed)
        {
            node.armed = Some(at);
            self.at(at.saturating_sub(now), Event::NodeTimer { node: number });
        }
    }

    pub fn node_timer(&mut self, node: usize) {
        self.nodes[node].armed = None;
        self.agent_event(node, AgentEvent::Timeout);
    }

    fn later(&mut self, node: usize, low: u64, high: u64, event: AgentEvent) {
        self.soon(low, high, Event::Driver { node, event });
    }

    fn node_acts(&mut self, number: usize, action: AgentAction) {
        match action {
            AgentAction::ToParent(report) => {
                if let Some(id) = self.nodes[number].parent {
                    self.send_up(id, report);
                }
            }
            AgentAction::Prepare(spec) => self.prepare(number, *spec),
            AgentAction::Start { job, .. } => self.start(number, job),
            AgentAction::Kill { job } => self.kill(number, job),
            AgentAction::LeaseExpired => self.leases_over += 1,
            AgentAction::Shutdown | AgentAction::ToChild(..) => {
                unreachable!("nobody asks for it here")
            }
            // Timetables, signals and the like: ranks are only pretended.
            _ => {}
        }
    }

    fn prepare(&mut self, number: usize, spec: JobSpec) {
        let job = spec.job;
        let here = |part: &&kumi_control::message::NodeRanks| part.node.0 as usize == number;
        let part = spec.layout.iter().find(here).expect("it has ranks here");
        let alive: BTreeSet<u32> = (part.first..part.first + part.count).collect();
        let address = RankAddress { ip: [10, 0, 0, number as u8].into(), port: 1 };
        let prepared = PreparedRanks { addresses: vec![address; alive.len()], max_datagram: 1400 };
        let local = Local { spec, alive, started: false, killed: false };
        assert!(self.nodes[number].jobs.insert(job, local).is_none(), "prepared twice");
        self.later(number, MS / 2, 5 * MS, AgentEvent::Prepared { job, result: Ok(prepared) });
    }

    fn start(&mut self, number: usize, job: JobId) {
        let local = self.nodes[number].jobs.get_mut(&job).expect("start of a prepared job");
        assert!(!local.started && !local.killed, "{job} started in a wrong state");
        local.started = true;
        let (token, ranks, now) = (local.spec.request.token, local.alive.clone(), self.now);
        let plan = self.plan_of(token);
        self.history(token).happens(Act::Started, now);
        for rank in ranks {
            assert!(self.started.insert((token, rank)), "rank {rank} of {job} started twice");
            self.soon(0, 500 * MS, Event::RankWrites { node: number, job, rank });
            let fails = plan.fails == Some(rank);
            if !plan.runs_for_ever || fails {
                let exit = Event::RankExits { node: number, job, rank, fails };
                self.soon(2 * MS, plan.longest, exit);
            }
        }
        self.later(number, 0, MS, AgentEvent::Started { job, result: Ok(()) });
    }

    /// A rank writes as long as it runs.
    pub fn rank_writes(&mut self, node: usize, job: JobId, rank: u32) {
        let local = self.nodes[node].jobs.get(&job).filter(|local| !local.killed);
        if !local.is_some_and(|local| local.alive.contains(&rank)) {
            return;
        }
        let length = self.random.within(1, 40) as usize;
        let stream = if self.random.chance(20) { Stream::Err } else { Stream::Out };
        let data = vec![b'x'; length];
        self.agent_event(node, AgentEvent::Output { job, rank, stream, data });
        self.soon(MS, 700 * MS, Event::RankWrites { node, job, rank });
    }

    pub fn rank_exits(&mut self, number: usize, job: JobId, rank: u32, fails: bool) {
        let Some(local) = self.nodes[number].jobs.get_mut(&job) else { return };
        if local.killed || !local.alive.remove(&rank) {
            return;
        }
        let (last, token, now) = (local.alive.is_empty(), local.spec.request.token, self.now);
        let status = RankStatus::Exited(if fails { 3 } else { 0 });
        if fails {
            self.history(token).may_happen(Act::Failed, now);
        } else {
            self.exited.insert((token, rank));
            let exited = self.exited.iter().filter(|(of, _)| *of == token).count();
            if exited == self.plans[&token].ranks as usize {
                self.history(token).may_happen(Act::Succeeded, now);
            }
        }
        self.agent_event(number, AgentEvent::RankExited { job, rank, status });
        if last && self.nodes[number].jobs.get(&job).is_some_and(|local| !local.killed) {
            self.later(number, MS, 3 * MS, AgentEvent::Freed { job });
        }
    }

    fn kill(&mut self, number: usize, job: JobId) {
        let Some(local) = self.nodes[number].jobs.get_mut(&job) else {
            return self.later(number, 0, MS, AgentEvent::Freed { job });
        };
        assert!(!local.killed, "killed twice");
        local.killed = true;
        for rank in std::mem::take(&mut local.alive) {
            let status = RankStatus::Signalled(9);
            self.later(number, 0, MS, AgentEvent::RankExited { job, rank, status });
        }
        self.later(number, MS, 3 * MS, AgentEvent::Freed { job });
    }

    pub fn driver(&mut self, number: usize, event: AgentEvent) {
        if let AgentEvent::Freed { job } = event
            && let Some(local) = self.nodes[number].jobs.remove(&job)
            && local.started
        {
            let used = PartUse { used_us: 1, ..PartUse::default() };
            self.agent_event(number, AgentEvent::Used { job, used });
        }
        self.agent_event(number, event);
    }

    /// Whoever hears that the job is over meets nothing of it.
    pub fn check_nothing_runs(&self, job: JobId) {
        for (number, node) in self.nodes.iter().enumerate() {
            let of_job = node.jobs.iter().filter(|(start, _)| start.number() == job);
            let runs = of_job.filter(|(_, local)| local.runs()).count();
            assert_eq!(runs, 0, "job {job} has ended, and runs on node {number}");
        }
    }
}
