//! Samples of all nodes for `kumi top` and `kumi stats`, or of a job's with its ranks' peers: one
//! gathering of each kind at a time, bounded in time.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use super::jobs::refusal;
use super::{ClientId, Head};
use crate::message::{ClientReply, Command, Nanos, NodeSample, NodeSet, Refusal, RefusalKind};

/// What has not come by then is missing from the answer.
const PATIENCE: Nanos = 1_000_000_000;

/// One request to the nodes, which answers all clients that asked while it was under way.
#[derive(Debug)]
pub(super) struct SampleRequest {
    request: u64,
    clients: BTreeSet<ClientId>,
    awaiting: BTreeSet<NodeId>,
    samples: Vec<NodeSample>,
    deadline: Nanos,
}

impl SampleRequest {
    pub(super) fn deadline(&self) -> Nanos {
        self.deadline
    }
}

impl Head {
    /// Asks the nodes: all of them, or those of a job for its ranks' peers.
    pub(super) fn sample(&mut self, client: ClientId, job: Option<JobId>) -> Result<(), Refusal> {
        let concerned: Option<NodeSet> = match job {
            Some(id) => Some(self.nodes_of(id)?),
            None => None,
        };
        if let Some(gathering) = self.gatherings.get_mut(&job) {
            gathering.clients.insert(client);
            return Ok(());
        }
        self.requests += 1;
        let request = self.requests;
        let concerns = |node: &NodeId| concerned.as_ref().is_none_or(|nodes| nodes.contains(*node));
        let awaiting: BTreeSet<NodeId> = self.routes.nodes().filter(concerns).collect();
        let nodes = NodeSet::from_nodes(awaiting.iter().copied());
        let gathering = SampleRequest {
            request,
            clients: BTreeSet::from([client]),
            awaiting,
            samples: Vec::new(),
            deadline: self.now.saturating_add(PATIENCE),
        };
        self.gatherings.insert(job, gathering);
        let command = match job {
            Some(job) => Command::SamplePeers { request, job },
            None => Command::Sample { request },
        };
        self.send(&nodes, &command);
        Ok(())
    }

    /// The nodes of a job; that it is known bounds how many gatherings there can be.
    fn nodes_of(&self, id: JobId) -> Result<NodeSet, Refusal> {
        match self.jobs.get(&id) {
            Some(job) => {
                Ok(NodeSet::from_nodes(job.record.spec.layout.iter().map(|part| part.node)))
            }
            None => {
                let message =
                    format!("there is no job {id}; `kumi ps --all` lists those there are");
                Err(refusal(RefusalKind::NoSuchJob, message))
            }
        }
    }

    pub(super) fn samples(&mut self, request: u64, nodes: Vec<NodeSample>) {
        let mut gatherings = self.gatherings.values_mut();
        let Some(gathering) = gatherings.find(|g| g.request == request) else { return };
        for sample in nodes {
            if gathering.awaiting.remove(&sample.node) {
                gathering.samples.push(sample);
            }
        }
    }

    pub(super) fn sampling_without(&mut self, nodes: &[NodeId]) {
        for gathering in self.gatherings.values_mut() {
            gathering.awaiting.retain(|node| !nodes.contains(node));
        }
    }

    pub(super) fn check_gathering(&mut self) {
        let now = self.now;
        let due = |g: &SampleRequest| g.awaiting.is_empty() || now >= g.deadline;
        let ready: Vec<Option<JobId>> =
            self.gatherings.iter().filter(|(_, g)| due(g)).map(|(&job, _)| job).collect();
        for mut gathering in
            ready.iter().filter_map(|job| self.gatherings.remove(job)).collect::<Vec<_>>()
        {
            gathering.samples.sort_by_key(|sample| sample.node);
            for client in gathering.clients {
                self.reply(client, ClientReply::Samples(gathering.samples.clone()));
            }
        }
    }
}
