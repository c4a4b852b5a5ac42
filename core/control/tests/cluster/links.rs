//! Links: ordered, delayed, and lost with whatever is on them when they break.

use kumi_control::agent::{AgentEvent, LinkId};
use kumi_control::head::HeadEvent;
use kumi_control::message::{Command, Down, NodeSet, Report, Up};
use kumi_control::tree::{Parent, parent_candidates};
use kumi_sched::NodeId;

use crate::world::{Event, MS, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Parent,
    Child,
}

#[derive(Debug)]
pub struct Connection {
    pub child: u32,
    pub child_incarnation: u64,
    pub parent: Parent,
    /// Of the parent daemon, or the head's epoch.
    pub parent_incarnation: u64,
    pub open: bool,
    /// What was sent before it broke still arrives.
    drains: bool,
    broken_at: u64,
    noticed_by_parent: bool,
    noticed_by_child: bool,
    last_up: u64,
    last_down: u64,
    slow: u64,
}

impl World {
    fn parent_alive(&self, connection: &Connection) -> bool {
        match connection.parent {
            Parent::Head => self.head.alive(connection.parent_incarnation),
            Parent::Node(node) => self.nodes[node.0 as usize].alive(connection.parent_incarnation),
        }
    }

    fn separated(&self, child: u32, parent: Parent) -> bool {
        let parent_cut = match parent {
            Parent::Head => false,
            Parent::Node(node) => self.cut_off.contains(&node.0),
        };
        self.cut_off.contains(&child) != parent_cut
    }

    /// A daemon without a parent tries the next candidate.
    pub fn connect(&mut self, node: u32, incarnation: u64, candidate: usize) {
        let sim = &self.nodes[node as usize];
        if !sim.alive(incarnation) || sim.parent.is_some() {
            return;
        }
        let candidates =
            parent_candidates(NodeId(node), self.scenario.nodes, self.scenario.fan_out);
        let parent = candidates[candidate];
        let reachable = match parent {
            // One that stands still does not finish the handshake.
            Parent::Head => self.head.current_epoch().filter(|_| !self.head_stands_still()),
            Parent::Node(node) if self.sleeps(node.0) => None,
            Parent::Node(node) => self.nodes[node.0 as usize].current_incarnation(),
        };
        let parent_incarnation = match reachable {
            Some(incarnation) if !self.separated(node, parent) => incarnation,
            _ => {
                let next = (candidate + 1) % candidates.len();
                let wait = if next == 0 { 150 * MS } else { 20 * MS };
                self.soon(
                    wait,
                    wait + 50 * MS,
                    Event::Connect { node, incarnation, candidate: next },
                );
                return;
            }
        };
        self.next_connection += 1;
        let id = self.next_connection;
        let slow = self.random.within(20_000, 2 * MS);
        let connection = Connection {
            child: node,
            child_incarnation: incarnation,
            parent,
            parent_incarnation,
            open: true,
            drains: false,
            broken_at: 0,
            noticed_by_parent: false,
            noticed_by_child: false,
            last_up: 0,
            last_down: 0,
            slow,
        };
        self.connections.insert(id, connection);
        self.nodes[node as usize].parent = Some(id);
        match parent {
            Parent::Head => self.head_event(HeadEvent::ChildUp(LinkId(id))),
            Parent::Node(parent) => self.agent_event(parent.0, AgentEvent::ChildUp(LinkId(id))),
        }
        self.agent_event(node, AgentEvent::ParentUp);
    }

    fn delay(&mut self, id: u64, up: bool) -> Option<u64> {
        let jitter = self.random.next();
        let connection = self.connections.get_mut(&id)?;
        if !connection.open {
            return None;
        }
        let slow = connection.slow;
        let last = if up { &mut connection.last_up } else { &mut connection.last_down };
        *last = (self.now + slow / 2 + jitter % slow).max(*last);
        Some(*last - self.now)
    }

    pub fn send_up(&mut self, id: u64, report: Report) {
        self.ledger.control_messages += 1;
        if let Some(delay) = self.delay(id, true) {
            self.at(delay, Event::Up { connection: id, up: Up::Report(report) });
        }
    }

    pub fn send_down(&mut self, id: u64, nodes: NodeSet, command: Command) {
        self.ledger.control_messages += 1;
        if let Some(delay) = self.delay(id, false) {
            self.at(delay, Event::Down { connection: id, down: Down::Command(nodes, command) });
        }
    }

    pub fn deliver_up(&mut self, id: u64, up: Up) {
        let Some(connection) = self.connections.get(&id) else { return };
        let arrives = connection.open || connection.drains;
        if !arrives || connection.noticed_by_parent || !self.parent_alive(connection) {
            return;
        }
        match connection.parent {
            Parent::Head => self.head_event(HeadEvent::Child(LinkId(id), up)),
            Parent::Node(node) => self.agent_event(node.0, AgentEvent::Child(LinkId(id), up)),
        }
    }

