//! Leases that the thread of the links renews by itself.
//!
//! The head's main loop grants and renews leases. It may stand still, because some disk does. A node must not lose its jobs for
//! that: its head is there. So the thread of the links remembers the last grant of each link, and repeats it when it is old.
//! It never grants to nodes that the main loop has not granted to, nor after their links have ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kumi_control::head::LinkId;
use kumi_control::message::{Command, Down, Nanos, NodeSet};
use kumi_etcd::Certainty;
use kumi_sched::{ClusterTime, NodeId};

use crate::link::Outbox;

/// The last grant by a link.
#[derive(Debug)]
struct Grant {
    outbox: Outbox,
    nodes: NodeSet,
    nanos: Nanos,
    /// When it was sent, on the cluster's clock.
    sent: Nanos,
}

/// The last grants of all links that are up.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    grants: Arc<Mutex<BTreeMap<LinkId, Grant>>>,
    /// A head that may not lead any more grants nothing.
    certainty: Certainty,
}

/// After this part of a lease the thread of the links renews it. The main loop does so after a third.
const LATE: (Nanos, Nanos) = (1, 2);

fn covers(nodes: &NodeSet, others: &NodeSet) -> bool {
    others.len() == nodes.intersection(others).len()
}

impl Leases {
    /// None yet, of a head that leads as long as it is certain of that.
    pub(super) fn new(certainty: Certainty) -> Self {
        Self { grants: Arc::default(), certainty }
    }

    fn grants(&self) -> MutexGuard<'_, BTreeMap<LinkId, Grant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main loop grants a lease to nodes below a link.
    pub(super) fn granted(
        &self,
        (link, outbox): (LinkId, &Outbox),
        nodes: &NodeSet,
        nanos: Nanos,
        now: Nanos,
    ) {
        let mut grants = self.grants();
        let outbox = outbox.clone();
        let grant = match grants.get(&link).filter(|grant| !covers(nodes, &grant.nodes)) {
            None => Grant { outbox, nodes: nodes.clone(), nanos, sent: now },
            // Nodes that attach have a lease of their own. The others' is as old as it was.
            Some(known) => {
                let all: Vec<NodeId> = known.nodes.iter().chain(nodes.iter()).collect();
                Grant { outbox, nodes: NodeSet::from_nodes(all), nanos, sent: known.sent }
            }
        };
        grants.insert(link, grant);
    }

    /// These nodes are not below the link any more.
    pub(super) fn detached(&self, link: LinkId, gone: &NodeSet) {
        if let Some(grant) = self.grants().get_mut(&link) {
            let left = grant.nodes.iter().filter(|&node| !gone.contains(node));
            grant.nodes = NodeSet::from_nodes(left.collect::<Vec<NodeId>>());
        }
    }

    /// The link has ended.
    pub(super) fn ended(&self, link: LinkId) {
        self.grants().remove(&link);
    }

    /// Renews what the main loop is late with.
    pub(super) fn renew(&self, now: Nanos) {
        if !self.certainty.leads() {
            return;
        }
        for grant in self.grants().values_mut() {
            let age = now.saturating_sub(grant.sent);
            if age >= grant.nanos.saturating_mul(LATE.0) / LATE.1 {
                grant.sent = now;
                let until = ClusterTime(now.saturating_add(grant.nanos));
                let lease = Command::Lease { until, nanos: grant.nanos };
                grant.outbox.send(&Down::Command(grant.nodes.clone(), lease));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{self, LINK_LIMIT};
    use crate::link::Traffic;
    use kumi_control::message::CONTROL_VERSION;

    fn set(nodes: &[u32]) -> NodeSet {
        NodeSet::from_nodes(nodes.iter().copied().map(NodeId))
    }

    /// What a link carries until its outbox is gone.
    async fn carried(leases: &Leases, act: impl FnOnce(&Leases, &Outbox)) -> Vec<Down> {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (outbox, writing) = Outbox::start(near, CONTROL_VERSION, Traffic::default());
        act(leases, &outbox);
        leases.ended(LinkId(1));
        drop(outbox);
        writing.await.unwrap();
        let mut found = Vec::new();
        while let Some(down) = frame::read::<Down>(&mut far, LINK_LIMIT).await.unwrap() {
            found.push(down);
        }
        found
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_the_main_loop_is_late_with_is_renewed() {
        let lease = |until| Command::Lease { until: ClusterTime(until), nanos: 100 };
        let sent = carried(&Leases::new(Certainty::for_ever()), |leases, outbox| {
            let link = (LinkId(1), outbox);
            leases.granted(link, &set(&[0, 1]), 100, 1_000);
            leases.granted(link, &set(&[2]), 100, 1_010);
            leases.renew(1_049);
            leases.renew(1_050);
            leases.renew(1_060);
            leases.detached(LinkId(1), &set(&[1]));
            leases.renew(1_100);
            // The main loop goes on.
            leases.granted(link, &set(&[0, 2]), 100, 1_120);
            leases.renew(1_160);
            leases.ended(LinkId(1));
            leases.renew(2_000);
        })
        .await;
        let expected = [(set(&[0, 1, 2]), 1_150), (set(&[0, 2]), 1_200)];
        assert_eq!(sent, expected.map(|(nodes, until)| Down::Command(nodes, lease(until))));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_head_that_may_not_lead_any_more_renews_nothing() {
        let sent = carried(&Leases::new(Certainty::default()), |leases, outbox| {
            leases.granted((LinkId(1), outbox), &set(&[0]), 100, 1_000);
            leases.renew(2_000);
        })
        .await;
        assert_eq!(sent, []);
    }
}
