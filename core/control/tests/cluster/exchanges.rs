//! Exchanges of the nodes of each job: each node contributes to some in order, and its ranks do not exit before it has them.
//! Where a job outlives its daemon, what it has contributed and got outlives that, too.

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

/// What a node contributes to the exchange of this number.
fn contribution(local: &Local, number: u32, exchange: u32) -> (ExchangeId, NodeSet, Vec<u8>) {
    let id = ExchangeId { job: local.spec.job, group: GROUP, number: exchange };
    let members = NodeSet::from_nodes(local.spec.layout.iter().map(|part| part.node));
    (id, members, data(id, NodeId(number)))
}

impl World {
    fn local(&mut self, number: u32, job: JobId) -> Option<&mut Local> {
        self.nodes[number as usize].jobs.get_mut(&job)
    }

    /// A node contributes to the exchange that it has not got yet.
    pub fn contribute(&mut self, number: u32, job: JobId) {
        let Some(local) = self.local(number, job) else { return };
        let (id, members, data) = contribution(local, number, local.exchanged);
        self.later(number, 0, 20 * MS, AgentEvent::Exchange { id, members, data });
    }

    /// A new daemon hears of the exchange that the node waits for, and of the last one that it has.
    pub fn contribute_again(&mut self, number: u32, job: JobId) {
        let delay = self.random.within(0, 20) * MS;
        let Some(local) = self.local(number, job) else { return };
        let next = local.exchanged;
        let kept = [next.checked_sub(1), (next < EXCHANGES).then_some(next)].into_iter().flatten();
        let kept: Vec<_> = kept.map(|at| (contribution(local, number, at), at == next)).collect();
        for (at, ((id, members, data), awaited)) in (delay..).zip(kept) {
            let event = AgentEvent::ExchangeAgain { id, members, data, awaited };
            self.later(number, at, at, event);
        }
    }

    /// A node gets an exchange: the one that it waits for, whole, and once.
    pub fn exchanged(&mut self, number: u32, id: ExchangeId, parts: &[Contribution]) {
        // The daemon gets it, and dies before its job does.
        if self.is_kept(id.job) && !self.calm && self.random.chance(15) {
            return self.at(0, Event::NodeRestarts(number));
        }
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
        let waits = self.local(number, job).is_some_and(|local| local.exchanged < EXCHANGES);
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
                let done = local.exchanged == EXCHANGES;
                assert!(since.is_none() || done, "job {job} hangs in an exchange on node {number}");
            }
        }
    }
}
