//! The configuration that the head goes by. Its nodes change while the head runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use kumi_control::head::{ClientId, HeadEvent};
use kumi_control::message::{ClientReply, RefusalKind, Revocation};
use kumi_sched::NodeId;

use super::HeadDaemon;
use crate::client::refusal;
use crate::clock::wall_ms;
use crate::config::{ClusterConfig, ConfigError, NodeConfig};

/// The configuration, which all threads of the head share.
#[derive(Clone, Debug)]
pub(super) struct LiveConfig {
    dir: PathBuf,
    current: Arc<RwLock<Arc<ClusterConfig>>>,
}

impl LiveConfig {
    pub(super) fn new(dir: &Path, config: &Arc<ClusterConfig>) -> Self {
        Self { dir: dir.to_owned(), current: Arc::new(RwLock::new(Arc::clone(config))) }
    }

    /// The configuration of now.
    pub(super) fn get(&self) -> Arc<ClusterConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another in force that is durable.
    pub(super) fn set(&self, config: &Arc<ClusterConfig>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(config);
    }

    fn add(&self, definition: &str) -> Result<NodeId, ConfigError> {
        let node = definition_of(definition)?;
        let now = self.get();
        self.set(&Arc::new(now.add_node(&self.dir, node)?));
        Ok(NodeId(now.node_count()))
    }

    fn remove(&self, node: NodeId) -> Result<(), ConfigError> {
        self.set(&Arc::new(self.get().remove_node(&self.dir, node)?));
        Ok(())
    }

    /// What the state machine hears when nodes have changed.
    pub(super) fn event(&self) -> HeadEvent {
        let config = self.get();
        let names = config.nodes.iter().map(|node| node.name.clone()).collect();
        HeadEvent::Nodes { names, removed: config.removed() }
    }
}

/// A node as a client describes it.
///
/// # Errors
/// It is none.
pub(super) fn definition_of(text: &str) -> Result<NodeConfig, ConfigError> {
    toml::from_str(text).map_err(|error| {
        ConfigError::Invalid(format!("the definition of the node is wrong: {}", error.message()))
    })
}

/// The list with the nodes that are removed: a head that died right after a removal may not have said so.
pub(super) fn with_removed(config: &ClusterConfig, mut list: Vec<Revocation>) -> Vec<Revocation> {
    for node in config.removed() {
        if list.iter().all(|one| one.node != node) {
            // Its number is not given again, so no later certificate is meant.
            list.push(Revocation { node, until_us: wall_ms().saturating_mul(1_000) });
        }
    }
    list
}

impl HeadDaemon {
    /// Adds a node to the configuration, and answers the client.
    pub(super) fn add_node(&mut self, client: ClientId, definition: String) {
        if self.settings.are_shared() {
            return self.share_added_node(client, &definition);
        }
        let config = self.shared.config.clone();
        self.change_nodes(client, move || {
            config.add(&definition).map(|node| ClientReply::NodeAdded { node })
        });
    }

    /// Removes a node from the configuration, and answers the client.
    pub(super) fn remove_node(&mut self, client: ClientId, node: NodeId) {
        if self.settings.are_shared() {
            return self.share_removed_node(client, node);
        }
        let config = self.shared.config.clone();
        self.change_nodes(client, move || config.remove(node).map(|()| ClientReply::Done));
    }

    /// The nodes have changed on the disk, or could not.
    pub(super) fn configured(
        &mut self,
        client: ClientId,
        changed: Result<ClientReply, ConfigError>,
    ) -> Vec<HeadEvent> {
        match changed {
            Ok(reply) => {
                tracing::info!(?reply, "the nodes of the cluster have changed");
                self.clients.reply(client, reply);
                Vec::from([self.shared.config.event()])
            }
            Err(error) => {
                self.refuse_nodes(client, &error);
                Vec::new()
            }
        }
    }

    /// The nodes of the cluster do not change.
    pub(super) fn refuse_nodes(&mut self, client: ClientId, error: &ConfigError) {
        let kind = match error {
            ConfigError::Io { .. } => RefusalKind::NoResources,
            ConfigError::Encode(_) => RefusalKind::Internal,
            _ => RefusalKind::BadRequest,
        };
        self.clients.reply(client, ClientReply::Refused(refusal(kind, error.to_string())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_nodes_are_revoked_once() {
        let dir = tempfile::tempdir().unwrap();
        let node = |number: u32, removed: bool| {
            format!(
                "[[nodes]]\nname = \"n{number}\"\naddress = \"192.0.2.{number}\"\nport = 7701\nremoved = {removed}\n"
            )
        };
        let nodes = [node(1, false), node(2, true), node(3, true)].concat();
        let text = format!("name = \"lab\"\nkind = \"hosts\"\nhead = \"192.0.2.1:7700\"\n{nodes}");
        std::fs::write(crate::paths::config(dir.path()), text).unwrap();
        let config = ClusterConfig::load(dir.path()).unwrap();
        let known = Revocation { node: NodeId(2), until_us: 7 };
        let list = with_removed(&config, vec![known]);
        assert_eq!(list[0], known);
        assert_eq!((list.len(), list[1].node), (2, NodeId(1)));
        assert_eq!(with_removed(&config, list.clone()), list);
    }
}
