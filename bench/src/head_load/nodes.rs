//! Nodes as a head hears of them: by the links of their daemons, sixteen at the head.

use kumi_control::head::{HeadEvent, LinkId};
use kumi_control::message::{
    JobSpec, NodeDescription, NodeSet, PreparedNode, PreparedRanks, RankAddress, Report, Up,
};
use kumi_control::tree::{DEFAULT_FAN_OUT, subtree};
use kumi_sched::{JobId, NodeId};
use std::collections::BTreeMap;

/// Largest UDP payload of a usual network.
const DATAGRAM: u16 = 1472;

/// All nodes, and the jobs on them.
pub(super) struct Nodes {
    count: u32,
    processors: u32,
    /// By job, the nodes of each link.
    jobs: BTreeMap<JobId, Vec<(LinkId, NodeSet)>>,
}

impl Nodes {
    pub(super) fn new(count: u32, processors: u32) -> Self {
        Self { count, processors, jobs: BTreeMap::new() }
    }

    fn description(&self, node: u32) -> NodeDescription {
        NodeDescription {
            node: NodeId(node),
            incarnation: 1,
            name: format!("node{node}"),
            processors: self.processors,
            memory: 64 << 30,
            devices: Vec::new(),
            max_ranks: 64 * self.processors,
            limits: Vec::new(),
            jobs: Vec::new(),
            path: Vec::new(),
        }
    }

    /// The events with which all attach.
    pub(super) fn attach(&self) -> Vec<HeadEvent> {
        let mut events = Vec::new();
        for child in 0..DEFAULT_FAN_OUT.min(self.count) {
            let id = LinkId(u64::from(child) + 1);
            let below = subtree(NodeId(child), self.count, DEFAULT_FAN_OUT);
            let below = below.iter().map(|node| self.description(node.0)).collect();
            events.push(HeadEvent::ChildUp(id));
            events.push(HeadEvent::Child(id, Up::Report(Report::Attached(below))));
        }
        events
    }

    /// The nodes of a link have prepared a job.
    pub(super) fn prepare(&mut self, link: LinkId, nodes: &NodeSet, spec: &JobSpec) -> Report {
        let parts = spec.layout.iter().filter(|part| nodes.contains(part.node));
        let prepared = parts.map(|part| {
            let [_, _, high, low] = part.node.0.to_be_bytes();
            let address = RankAddress { ip: [10, 0, high, low].into(), port: 9_000 };
            let addresses = vec![address; part.count as usize];
            let result = Ok(PreparedRanks { addresses, max_datagram: DATAGRAM });
            PreparedNode { node: part.node, result }
        });
        let nodes_prepared = prepared.collect();
        self.jobs.entry(spec.job).or_default().push((link, nodes.clone()));
        Report::Prepared { job: spec.job, nodes: nodes_prepared }
    }

    /// The events with which a job is over everywhere.
    pub(super) fn free(&mut self, job: JobId) -> Vec<HeadEvent> {
        let parts = self.jobs.remove(&job).unwrap_or_default().into_iter();
        let freed =
            |(link, nodes)| HeadEvent::Child(link, Up::Report(Report::Freed { job, nodes }));
        parts.map(freed).collect()
    }
}
