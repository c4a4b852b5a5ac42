//! An administrator who drains nodes and has them take jobs again, whatever breaks meanwhile.

use kumi_control::head::HeadEvent;
use kumi_control::message::{ClientRequest, Drain, JobRecord, JobState};
use kumi_sched::NodeId;

use crate::clients::ROOT;
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
            let drained = self.head.drains.iter().any(|drain| drain.node == part.node);
            assert!(!drained, "job {} was placed on drained node {}", record.spec.job, part.node);
        }
    }
}
