//! Links of nodes to the head that each has found: ordered, delayed, and lost with whatever is on them when they break.

use kumi_control::agent::{AgentEvent, LinkId};
use kumi_control::head::HeadEvent;
use kumi_control::message::{Command, Down, NodeSet, Report, Up};

use crate::world::{Event, MS, SILENCE, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Head,
    Node,
}

#[derive(Debug)]
pub struct Link {
    pub node: usize,
    pub head: usize,
    /// Of the head's process.
    epoch: u64,
    open: bool,
    noticed_by_head: bool,
    last_up: u64,
    last_down: u64,
}

impl World {
    fn epoch(&self, head: usize) -> u64 {
        self.heads[head].epoch
    }

    /// A node without a link calls one head after the other.
    pub fn connect(&mut self, node: usize) {
        if self.nodes[node].parent.is_some() {
            return;
        }
        let head = self.nodes[node].likely;
        // One that stands still does not finish the handshake.
        let answers = self.heads[head].listens() && self.heads[head].frozen_until <= self.now;
        if !answers || self.parted.contains(&(node, head)) {
            self.nodes[node].likely = (head + 1) % self.heads.len();
            self.soon(20 * MS, 150 * MS, Event::Connect { node });
            return;
        }
        self.next_id += 1;
        let (id, epoch) = (self.next_id, self.epoch(head));
        let link = Link {
            node,
            head,
            epoch,
            open: true,
            noticed_by_head: false,
            last_up: 0,
            last_down: 0,
        };
        self.links.insert(id, link);
        self.nodes[node].parent = Some(id);
        self.head_event(head, HeadEvent::ChildUp(LinkId(id)));
        self.agent_event(node, AgentEvent::ParentUp);
    }

    fn arrival(&mut self, id: u64, up: bool) -> Option<u64> {
        let time = self.now + self.random.within(MS / 10, 3 * MS);
        let link = self.links.get_mut(&id).filter(|link| link.open)?;
        let last = if up { &mut link.last_up } else { &mut link.last_down };
        *last = time.max(*last);
        Some(*last - self.now)
    }

    pub fn send_up(&mut self, id: u64, report: Report) {
        if let Some(delay) = self.arrival(id, true) {
            let head = self.links[&id].head;
            self.at(delay, Event::Up { head, link: id, up: Up::Report(report) });
        }
    }

    pub fn send_down(&mut self, id: u64, nodes: NodeSet, command: Command) {
        if let Some(delay) = self.arrival(id, false) {
            self.at(delay, Event::Down { link: id, down: Down::Command(nodes, command) });
        }
    }

    pub fn deliver_up(&mut self, id: u64, up: Up) {
        let link = &self.links[&id];
        let head = link.head;
        if link.open && !link.noticed_by_head && self.epoch(head) == link.epoch {
            self.head_event(head, HeadEvent::Child(LinkId(id), up));
        }
    }

    pub fn deliver_down(&mut self, id: u64, down: Down) {
        let link = &self.links[&id];
        let node = link.node;
        if link.open && self.nodes[node].parent == Some(id) {
            self.agent_event(node, AgentEvent::Parent(down));
        }
    }

    /// Nothing arrives any more. Both ends find out in their time.
    fn break_link(&mut self, id: u64, (soonest, latest): (u64, u64)) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.open) else { return };
        link.open = false;
        let head = link.head;
        for end in [End::Head, End::Node] {
            self.soon(soonest, latest, Event::Notice { head, link: id, end });
        }
    }

    pub fn notice(&mut self, id: u64, end: End) {
        let link = self.links.get_mut(&id).expect("links are not forgotten");
        let (node, head, epoch) = (link.node, link.head, link.epoch);
        match end {
            End::Head => {
                link.noticed_by_head = true;
                if self.epoch(head) == epoch {
                    self.head_event(head, HeadEvent::ChildDown(LinkId(id)));
                }
            }
            End::Node if self.nodes[node].parent == Some(id) => {
                let node_state = &mut self.nodes[node];
                node_state.parent = None;
                node_state.likely = (head + 1) % self.heads.len();
                self.agent_event(node, AgentEvent::ParentDown);
                self.soon(MS, 10 * MS, Event::Connect { node });
            }
            End::Node => {}
        }
    }

    fn links_of(&self, head: usize) -> Vec<u64> {
        let open = self.links.iter().filter(|(_, link)| link.open && link.head == head);
        open.map(|(&id, _)| id).collect()
    }

    /// The links of a process that is gone: the systems at both ends say so.
    pub fn break_links_of(&mut self, head: usize) {
        for id in self.links_of(head) {
            self.break_link(id, (0, 10 * MS));
        }
    }

    /// Those who have heard nothing of a head for too long look for another.
    pub fn head_is_silent(&mut self, head: usize) {
        if self.heads[head].frozen_until > self.now {
            for id in self.links_of(head) {
                self.break_link(id, (0, 300 * MS));
            }
        }
    }

    /// Some nodes and heads do not hear of each other for a while.
    pub fn part(&mut self) {
        self.part_heads();
        for node in 0..self.nodes.len() {
            for head in 0..self.heads.len() {
                if self.random.chance(30) {
                    self.parted.insert((node, head));
                }
            }
        }
        let parted: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, link)| link.open && self.parted.contains(&(link.node, link.head)))
            .map(|(&id, _)| id)
            .collect();
        for id in parted {
            self.break_link(id, (SILENCE / 2, SILENCE));
        }
        self.soon(200 * MS, 8_000 * MS, Event::Heal);
    }
}
