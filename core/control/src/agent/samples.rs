//! Requests for samples of a subtree, gathered for a bounded time.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kumi_sched::NodeId;

use super::Agent;
use crate::message::{Nanos, NodeSample, Report};

/// How long the samples of a subtree are waited for. Those that come later are passed on alone.
const PATIENCE: Nanos = 500_000_000;
/// Requests gathered at once. One more drops the oldest, whose samples then are passed on alone.
const MOST: usize = 64;

#[derive(Debug)]
pub(super) struct SampleRequest {
    awaiting: BTreeSet<NodeId>,
    samples: Vec<NodeSample>,
    pub(super) deadline: Nanos,
}

impl Agent {
    pub(super) fn gather(&mut self, now: Nanos, request: u64, nodes: BTreeSet<NodeId>) {
        while self.samples.len() >= MOST {
            self.samples.pop_first();
        }
        let deadline = now.saturating_add(PATIENCE);
        let gathering = SampleRequest { awaiting: nodes, samples: Vec::new(), deadline };
        self.samples.insert(request, gathering);
    }

    pub(super) fn sampled(&mut self, request: u64, sample: NodeSample) {
        self.add_samples(request, Vec::from([sample]));
    }

    pub(super) fn add_samples(&mut self, request: u64, samples: Vec<NodeSample>) {
        let Some(gathering) = self.samples.get_mut(&request) else {
            self.report(Report::Samples { request, nodes: samples });
            return;
        };
        for sample in samples {
            if gathering.awaiting.remove(&sample.node) {
                gathering.samples.push(sample);
            }
        }
    }

    pub(super) fn drop_sampled(&mut self, nodes: &[NodeId]) {
        for gathering in self.samples.values_mut() {
            gathering.awaiting.retain(|node| !nodes.contains(node));
        }
    }

    /// Sends what is complete, or late.
    pub(super) fn check_samples(&mut self, now: Nanos) {
        let due =
            |gathering: &SampleRequest| gathering.awaiting.is_empty() || now >= gathering.deadline;
        while let Some(request) =
            self.samples.iter().find(|(_, gathering)| due(gathering)).map(|(&request, _)| request)
        {
            let Some(gathering) = self.samples.remove(&request) else { return };
            if !gathering.samples.is_empty() {
                self.report(Report::Samples { request, nodes: gathering.samples });
            }
        }
    }
}
