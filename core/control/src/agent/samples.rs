//! Requests for samples of a subtree, gathered for a bounded time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::NodeId;

use crate::message::{Nanos, NodeSample, Report};

/// How long the samples of a subtree are waited for. Those that come later are passed on alone.
const PATIENCE: Nanos = 500_000_000;
/// Requests gathered at once. One more drops the oldest, whose samples then are passed on alone.
const MOST: usize = 64;

#[derive(Debug)]
struct SampleRequest {
    awaiting: BTreeSet<NodeId>,
    samples: Vec<NodeSample>,
    deadline: Nanos,
}

impl SampleRequest {
    fn is_due(&self, now: Nanos) -> bool {
        self.awaiting.is_empty() || now >= self.deadline
    }
}

/// The requests under way, by number.
#[derive(Debug, Default)]
pub(super) struct SampleRequests {
    pending: BTreeMap<u64, SampleRequest>,
}

impl SampleRequests {
    /// A request went to these nodes.
    pub(super) fn begin(&mut self, number: u64, nodes: BTreeSet<NodeId>, now: Nanos) {
        while self.pending.len() >= MOST {
            self.pending.pop_first();
        }
        let deadline = now.saturating_add(PATIENCE);
        let request = SampleRequest { awaiting: nodes, samples: Vec::new(), deadline };
        self.pending.insert(number, request);
    }

    /// Adds samples to their request. Returns a report if they came too late for it.
    pub(super) fn add(&mut self, number: u64, samples: Vec<NodeSample>) -> Option<Report> {
        let Some(request) = self.pending.get_mut(&number) else {
            return Some(Report::Samples { request: number, nodes: samples });
        };
        for sample in samples {
            if request.awaiting.remove(&sample.node) {
                request.samples.push(sample);
            }
        }
        None
    }

    /// Waits no longer for nodes that are not reached any more.
    pub(super) fn forget_nodes(&mut self, nodes: &[NodeId]) {
        for request in self.pending.values_mut() {
            request.awaiting.retain(|node| !nodes.contains(node));
        }
    }

    /// The next report that is complete or late.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<Report> {
        loop {
            let due = self.pending.iter().find(|(_, request)| request.is_due(now));
            let number = *due?.0;
            let request = self.pending.remove(&number)?;
            if !request.samples.is_empty() {
                return Some(Report::Samples { request: number, nodes: request.samples });
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.pending.values().map(|request| request.deadline).min()
    }
}
