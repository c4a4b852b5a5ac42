//! Settings that change while heads run, and that several heads share: nodes that came and went, drained nodes, and how
//! processors are shared. What does not change at run time is in cluster.toml, of which each head has its own.
//!
//! cluster.toml says what the cluster was at first, and the state says what has changed since. The head that leads writes that
//! to its own cluster.toml, too.

use std::collections::BTreeSet;
use std::path::Path;

use kumi_control::drain::{Drain, check_drainer, check_reason};
use kumi_control::head::ProcessorSharing;
use kumi_sched::{Mode, NodeId, SliceLength};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::deflate;
use crate::config::{ClusterConfig, ConfigError, NodeConfig, OS};

/// Nodes that came and went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::head) struct NodeChanges {
    /// Numbers of those that were removed.
    #[serde(default)]
    removed: BTreeSet<u32>,
    /// Those that were added, ascending by number.
    #[serde(default)]
    added: Vec<AddedNode>,
}

/// A node that was added, with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AddedNode {
    number: u32,
    node: NodeConfig,
}

/// How processors are shared, by the keys of cluster.toml.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::head) struct SharingKeys {
    policy: String,
    slice_us: u64,
    force_switch: bool,
    fill: bool,
}

/// A list in a text.
#[derive(Serialize, Deserialize)]
struct Drained {
    #[serde(default)]
    drained: Vec<Drain>,
}

/// What has changed; none of what has not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::head) struct SharedSettings {
    pub(in crate::head) nodes: Option<NodeChanges>,
    pub(in crate::head) drains: Option<Vec<Drain>>,
    pub(in crate::head) sharing: Option<SharingKeys>,
}

impl SharingKeys {
    /// As the head has it now. What is not about the mode in force stays as it is configured.
    pub(in crate::head) fn of(sharing: &ProcessorSharing, config: &ClusterConfig) -> Self {
        let (policy, force_switch, fill) = match sharing.mode {
            Mode::OperatingSystem => (OS.to_owned(), config.force_switch, config.fill),
            Mode::Gang { force_switch, fill } => (sharing.policy.clone(), force_switch, fill),
        };
        let slice_us = match sharing.slice {
            SliceLength::Auto => 0,
            SliceLength::Fixed(nanos) => nanos / 1_000,
        };
        Self { policy, slice_us, force_switch, fill }
    }
}

/// What is kept under a key: text, compressed, since lists of nodes repeat themselves.
fn packed(content: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let text = toml::to_string(content).map_err(std::io::Error::other)?;
    deflate::compress(Vec::new(), text.as_bytes())
}

fn unpacked<T: DeserializeOwned>(bytes: &[u8]) -> std::io::Result<T> {
    toml::from_slice(&deflate::expand(bytes)?).map_err(std::io::Error::other)
}

/// Names of the keys.
const NODES: &str = "nodes";
const DRAINED: &str = "drained";
const SHARING: &str = "sharing";

impl SharedSettings {
    /// Whether nothing has changed.
    pub(in crate::head) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds later changes, which replace those of the same kind.
    pub(in crate::head) fn add(&mut self, later: Self) {
        let Self { nodes, drains, sharing } = later;
        self.nodes = nodes.or(self.nodes.take());
        self.drains = drains.or(self.drains.take());
        self.sharing = sharing.or(self.sharing.take());
    }

    /// The changes by the names of their keys.
    ///
    /// # Errors
    /// They cannot be written as text.
    pub(super) fn to_keys(&self) -> std::io::Result<Vec<(&'static str, Vec<u8>)>> {
        let mut keys = Vec::new();
        if let Some(nodes) = &self.nodes {
            keys.push((NODES, packed(nodes)?));
        }
        if let Some(drained) = self.drains.clone() {
            keys.push((DRAINED, packed(&Drained { drained })?));
        }
        if let Some(sharing) = &self.sharing {
            keys.push((SHARING, packed(sharing)?));
        }
        Ok(keys)
    }

