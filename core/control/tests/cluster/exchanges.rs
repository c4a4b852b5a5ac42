//! Exchanges of the nodes of each job: each node contributes to some in order, and its ranks do not exit before it has them.

use kumi_control::agent::AgentEvent;
use kumi_control::message::{Contribution, ExchangeId, NodeSet};
use kumi_sched::{JobId, NodeId};

use crate::nodes::Local;
use crate::world::{Event, MS, World};

/// Exchanges of a job.
pub const EXCHANGES: u32 = 3;
/// By then an exchange is over where nothing disturbs it.
const SETTLED: u64 = 2_000 * MS;
const GROUP: u64 = 5;

fn data(id: ExchangeId, node: NodeId) -> Vec<u8> {
    format!("{} {} {node}", id.job, id.number).into_bytes()
}

impl World {
    fn local(&mut self, number: u32, job: JobId) -> Option<&mut Local> {
        self.nodes[number as usize].jobs.get_mut(&job)
    }

    /// A node contributes to the exchange that it has not got yet.
    pub fn contribute(&mut self, number: u32, job: JobId) {
        if self.is_kept(job) {
            return;
        }
        let Some(local) = self.local(number, job) else { return };
        let id = ExchangeId { job, group: GROUP, number: local.exchanged };
        let members = NodeSet::from_nodes(local.spec.layout.iter().map(|part| part.node));
        let data = data(id, NodeId(number));
        self.later(number, 0, 20 * MS, AgentEvent::Exchange { id, members, data });
    }

    /// A node gets an exchange: the one that it waits for, whole, and once.
    pub fn exchanged(&mut self, number: u32, id: ExchangeId, parts: &[Contribution]) {
        let Some(local) = self.local(number, id.job) else { return };
        assert_eq!(
            (id.group, id.number),
            (GROUP, local.exchanged),
            "job {}, node {number}",
            id.job
        );
        let expected = local.spec.layout.iter().map(|part| part.node);
        let expected = expected.map(|node| Contribution { node, data: data(id, node) });
        assert_eq!(parts, expected.collect::<Vec<_>>(), "job {}, node {number}", id.job);
        local.exchanged += 1;
        if local.exchanged < EXCHANGES {
            self.contribute(number, id.job);
        }
    }

    /// Puts the exit of a rank off whose node lacks an exchange. Returns whether it did.
    pub fn exchanges_first(&mut self, number: u32, job: JobId, exit: Event) -> bool {
        let kept = self.is_kept(job);
        let waits =
            !kept && self.local(number, job).is_some_and(|local| local.exchanged < EXCHANGES);
        if waits {
            self.soon(5 * MS, 20 * MS, exit);
        }
        waits
    }

    /// No job hangs in an exchange.
    pub fn check_exchanges(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            for (job, local) in &node.jobs {
                let since = local.started_at.filter(|&at| at + SETTLED < self.now);
                let done = local.exchanged == EXCHANGES || self.is_kept(*job);
                assert!(since.is_none() || done, "job {job} hangs in an exchange on node {number}");
            }
        }
    }
}