    pub fn deliver_down(&mut self, id: u64, down: Down) {
        let Some(connection) = self.connections.get(&id) else { return };
        let child = connection.child;
        let arrives = connection.open || connection.drains;
        let current = self.nodes[child as usize].parent == Some(id);
        if arrives && current && self.nodes[child as usize].alive(connection.child_incarnation) {
            let granted = match &down {
                Down::Command(nodes, Command::Lease { until, nanos })
                    if nodes.contains(NodeId(child)) =>
                {
                    // Clocks of nodes are right here.
                    Some(until.0.min(self.now + nanos)).filter(|&until| until > self.now)
                }
                _ => None,
            };
            self.agent_event(child, AgentEvent::Parent(down));
            // A lease that was over before has ended what ran.
            self.ledger.leased_until.extend(granted.map(|until| (child, until)));
        }
    }

    /// `abruptly`: an end died, and the other end's system says so. Otherwise nothing arrives any
    /// more, and the ends find out by the silence, each in its time.
    pub fn break_link(&mut self, id: u64, abruptly: bool) {
        let drains = abruptly && self.random.chance(50);
        self.disturb_below(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.open {
            return;
        }
        connection.open = false;
        connection.drains = drains;
        connection.broken_at = self.now;
        let busy = connection.last_up.max(connection.last_down).saturating_sub(self.now);
        for end in [End::Parent, End::Child] {
            let (low, high) = if abruptly { (busy, busy + 10 * MS) } else { (300 * MS, 600 * MS) };
            self.soon(low, high, Event::Notice { connection: id, end });
        }
    }

    pub fn notice(&mut self, id: u64, end: End) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match end {
            End::Parent if !connection.noticed_by_parent => {
                connection.noticed_by_parent = true;
                let connection = &self.connections[&id];
                if !self.parent_alive(connection) {
                    return;
                }
                match connection.parent {
                    Parent::Head => self.head_event(HeadEvent::ChildDown(LinkId(id))),
                    Parent::Node(node) => {
                        self.agent_event(node.0, AgentEvent::ChildDown(LinkId(id)));
                    }
                }
            }
            End::Child if !connection.noticed_by_child => {
                connection.noticed_by_child = true;
                let (child, incarnation) = (connection.child, connection.child_incarnation);
                let sim = &mut self.nodes[child as usize];
                if sim.alive(incarnation) && sim.parent == Some(id) {
                    sim.parent = None;
                    self.agent_event(child, AgentEvent::ParentDown);
                    self.soon(
                        MS,
                        10 * MS,
                        Event::Connect { node: child, incarnation, candidate: 0 },
                    );
                }
            }
            End::Parent | End::Child => {}
        }
    }

    /// The node itself and all that reach the head through it are disturbed now.
    fn disturb_below(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        self.disturb(connection.child);
    }

    pub fn disturb(&mut self, top: u32) {
        for node in 0..self.scenario.nodes {
            let mut at = node;
            loop {
                if at == top {
                    self.ledger.disturbed.insert(node, self.now);
                    break;
                }
                let parent =
                    self.nodes[at as usize].parent.and_then(|id| self.connections.get(&id));
                match parent.map(|connection| connection.parent) {
                    Some(Parent::Node(parent)) => at = parent.0,
                    Some(Parent::Head) | None => break,
                }
            }
        }
    }

    pub fn break_some_link(&mut self) {
        let open: Vec<u64> =
            self.connections.iter().filter(|(_, c)| c.open).map(|(&id, _)| id).collect();
        if self.calm || open.is_empty() {
            return;
        }
        let id = open[self.random.within(0, open.len() as u64 - 1) as usize];
        let abruptly = self.random.chance(50);
        self.break_link(id, abruptly);
    }

    /// Some nodes are cut off from the head's side, for less or more than a lease.
    pub fn partition(&mut self) {
        if self.calm {
            return;
        }
        let percent = self.random.within(10, 60);
        for node in 0..self.scenario.nodes {
            if self.random.chance(percent) {
                self.cut_off.insert(node);
            }
        }
        let separated =
            self.connections.iter().filter(|(_, c)| c.open && self.separated(c.child, c.parent));
        let broken: Vec<u64> = separated.map(|(&id, _)| id).collect();
        for id in broken {
            self.break_link(id, false);
        }
        self.soon(200 * MS, 6_000 * MS, Event::Heal);
    }

    /// The links of a node that says nothing. What was sent to it arrives when it listens again.
    pub fn give_links_up(&mut self, node: u32) {
        let of =
            |c: &Connection| c.open && (c.child == node || c.parent == Parent::Node(NodeId(node)));
        let broken: Vec<u64> =
            self.connections.iter().filter(|(_, c)| of(c)).map(|(&id, _)| id).collect();
        for id in broken {
            self.break_link(id, false);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.drains = true;
            }
        }
    }

    /// The links of a process that died.
    pub fn break_links_of(&mut self, parent: Parent) {
        let of = |c: &Connection| {
            c.open && (c.parent == parent || Parent::Node(NodeId(c.child)) == parent)
        };
        let broken: Vec<u64> =
            self.connections.iter().filter(|(_, c)| of(c)).map(|(&id, _)| id).collect();
        for id in broken {
            self.break_link(id, true);
        }
    }
}
