//! Requests for samples of nodes, each of which answers all clients that ask while it is under way.
//!
//! `kumi top` and `kumi stats` ask for samples of all nodes, or of a job's nodes with its ranks'
//! peers; `kumi debug channel` asks for channels, `kumi trace` for events. At most one request of each kind is under way.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::ClientId;
use crate::message::{Command, Nanos, NodeSample, User};

/// How long the head waits for samples; the answer does without those that are missing.
const PATIENCE: Nanos = 1_000_000_000;

/// Most requests for parts of traces at the same time.
const MOST_TRACES: usize = 64;

/// What samples are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SampleScope {
    /// All nodes and their ranks.
    Nodes,
    /// The ranks of a job with their peers.
    Peers(JobId),
    /// The channels of a job's ranks, or of one of them.
    Channels(JobId, Option<u32>),
    /// The load of all ranks, with or without slices.
    Load {
        /// Whether slices are wanted.
        slices: bool,
    },
    /// The trace of a job's rank from an event of this number on.
    Trace(JobId, u32, u64),
}

impl SampleScope {
    /// What nodes are asked.
    pub(super) fn command(self, request: u64) -> Command {
        match self {
            Self::Nodes => Command::Sample { request },
            Self::Peers(job) => Command::SamplePeers { request, job },
            Self::Channels(job, rank) => Command::SampleChannels { request, job, rank },
            Self::Load { slices } => Command::SampleLoad { request, slices },
            Self::Trace(job, rank, from) => Command::SampleTrace { request, job, rank, from },
        }
    }
}

/// A request to nodes.
#[derive(Debug)]
struct SampleRequest {
    number: u64,
    clients: BTreeMap<ClientId, User>,
    awaiting: BTreeSet<NodeId>,
    samples: Vec<NodeSample>,
    deadline: Nanos,
}

/// The requests under way.
#[derive(Debug, Default)]
pub(super) struct SampleRequests {
    /// By what is asked for.
    pending: BTreeMap<SampleScope, SampleRequest>,
    last_number: u64,
}

impl SampleRequests {
    /// Has the client wait for a request that is under way. Returns whether there is one.
    pub(super) fn join(&mut self, scope: SampleScope, (client, user): (ClientId, &User)) -> bool {
        let Some(request) = self.pending.get_mut(&scope) else { return false };
        request.clients.insert(client, user.clone());
        true
    }

    /// Begins a request to these nodes; returns its number.
    pub(super) fn begin(
        &mut self,
        scope: SampleScope,
        (client, user): (ClientId, &User),
        awaiting: BTreeSet<NodeId>,
        now: Nanos,
    ) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let (clients, deadline) =
            (BTreeMap::from([(client, user.clone())]), now.saturating_add(PATIENCE));
        let request = SampleRequest { number, clients, awaiting, samples: Vec::new(), deadline };
        self.pending.insert(scope, request);
        number
    }

    /// Whether no more parts of traces can be asked for now: unlike other requests, these are of unlimited kinds.
    pub(super) fn too_many_traces(&self) -> bool {
        let of_trace = |scope: &&SampleScope| matches!(scope, SampleScope::Trace(..));
        self.pending.keys().filter(of_trace).count() >= MOST_TRACES
    }

    /// Adds samples that came for the request of this number.
    pub(super) fn add(&mut self, number: u64, samples: Vec<NodeSample>) {
        let mut pending = self.pending.values_mut();
        let Some(request) = pending.find(|request| request.number == number) else { return };
        for sample in samples {
            if request.awaiting.remove(&sample.node) {
                request.samples.push(sample);
            }
        }
    }

    /// Waits no longer for nodes that are not reached any more.
    pub(super) fn forget_nodes(&mut self, nodes: &[NodeId]) {
        for request in self.pending.values_mut() {
            request.awaiting.retain(|node| !nodes.contains(node));
        }
    }

    /// The answers of the requests that are complete or late, with what they are about and the clients to send them to.
    pub(super) fn take_finished(
        &mut self,
        now: Nanos,
    ) -> Vec<(SampleScope, BTreeMap<ClientId, User>, Vec<NodeSample>)> {
        let done = |request: &SampleRequest| request.awaiting.is_empty() || now >= request.deadline;
        let finished: Vec<SampleScope> = self
            .pending
            .iter()
            .filter(|(_, request)| done(request))
            .map(|(&scope, _)| scope)
            .collect();
        let requests = finished.iter().filter_map(|scope| self.pending.remove_entry(scope));
        let answer = |(scope, mut request): (SampleScope, SampleRequest)| {
            request.samples.sort_by_key(|sample| sample.node);
            (scope, request.clients, request.samples)
        };
        requests.map(answer).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.pending.values().map(|request| request.deadline).min()
    }
}
