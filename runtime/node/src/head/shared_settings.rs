//! Settings that change while several heads run: they are in force, and told, when the state of all heads has them.
//!
//! With one head and a file they are in files of its folder, see `documents`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kumi_control::head::{ClientId, HeadEvent, ProcessorSharing};
use kumi_control::message::{ClientReply, ClientRequest, Drain, RefusalKind};
use kumi_sched::NodeId;

use super::HeadDaemon;
use super::drains::DrainFile;
use super::live_config::definition_of;
use super::records::{JobRecords, WriteNumber};
use super::state::{KnownState, NodeChanges, SharedSettings, SharingKeys, write_nodes};
use crate::client::refusal;
use crate::clock::{monotonic, wall_ms};
use crate::config::{ClusterConfig, ConfigError};
use crate::exit::Failure;

/// Most changes of nodes that wait for the state. More are refused: each is of a client that waits.
const MOST_UNWRITTEN: usize = 64;

/// Longest list of changes of nodes, in bytes as it is kept. etcd takes 1.5 MiB at once.
const LONGEST_NODES: usize = 1 << 20;

/// A change of nodes that the state does not have yet.
#[derive(Debug)]
struct UnwrittenNodes {
    write: WriteNumber,
    client: ClientId,
    reply: ClientReply,
    config: Arc<ClusterConfig>,
}

/// What this head knows of such settings.
#[derive(Debug, Default)]
pub(super) struct SettingsOnTheWay {
    dir: PathBuf,
    /// Other heads have them, too.
    are_shared: bool,
    nodes: NodeChanges,
    unwritten: VecDeque<UnwrittenNodes>,
}

/// The settings that a head begins with.
pub(super) struct FirstSettings {
    pub(super) config: Arc<ClusterConfig>,
    pub(super) drains: DrainFile,
    pub(super) drained: Vec<Drain>,
    pub(super) settings: SettingsOnTheWay,
}

/// Takes what other heads have changed: it counts more than this host's files.
///
/// # Errors
/// What comes of it is no cluster, or this host's list of drained nodes cannot be read.
pub(super) fn take_over(
    (dir, config): (&Path, &Arc<ClusterConfig>),
    known: &mut KnownState,
    records: &mut JobRecords,
) -> Result<FirstSettings, Failure> {
    let known = std::mem::take(&mut known.settings);
    let (drains, drained) = DrainFile::open(dir)?;
    let mut settings = SettingsOnTheWay { dir: dir.to_owned(), ..SettingsOnTheWay::default() };
    if !records.shares_settings() {
        return Ok(FirstSettings { config: Arc::clone(config), drains, drained, settings });
    }
    let now = known.applied(config)?;
    if now.nodes != config.nodes {
        tracing::info!("nodes have changed while other heads led");
        if let Err(error) = write_nodes(&now, dir) {
            tracing::error!(%error, "cluster.toml of this host does not have all nodes");
        }
    }
    let drained = match known.drains {
        Some(known) => {
            // The state has what counts: this is of a time with one head, or was taken over.
            drains.set_aside();
            known
        }
        None => {
            // Also if there are none: another host may have a file of a time with one head.
            let first = SharedSettings { drains: Some(drained.clone()), ..Default::default() };
            records.change_settings(first);
            drained
        }
    };
    settings.are_shared = true;
    settings.nodes = known.nodes.unwrap_or_default();
    Ok(FirstSettings { config: Arc::new(now), drains, drained, settings })
}

/// Whether the state takes so many changes of nodes.
fn fits(nodes: &NodeChanges) -> Result<(), ConfigError> {
    let length = nodes.length().map_err(|error| ConfigError::Invalid(error.to_string()))?;
    if length > LONGEST_NODES {
        return Err(ConfigError::Invalid(format!(
            "the nodes that were added and removed take {length} bytes, which etcd does not keep in one key: make a new cluster"
        )));
    }
    Ok(())
}

impl SettingsOnTheWay {
    /// Whether other heads have the settings, too.
    pub(super) fn are_shared(&self) -> bool {
        self.are_shared
    }
}

