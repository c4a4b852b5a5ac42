//! Machines of nodes that sleep: nothing runs there, and what is sent to them waits.

use kumi_control::message::JobState;
use kumi_control::tree::Parent;

use crate::links::End;
use crate::world::{Event, LEASE, MS, SILENCE, World};

impl World {
    /// The node at which something happens.
    fn node_of(&self, event: &Event) -> Option<u32> {
        let parent = |connection: &u64| match self.connections.get(connection)?.parent {
            Parent::Node(node) => Some(node.0),
            Parent::Head => None,
        };
        let child = |connection: &u64| Some(self.connections.get(connection)?.child);
        match event {
            Event::Up { connection, .. } | Event::Notice { connection, end: End::Parent } => {
                parent(connection)
            }
            Event::Down { connection, .. } | Event::Notice { connection, end: End::Child } => {
                child(connection)
            }
            Event::Connect { node, .. }
            | Event::Driver { node, .. }
            | Event::RankExits { node, .. }
            | Event::NodeTimer { node, .. }
            | Event::Stirs { node, .. }
            | Event::Stirred { node, .. } => Some(*node),
            _ => None,
        }
    }

    /// Puts off what happens at a node that sleeps, in order; gives back the rest.
    pub fn while_asleep(&mut self, event: Event) -> Option<Event> {
        let node = self.node_of(&event);
        let wakes = node.map_or(0, |node| self.nodes[node as usize].asleep_until);
        if self.now >= wakes {
            return Some(event);
        }
        self.at(wakes - self.now, event);
        None
    }

    /// Whether a node answers nobody now.
    pub fn sleeps(&self, node: u32) -> bool {
        self.now < self.nodes[node as usize].asleep_until
    }

    pub fn some_node_sleeps(&mut self) {
        let node = self.random.within(0, u64::from(self.scenario.nodes) - 1) as u32;
        if self.calm || self.sleeps(node) || self.nodes[node as usize].agent.is_none() {
            return;
        }
        let time = self.random.within(SILENCE / 2, 2 * LEASE);
        self.nodes[node as usize].asleep_until = self.now + time;
        self.at(SILENCE, Event::NodeIsSilent(node));
        self.at(time + MS, Event::NodeIsAwake(node));
        self.disturb(node);
    }

    /// Its neighbours give their links up. What they sent before waits in its sockets.
    pub fn node_is_silent(&mut self, node: u32) {
        if self.sleeps(node) {
            self.give_links_up(node);
        }
    }

    /// It has heard what waited, and runs nothing of jobs that have ended meanwhile.
    pub fn node_is_awake(&mut self, node: u32) {
        self.disturb(node);
        for (job, local) in &self.nodes[node as usize].jobs {
            let record = self.record_of(job.number()).expect("a record of every job");
            let over =
                matches!(record.state, JobState::Ended(_)) || record.restarts > job.restarts();
            assert!(!(over && local.runs()), "job {job} has ended, and runs on node {node}");
        }
    }
}
