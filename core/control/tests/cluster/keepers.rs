//! Daemons that are started again under their jobs. Something else holds these meanwhile: the files of their output and input, and
//! how their ranks have ended.

use std::collections::BTreeMap;

use kumi_control::agent::{AdoptedJob, AdoptedOutput, AgentEvent};
use kumi_control::message::{
    Command, Down, NodeRanks, PreparedRanks, RankAddress, RankStatus, Stream,
};
use kumi_control::tree::Parent;
use kumi_sched::{JobId, NodeId};

use crate::nodes::used_by;
use crate::world::{Event, MS, World};

/// What is held of a job.
#[derive(Default)]
pub struct Held {
    part: Option<NodeRanks>,
    output: BTreeMap<(u32, Stream), Vec<u8>>,
    acknowledged: BTreeMap<(u32, Stream), u64>,
    exits: BTreeMap<u32, RankStatus>,
    /// How its ranks end from now on says nothing.
    pub killed: bool,
    /// Nothing of it runs, and its use was told.
    over: bool,
}

fn address(node: u32) -> RankAddress {
    RankAddress { ip: [10, 0, 0, node as u8].into(), port: 1 }
}

/// Those with AF_XDP have none.
fn has_keeper(job: JobId) -> bool {
    job.number().0 % 2 == 1
}

impl World {
    /// Whether the job runs on without its daemons.
    pub fn is_kept(&self, job: JobId) -> bool {
        self.scenario.faults.restarts && has_keeper(job)
    }

    /// What the driver tells the agent is also with the keeper.
    pub fn keep_event(&mut self, number: u32, event: &AgentEvent) {
        let held = &mut self.nodes[number as usize].held;
        match event {
            AgentEvent::Output { job, rank, stream, data } => {
                let of_job = held.entry(*job).or_default();
                of_job.output.entry((*rank, *stream)).or_default().extend(data);
            }
            AgentEvent::RankExited { job, rank, status } => {
                held.entry(*job).or_default().exits.insert(*rank, *status);
            }
            AgentEvent::Freed { job } => held.entry(*job).or_default().over = true,
            AgentEvent::Parent(Down::Command(nodes, Command::OutputKept { job, kept, .. }))
                if nodes.contains(NodeId(number)) =>
            {
                let of_job = held.entry(*job).or_default();
                for kept in kept {
                    of_job.acknowledged.insert((kept.rank, kept.stream), kept.next);
                }
            }
            _ => {}
        }
    }

    pub fn hold_started(&mut self, number: u32, job: JobId) {
        let node = &mut self.nodes[number as usize];
        let layout = node.jobs[&job].spec.layout.iter();
        let part = layout.clone().find(|part| part.node.0 == number).cloned();
        node.held.entry(job).or_default().part = part;
    }

    /// The daemon ends, and its started jobs run on.
    pub fn node_restarts(&mut self, number: u32) {
        let node = &self.nodes[number as usize];
        if self.calm || node.agent.is_none() || self.sleeps(number) {
            return;
        }
        self.disturb(number);
        let kept = |job: JobId| self.is_kept(job);
        let running = self.nodes[number as usize].jobs.iter().filter(|(_, local)| local.runs());
        let ended: Vec<JobId> = running.map(|(&job, _)| job).filter(|&job| !kept(job)).collect();
        for job in ended {
            self.ledger.must_end(job, self.now);
        }
        let keeps = self.scenario.faults.restarts;
        let node = &mut self.nodes[number as usize];
        let agent = node.agent.take().expect("it runs");
        node.held_lease = agent.lease_until();
        node.held.retain(|&job, held| {
            keeps && has_keeper(job) && held.part.is_some() && agent.knows(job)
        });
        node.jobs.retain(|&job, local| keeps && has_keeper(job) && local.started);
        node.forget_what_dies();
        self.break_links_of(Parent::Node(NodeId(number)));
        // Mostly within the time for which the head waits.
        let most = if self.random.chance(80) { 700 * MS } else { 2_500 * MS };
        self.soon(10 * MS, most, Event::NodeStarts(number));
    }

    /// A new daemon finds what is held.
    pub fn adopt(&mut self, number: u32) {
        let held = std::mem::take(&mut self.nodes[number as usize].held);
        let lease = self.nodes[number as usize].held_lease.take();
        let mut told = Vec::new();
        for (&job, of_job) in &held {
            let Some(part) = &of_job.part else { continue };
            let mut output = Vec::new();
            for (&(rank, stream), data) in &of_job.output {
                let known = of_job.acknowledged.get(&(rank, stream)).copied().unwrap_or(0);
                let base = known - known.min(self.random.within(0, 5));
                let pieces = data[base as usize..].chunks(7).map(<[u8]>::to_vec).collect();
                output.push(AdoptedOutput { rank, stream, base, pieces });
            }
            let addresses = vec![address(number); part.count as usize];
            let prepared = PreparedRanks { addresses, max_datagram: 1400 };
            let (ranks, over) = ((part.first, part.count), of_job.over);
            let adopted = AdoptedJob { job, ranks, over, prepared, output };
            let agent = self.nodes[number as usize].agent.as_mut().expect("it has started");
            agent.adopt(adopted);
            for (&rank, &status) in of_job.exits.iter().filter(|_| !of_job.killed) {
                told.push(AgentEvent::RankExited { job, rank, status });
            }
            if of_job.over {
                told.push(AgentEvent::Used { job, used: used_by(job, number) });
                told.push(AgentEvent::Freed { job });
            }
        }
        if let Some(until) = lease.filter(|_| !held.is_empty()) {
            let agent = self.nodes[number as usize].agent.as_mut().expect("it has started");
            agent.restore_lease(until);
        }
        let jobs: Vec<JobId> = self.nodes[number as usize].jobs.keys().copied().collect();
        self.nodes[number as usize].held = held;
        for event in told {
            self.agent_event(number, event);
        }
        for (incarnation, event) in std::mem::take(&mut self.nodes[number as usize].missed) {
            self.driver_of_former(number, incarnation, event);
        }
        for job in jobs {
            self.go_on(number, job);
        }
    }

    /// The driver does what it would do next.
    fn go_on(&mut self, number: u32, job: JobId) {
        let Some(local) = self.nodes[number as usize].jobs.get(&job) else { return };
        let (killed, idle) = (local.is_killed(), local.idle);
        if killed || local.alive.is_empty() {
            return self.later(number, MS, 3 * MS, AgentEvent::Freed { job });
        }
        if idle {
            self.later(number, 0, MS, AgentEvent::Idle { job, idle });
        }
        self.stirs_later(number, job);
        self.contribute_again(number, job);
    }
}