    /// Takes what is under the key of this name. One that is not known is of a later version.
    ///
    /// # Errors
    /// It is no such text.
    pub(super) fn take_key(&mut self, name: &str, value: &[u8]) -> std::io::Result<()> {
        match name {
            NODES => self.nodes = Some(unpacked(value)?),
            DRAINED => {
                let Drained { drained } = unpacked(value)?;
                for drain in &drained {
                    let sound = check_reason(&drain.reason);
                    sound.and_then(|()| check_drainer(&drain.by)).map_err(std::io::Error::other)?;
                }
                self.drains = Some(drained);
            }
            SHARING => self.sharing = Some(unpacked(value)?),
            _ => tracing::warn!(name, "a setting of a later version is passed over"),
        }
        Ok(())
    }

    /// The configuration with what has changed since it was written.
    ///
    /// # Errors
    /// The file lacks nodes that other heads know, or what comes of it is no cluster.
    pub(in crate::head) fn applied(
        &self,
        config: &ClusterConfig,
    ) -> Result<ClusterConfig, ConfigError> {
        let mut config = config.clone();
        if let Some(nodes) = &self.nodes {
            nodes.apply(&mut config)?;
        }
        if let Some(SharingKeys { policy, slice_us, force_switch, fill }) = self.sharing.clone() {
            (config.policy, config.slice_us) = (policy, slice_us);
            (config.force_switch, config.fill) = (force_switch, fill);
        }
        config.validate()?;
        Ok(config)
    }
}

impl NodeChanges {
    /// The length of what is kept of them, in bytes.
    ///
    /// # Errors
    /// They cannot be written as text.
    pub(in crate::head) fn length(&self) -> std::io::Result<usize> {
        packed(self).map(|bytes| bytes.len())
    }

    /// One more node, which has this number.
    pub(in crate::head) fn add(&mut self, number: NodeId, node: NodeConfig) {
        self.added.push(AddedNode { number: number.0, node });
    }

    /// The node is removed. Its place stays taken; what it had is forgotten.
    pub(in crate::head) fn remove(&mut self, number: NodeId) {
        self.removed.insert(number.0);
        if let Some(added) = self.added.iter_mut().find(|added| added.number == number.0) {
            let node = &mut added.node;
            (node.addresses, node.cpus) = (Vec::new(), Vec::new());
            (node.users, node.memory, node.wire) = (None, None, None);
            node.devices.clear();
        }
    }

    fn apply(&self, config: &mut ClusterConfig) -> Result<(), ConfigError> {
        for AddedNode { number, node } in &self.added {
            let place = usize::try_from(*number).unwrap_or(usize::MAX);
            let known = config.nodes.len();
            match config.nodes.get_mut(place) {
                // What an administrator has changed of it counts, also a name.
                Some(here) if is_same(here, node) => {}
                Some(here) => {
                    tracing::warn!(
                        number,
                        here = here.name,
                        node = node.name,
                        "cluster.toml has another node of this number than the other heads"
                    );
                    *here = node.clone();
                }
                None if place == known => config.nodes.push(node.clone()),
                None => {
                    return Err(ConfigError::Invalid(format!(
                        "cluster.toml has {known} nodes, and other heads know a node {number}: copy cluster.toml from the host of another head"
                    )));
                }
            }
        }
        let places = self.removed.iter().filter_map(|&number| usize::try_from(number).ok());
        for place in places {
            if let Some(node) = config.nodes.get_mut(place) {
                node.removed = true;
            }
        }
        Ok(())
    }
}

/// Whether two entries of one number are of one node, of which an administrator may have changed something.
fn is_same(here: &NodeConfig, node: &NodeConfig) -> bool {
    here.name == node.name || (here.address, here.port) == (node.address, node.port)
}