impl HeadDaemon {
    /// All heads are to know which nodes are drained. Actions that come now wait for that.
    pub(super) fn share_drains(&mut self, drains: &[Drain]) {
        let drains = Some(drains.to_vec());
        self.records.change_settings(SharedSettings { drains, ..SharedSettings::default() });
    }

    /// Hands an event to the state machine. If that changes how processors are shared, all heads are to know it before the client
    /// hears of it.
    pub(super) fn take_event(&mut self, event: HeadEvent) {
        let configures = matches!(event, HeadEvent::Client(_, _, ClientRequest::Configure { .. }));
        let before = configures.then(|| self.head.borrow().sharing());
        self.head.borrow_mut().handle(monotonic(), wall_ms(), event);
        if let Some(before) = before
            && self.settings.are_shared
        {
            self.share_sharing(&before);
        }
    }

    fn share_sharing(&mut self, before: &ProcessorSharing) {
        let now = self.head.borrow().sharing();
        if now != *before {
            let sharing = Some(SharingKeys::of(&now, &self.shared.config.get()));
            self.records.change_settings(SharedSettings { sharing, ..SharedSettings::default() });
        }
    }

    /// A node is added for all heads.
    pub(super) fn share_added_node(&mut self, client: ClientId, definition: &str) {
        self.share_nodes(client, |config, changes| {
            let node = definition_of(definition)?;
            let config = config.with_node(node.clone())?;
            let number = NodeId(config.node_count().saturating_sub(1));
            changes.add(number, node);
            Ok((config, ClientReply::NodeAdded { node: number }))
        });
    }

    /// A node is removed for all heads.
    pub(super) fn share_removed_node(&mut self, client: ClientId, node: NodeId) {
        self.share_nodes(client, |config, changes| {
            let config = config.without_node(node)?;
            changes.remove(node);
            Ok((config, ClientReply::Done))
        });
    }

    /// Has the state keep a change of nodes. It comes behind those that are on their way.
    fn share_nodes(
        &mut self,
        client: ClientId,
        change: impl FnOnce(
            &ClusterConfig,
            &mut NodeChanges,
        ) -> Result<(ClusterConfig, ClientReply), ConfigError>,
    ) {
        if self.settings.unwritten.len() >= MOST_UNWRITTEN {
            let message = "etcd does not answer the head; repeat the command when it does";
            let refused = refusal(RefusalKind::NoResources, message);
            return self.clients.reply(client, ClientReply::Refused(refused));
        }
        let on_the_way = self.settings.unwritten.back();
        let before =
            on_the_way.map_or_else(|| self.shared.config.get(), |last| Arc::clone(&last.config));
        let mut nodes = self.settings.nodes.clone();
        match change(&before, &mut nodes).and_then(|changed| fits(&nodes).map(|()| changed)) {
            Ok((config, reply)) => {
                self.settings.nodes = nodes.clone();
                let nodes = Some(nodes);
                let write = self
                    .records
                    .change_settings(SharedSettings { nodes, ..SharedSettings::default() });
                let config = Arc::new(config);
                self.settings.unwritten.push_back(UnwrittenNodes { write, client, reply, config });
                self.records.write();
            }
            Err(error) => self.refuse_nodes(client, &error),
        }
    }

    /// Puts changes of nodes in force that the state has by now, while this head leads for certain. Returns what the state machine
    /// has to know.
    pub(super) fn settle_shared_nodes(&mut self) -> Vec<HeadEvent> {
        let mut events = Vec::new();
        while self.term.leads()
            && !self.records.has_failed()
            && let Some(first) = self.settings.unwritten.front()
            && self.records.is_settled(first.write)
            && let Some(change) = self.settings.unwritten.pop_front()
        {
            let UnwrittenNodes { client, reply, config, .. } = change;
            tracing::info!(?reply, "the nodes of the cluster have changed");
            self.shared.config.set(&config);
            events.push(self.shared.config.event());
            let dir = self.settings.dir.clone();
            // Whoever makes the node's certificate on this machine reads it there.
            self.write_shared_nodes((client, reply), move || write_nodes(&config, &dir));
        }
        events
    }
}
