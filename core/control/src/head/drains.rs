//! Nodes that are drained, and nodes that take jobs again.
//!
//! A drained node goes on with the jobs that it has. Neither the policy nor the size of a job counts it. The list is durable:
//! its driver hands it to the next head.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use kumi_sched::NodeId;

use super::{ClientId, Head, HeadAction, refusal};
use crate::drain::{Drain, check_reason};
use crate::message::{Refusal, RefusalKind, User};

/// The drained nodes.
#[derive(Debug, Default)]
pub(super) struct Drains(BTreeMap<NodeId, Drain>);

impl Drains {
    /// Those of an earlier head, as far as the cluster has such nodes.
    pub(super) fn new(known: &[Drain], is_node: impl Fn(NodeId) -> bool) -> Self {
        let known = known.iter().filter(|drain| is_node(drain.node));
        Self(known.map(|drain| (drain.node, drain.clone())).collect())
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&Drain> {
        self.0.get(&node)
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Drains the node, or gives a drained one another reason.
    pub(super) fn insert(&mut self, drain: Drain) {
        let since_ms = self.get(drain.node).map_or(drain.since_ms, |before| before.since_ms);
        self.0.insert(drain.node, Drain { since_ms, ..drain });
    }

    /// The node is drained no more. Returns whether it was.
    pub(super) fn remove(&mut self, node: NodeId) -> bool {
        self.0.remove(&node).is_some()
    }

    fn list(&self) -> Vec<Drain> {
        self.0.values().cloned().collect()
    }
}

impl Head {
    /// These nodes get no new jobs. What they have goes on.
    ///
    /// # Errors
    /// The user may not, there is no such node, or the reason says nothing.
    pub(super) fn drain(
        &mut self,
        client: ClientId,
        user: &User,
        nodes: &[NodeId],
        reason: &str,
    ) -> Result<(), Refusal> {
        self.owner_only(user, "drain nodes")?;
        let nodes = self.known_nodes(nodes)?;
        check_reason(reason).map_err(|message| refusal(RefusalKind::BadRequest, message))?;
        let (by, since_ms) = (name_of(user), self.time.wall_ms());
        self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
        for node in nodes {
            let drain = Drain { node, reason: reason.to_string(), by: by.clone(), since_ms };
            self.membership.drain(drain);
            self.scheduler.remove_node(node);
        }
        self.drains_changed(Some(client));
        Ok(())
    }

    /// These nodes take jobs again. Nothing happens to those that are not drained.
    ///
    /// # Errors
    /// The user may not, or there is no such node.
    pub(super) fn resume(
        &mut self,
        client: ClientId,
        user: &User,
        nodes: &[NodeId],
    ) -> Result<(), Refusal> {
        self.owner_only(user, "have nodes take jobs again")?;
        let nodes = self.known_nodes(nodes)?;
        self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
        for node in nodes {
            self.take_jobs_again(node);
        }
        self.drains_changed(Some(client));
        Ok(())
    }

    /// The node takes jobs again, if it is drained.
    pub(super) fn take_jobs_again(&mut self, node: NodeId) {
        let drained = self.membership.resume(node);
        if let Some(said) = self.membership.description(node)
            && drained
            && self.membership.is_attached(node)
        {
            self.scheduler.add_node(said);
        }
    }

    /// The list is kept, and whoever waits is looked at again. The driver answers the client, if one asked.
    pub(super) fn drains_changed(&mut self, client: Option<ClientId>) {
        self.scheduler.set_nodes_changed();
        let drains = self.membership.drains().list();
        self.actions.push(HeadAction::KeepDrains { client, drains });
    }

    /// The name of a node in the configuration.
    pub(super) fn name_of_node(&self, node: NodeId) -> String {
        let name = usize::try_from(node.0).ok().and_then(|place| self.config.nodes.get(place));
        name.cloned().unwrap_or_default()
    }

    /// The nodes that a client names, each once.
    ///
    /// # Errors
    /// It names none, or one that the cluster does not have.
    pub(super) fn known_nodes(&self, nodes: &[NodeId]) -> Result<BTreeSet<NodeId>, Refusal> {
        let bad = |message: String| Err(refusal(RefusalKind::BadRequest, message));
        if nodes.is_empty() {
            return bad("no node is named; `kumi node list` lists them".to_string());
        }
        match nodes.iter().find(|&&node| !self.membership.is_configured(node)) {
            Some(node) => {
                bad(format!("the cluster has no node {node}; `kumi node list` lists its nodes"))
            }
            None => Ok(nodes.iter().copied().collect()),
        }
    }
}

/// The user's name, or number.
fn name_of(user: &User) -> String {
    match user.name.as_str() {
        "" => user.uid.to_string(),
        name => name.to_string(),
    }
}
