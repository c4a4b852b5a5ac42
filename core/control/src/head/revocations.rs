//! Certificates of nodes that are believed no more.
//!
//! The head keeps the list, and each node has it: it comes when the node attaches, and when it grows.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use kumi_sched::NodeId;

use super::{ClientId, Head, HeadAction, refusal};
use crate::message::{ClientReply, Command, NodeSet, Refusal, RefusalKind, Revocation, User};
use crate::tree::LinkId;

/// By node: the time up to which its certificates are revoked, in microseconds since the epoch.
#[derive(Debug, Default)]
pub(super) struct Revocations(BTreeMap<NodeId, u64>);

impl Revocations {
    pub(super) fn new(known: &[Revocation]) -> Self {
        Self(known.iter().map(|one| (one.node, one.until_us)).collect())
    }

    fn list(&self) -> Vec<Revocation> {
        self.0.iter().map(|(&node, &until_us)| Revocation { node, until_us }).collect()
    }
}

impl Head {
    /// Whether what a node was given at that time, in microseconds since the epoch, is revoked: its certificate, or its token.
    #[must_use]
    pub fn is_revoked(&self, node: NodeId, issued_us: u64) -> bool {
        self.revocations.0.get(&node).is_some_and(|&until| issued_us <= until)
    }

    /// For how many milliseconds what the node is given is revoked at once, if that is so.
    pub(super) fn revoked_for(&self, node: NodeId, now_ms: u64) -> Option<u64> {
        let now_us = now_ms.saturating_mul(1_000);
        let until = *self.revocations.0.get(&node)?;
        (now_us <= until).then(|| (until - now_us) / 1_000 + 1)
    }

    /// Revokes all certificates of a node that exist now.
    ///
    /// # Errors
    /// The user may not, or there is no such node.
    pub(super) fn revoke(
        &mut self,
        client: ClientId,
        user: &User,
        node: NodeId,
    ) -> Result<(), Refusal> {
        self.owner_only(user, "revoke certificates")?;
        if !self.membership.is_configured(node) {
            let message =
                format!("the cluster has no node {node}; `kumi cluster status` lists its nodes");
            return Err(refusal(RefusalKind::BadRequest, message));
        }
        self.revoke_node(node);
        self.actions.reply(client, ClientReply::Done);
        Ok(())
    }

    /// All certificates of the node that exist now are believed no more.
    pub(super) fn revoke_node(&mut self, node: NodeId) {
        // To the end of this millisecond.
        let until = self.time.wall_ms().saturating_mul(1_000).saturating_add(999);
        let revoked = self.revocations.0.entry(node).or_default();
        *revoked = until.max(*revoked);
        let list = self.revocations.list();
        self.actions.push(HeadAction::Revoke { node, list: list.clone() });
        self.send(&self.membership.attached(), &Command::Revoked(list));
    }

    /// Tells nodes that attach.
    pub(super) fn send_revocations(&mut self, link: LinkId, nodes: NodeSet) {
        let list = self.revocations.list();
        if !list.is_empty() {
            self.actions.send_on(link, nodes, Command::Revoked(list));
        }
    }
}