/// Adds nodes of a configuration to cluster.toml in `dir` that the file lacks, and marks those that are removed. What an
/// administrator has changed there stays: if the file has other nodes than the head, the log says so.
///
/// # Errors
/// The file cannot be read or written.
pub(in crate::head) fn write_nodes(config: &ClusterConfig, dir: &Path) -> Result<(), ConfigError> {
    let mut file = ClusterConfig::load(dir)?;
    let known = file.nodes.len();
    let added = config.nodes.get(known..).unwrap_or_default();
    let goes = |&(here, now): &(&NodeConfig, &NodeConfig)| now.removed && !here.removed;
    let numbered = (0..).map(NodeId).zip(file.nodes.iter().zip(&config.nodes));
    let removed: Vec<NodeId> =
        numbered.filter(|(_, both)| goes(both)).map(|(number, _)| number).collect();
    if !added.is_empty() || !removed.is_empty() {
        file = file.change_nodes(dir, added, &removed)?;
    }
    if file.nodes != config.nodes {
        tracing::error!(
            "cluster.toml has other nodes than this head, and is left as it is: if somebody has changed it, start the head again, otherwise copy it from another head's host"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;

    const FILE: &str = "# ours\nname = \"lab\"\nkind = \"hosts\"\nhead = \"192.0.2.1:7700\"\n\n\
         [[nodes]]\nname = \"a\"\naddress = \"192.0.2.1\"\nport = 7701\n\n\
         [[nodes]]\nname = \"b\"\naddress = \"192.0.2.2\"\nport = 7701\n";

    fn node(name: &str, last: u8) -> NodeConfig {
        let text = format!("name = \"{name}\"\naddress = \"192.0.2.{last}\"\nport = 7701\n");
        toml::from_str(&text).unwrap()
    }

    fn config() -> ClusterConfig {
        ClusterConfig::parse(FILE, Path::new("cluster.toml")).unwrap()
    }

    fn changed() -> SharedSettings {
        let mut nodes = NodeChanges::default();
        nodes.add(NodeId(2), node("c", 3));
        nodes.remove(NodeId(0));
        SharedSettings { nodes: Some(nodes), ..SharedSettings::default() }
    }

    #[test]
    fn settings_come_back_from_their_keys() {
        let by = "ada".to_owned();
        let drain = Drain { node: NodeId(1), reason: "disk".to_owned(), by, since_ms: 7 };
        let sharing = ProcessorSharing {
            mode: Mode::Gang { force_switch: true, fill: false },
            slice: SliceLength::Fixed(2_000_000),
            policy: "easy".to_owned(),
        };
        let sharing = Some(SharingKeys::of(&sharing, &config()));
        let all = SharedSettings { drains: Some(vec![drain]), sharing, ..changed() };
        let mut read = SharedSettings::default();
        for (name, value) in all.to_keys().unwrap() {
            read.take_key(name, &value).unwrap();
        }
        assert_eq!(read, all);
        read.take_key("of-later", b"?").unwrap();
        assert!(read.take_key(NODES, b"?").is_err());
        let after = read.applied(&config()).unwrap();
        assert_eq!((&*after.policy, after.slice_us, after.force_switch), ("easy", 2_000, true));
        assert!(!after.fill);
        let none = SharedSettings::default();
        assert_eq!((none.to_keys().unwrap().len(), none.is_empty()), (0, true));
        assert_eq!(none.applied(&config()).unwrap(), config());
    }

    #[test]
    fn later_changes_replace_those_of_the_same_kind() {
        let mut pending = changed();
        let drains = SharedSettings { drains: Some(Vec::new()), ..SharedSettings::default() };
        pending.add(drains.clone());
        let both = SharedSettings { drains: drains.drains, ..changed() };
        assert_eq!(pending, both);
        pending.add(SharedSettings { nodes: Some(NodeChanges::default()), ..Default::default() });
        assert_eq!(pending.nodes, Some(NodeChanges::default()));
    }

    #[test]
    fn a_head_that_takes_over_has_the_nodes_and_writes_them_to_its_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(paths::config(dir.path()), FILE).unwrap();
        let after = changed().applied(&config()).unwrap();
        assert_eq!((after.removed(), after.nodes.len()), (vec![NodeId(0)], 3));
        write_nodes(&after, dir.path()).unwrap();
        assert_eq!(ClusterConfig::load(dir.path()).unwrap(), after);
        let text = std::fs::read_to_string(paths::config(dir.path())).unwrap();
        assert!(text.contains("# ours"), "{text}");
        // The next time nothing is to be done, and what the administrator changed there counts.
        std::fs::write(paths::config(dir.path()), text.replace("192.0.2.3", "192.0.2.9")).unwrap();
        let edited = ClusterConfig::load(dir.path()).unwrap();
        assert_eq!(changed().applied(&edited).unwrap(), edited);
        // Somebody has written another node there.
        let mut other = config();
        other.nodes.push(node("x", 8));
        let after = changed().applied(&other).unwrap();
        assert_eq!(after.nodes[2].name, "c");
        // One that was only given another name stays.
        other.nodes[2] = node("renamed", 3);
        assert_eq!(changed().applied(&other).unwrap().nodes[2].name, "renamed");
    }

    /// A standby has missed that nodes came and went, and that others have their names and addresses now.
    #[test]
    fn names_and_addresses_of_removed_nodes_are_free_in_a_file_that_missed_it() {
        let again = |last: u8, times: u32| {
            let mut nodes = NodeChanges::default();
            nodes.remove(NodeId(0));
            nodes.remove(NodeId(1));
            for number in 2..2 + times {
                nodes.add(NodeId(number), node("a", last));
                if number + 1 < 2 + times {
                    nodes.remove(NodeId(number));
                }
            }
            SharedSettings { nodes: Some(nodes), ..SharedSettings::default() }
        };
        for (last, times) in [(1, 1), (1, 3), (9, 2)] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(paths::config(dir.path()), FILE).unwrap();
            let after = again(last, times).applied(&config()).unwrap();
            assert_eq!(after.members().count(), 1);
            write_nodes(&after, dir.path()).unwrap();
            assert_eq!(ClusterConfig::load(dir.path()).unwrap(), after);
            let text = std::fs::read_to_string(paths::config(dir.path())).unwrap();
            assert!(text.contains("# ours"), "{text}");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(paths::config(dir.path()), FILE).unwrap();
        let mut after = again(1, 1).applied(&config()).unwrap();
        after.nodes[2].netns = Some("kumi-lab-2".to_owned());
        let error = write_nodes(&after, dir.path()).unwrap_err();
        assert!(error.to_string().contains("--local"), "{error}");
    }

    #[test]
    fn what_was_changed_by_hand_stays_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, real) = (paths::config(dir.path()), dir.path().join("kept.toml"));
        let text = FILE.replace("name = \"b\"", "# the new one\nname = \"bee\"\ncpus = [1]");
        std::fs::write(&real, &text).unwrap();
        std::os::unix::fs::symlink(&real, &path).unwrap();
        // The head has read it before that change.
        let after = changed().applied(&config()).unwrap();
        write_nodes(&after, dir.path()).unwrap();
        let written = std::fs::read_to_string(&real).unwrap();
        for line in ["# ours", "# the new one", "name = \"bee\"", "cpus = [1]"] {
            assert!(written.contains(line), "{written}");
        }
        let file = ClusterConfig::load(dir.path()).unwrap();
        assert_eq!((&*file.nodes[1].name, &*file.nodes[2].name), ("bee", "c"));
        assert_eq!(file.removed(), [NodeId(0)]);
        assert!(path.is_symlink());
        write_nodes(&after, dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&real).unwrap(), written, "nothing is to be done");
    }

    #[test]
    fn what_a_removed_node_had_is_forgotten_and_its_place_is_not() {
        let mut nodes = NodeChanges::default();
        let mut added = node("c", 3);
        added.cpus = (0..100).collect();
        nodes.add(NodeId(2), added);
        let before = nodes.length().unwrap();
        nodes.remove(NodeId(2));
        assert!(nodes.length().unwrap() < before);
        let settings = SharedSettings { nodes: Some(nodes), ..SharedSettings::default() };
        let after = settings.applied(&config()).unwrap();
        assert_eq!((after.nodes.len(), after.removed()), (3, vec![NodeId(2)]));
    }

    #[test]
    fn a_file_that_lacks_nodes_is_told() {
        let mut nodes = NodeChanges::default();
        nodes.add(NodeId(3), node("d", 4));
        let settings = SharedSettings { nodes: Some(nodes), ..SharedSettings::default() };
        let error = settings.applied(&config()).unwrap_err().to_string();
        assert!(error.contains("copy cluster.toml"), "{error}");
    }
}
