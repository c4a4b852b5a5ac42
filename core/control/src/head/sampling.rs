//! Samples of all nodes for `kumi top` and `kumi stats`: one gathering at a time, bounded in time.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kumi_sched::NodeId;

use super::{ClientId, Head};
use crate::message::{ClientReply, Command, Nanos, NodeSample, NodeSet};

/// What has not come by then is missing from the answer.
const PATIENCE: Nanos = 1_000_000_000;

/// One request to the nodes, which answers all clients that asked while it was under way.
#[derive(Debug)]
pub(super) struct Gathering {
    request: u64,
    clients: BTreeSet<ClientId>,
    awaiting: BTreeSet<NodeId>,
    samples: Vec<NodeSample>,
    deadline: Nanos,
}

impl Gathering {
    pub(super) fn deadline(&self) -> Nanos {
        self.deadline
    }
}

impl Head {
    pub(super) fn sample(&mut self, client: ClientId) {
        if let Some(gathering) = &mut self.gathering {
            gathering.clients.insert(client);
            return;
        }
        self.requests += 1;
        let request = self.requests;
        let awaiting: BTreeSet<NodeId> = self.routes.nodes().collect();
        let nodes = NodeSet::from_nodes(awaiting.iter().copied());
        self.gathering = Some(Gathering {
            request,
            clients: BTreeSet::from([client]),
            awaiting,
            samples: Vec::new(),
            deadline: self.now.saturating_add(PATIENCE),
        });
        self.send(&nodes, &Command::Sample { request });
    }

    pub(super) fn samples(&mut self, request: u64, nodes: Vec<NodeSample>) {
        let Some(gathering) = self.gathering.as_mut().filter(|g| g.request == request) else {
            return;
        };
        for sample in nodes {
            if gathering.awaiting.remove(&sample.node) {
                gathering.samples.push(sample);
            }
        }
    }

    pub(super) fn sampling_without(&mut self, nodes: &[NodeId]) {
        if let Some(gathering) = &mut self.gathering {
            gathering.awaiting.retain(|node| !nodes.contains(node));
        }
    }

    pub(super) fn check_gathering(&mut self) {
        let now = self.now;
        let due = |g: &mut Gathering| g.awaiting.is_empty() || now >= g.deadline;
        let Some(mut gathering) = self.gathering.take_if(due) else { return };
        gathering.samples.sort_by_key(|sample| sample.node);
        for client in gathering.clients {
            self.reply(client, ClientReply::Samples(gathering.samples.clone()));
        }
    }
}
