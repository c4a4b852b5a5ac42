//! An administrator who drains nodes, has them take jobs again, and adds some, whatever breaks meanwhile.

use kumi_control::head::HeadEvent;
use kumi_control::message::{ClientRequest, Drain, JobRecord, JobState};
use kumi_sched::NodeId;

use crate::clients::ROOT;
use crate::nodes::NodeSim;
use crate::world::{Event, MS, World};

impl World {
    /// Nodes are drained at random, some of them twice.
    pub fn plan_drains(&mut self) {
        for _ in 0..1 + self.scenario.nodes / 4 {
            self.soon(0, 4_000 * MS, Event::Drains);
        }
    }

    /// Drains a node, for a while.
    pub fn drains(&mut self) {
        let node = self.random.within(0, u64::from(self.scenario.nodes) - 1) as u32;
        let nodes = vec![NodeId(node)];
        self.administrate(ClientRequest::Drain { nodes, reason: "a test".into() });
        self.soon(50 * MS, 2_000 * MS, Event::Resumes(node));
    }

    /// The node takes jobs again.
    pub fn resumes(&mut self, node: u32) {
        self.administrate(ClientRequest::Resume { nodes: vec![NodeId(node)] });
    }

    /// All nodes take jobs again.
    pub fn resume_all(&mut self) {
        let nodes = (0..self.scenario.nodes).map(NodeId).collect();
        self.administrate(ClientRequest::Resume { nodes });
    }

    /// Nodes are added at random.
    pub fn plan_additions(&mut self) {
        for _ in 0..3 {
            self.soon(0, 4_000 * MS, Event::AddsNode);
        }
    }

    /// Asks the head for one more node.
    pub fn adds_node(&mut self) {
        self.administrate(ClientRequest::AddNode { definition: "one more".into() });
    }

    /// The driver writes the configuration; the head hears of it behind what it does now. Then the node's machine starts.
    pub fn node_is_added(&mut self) {
        let number = self.scenario.nodes;
        self.scenario.nodes += 1;
        self.nodes.push(NodeSim::default());
        self.head.config.nodes.push(format!("n{number}"));
        self.at(0, Event::NodesConfigured);
        self.soon(MS, 300 * MS, Event::NodeStarts(number));
    }

    /// A head that has started since has read the configuration.
    pub fn nodes_configured(&mut self) {
        let names = self.head.config.nodes.clone();
        if self.head.head.is_some() {
            self.head_event(HeadEvent::Nodes { names, removed: Vec::new() });
        }
    }

    /// A head that is away hears nothing of it.
    fn administrate(&mut self, request: ClientRequest) {
        if self.head.head.is_some() {
            let id = self.new_client();
            self.head_event(HeadEvent::Client(id, ROOT, request));
        }
    }

    /// The driver keeps the list.
    pub fn keep_drains(&mut self, drains: Vec<Drain>) {
        self.head.drains = drains;
    }

    /// A job that gets its nodes gets none that is drained.
    pub fn check_placement(&self, record: &JobRecord) {
        if record.state != JobState::Preparing {
            return;
        }
        for part in &record.spec.layout {
            let drained = self.head.drains_now.iter().any(|drain| drain.node == part.node);
            assert!(!drained, "job {} was placed on drained node {}", record.spec.job, part.node);
        }
    }
}
