//! Nodes that the cluster has, and changes of them in the file.
//!
//! The file is changed as text where that works, so that comments and the order of keys stay.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use kumi_sched::NodeId;
use serde::Serialize;

use super::{ClusterConfig, ConfigError, NodeConfig, invalid};
use crate::{durable, paths};

/// The line above each node in the file.
const HEADING: &str = "[[nodes]]";

/// Nodes as a file has them.
#[derive(Serialize)]
struct Nodes<'a> {
    nodes: [&'a NodeConfig; 1],
}

/// The text of a file in which these nodes are marked as removed.
fn marked(text: &str, removed: &[NodeId]) -> String {
    let mut numbers = (0..).map(NodeId);
    let mut lines = Vec::new();
    for line in text.lines() {
        lines.push(line);
        if line.trim() == HEADING && numbers.next().is_some_and(|it| removed.contains(&it)) {
            lines.push("removed = true");
        }
    }
    lines.join("\n") + "\n"
}

impl ClusterConfig {
    /// The nodes that are not removed, ascending.
    pub fn members(&self) -> impl Iterator<Item = (NodeId, &NodeConfig)> + '_ {
        let all = (0..).map(NodeId).zip(&self.nodes);
        all.filter(|(_, node)| !node.removed)
    }

    /// Numbers of the nodes that were removed.
    pub fn removed(&self) -> Vec<NodeId> {
        let all = (0..).map(NodeId).zip(&self.nodes);
        all.filter(|(_, node)| node.removed).map(|(number, _)| number).collect()
    }

    /// Adds a node to the file in `dir`. Returns the configuration with its nodes, and this one's settings.
    ///
    /// # Errors
    /// The node does not fit into the cluster, or the file has been changed or cannot be written.
    pub fn add_node(&self, dir: &Path, node: NodeConfig) -> Result<Self, ConfigError> {
        self.check_addition(&node)?;
        self.change_nodes(dir, &[node], &[])
    }

    /// The configuration with one more node. No file changes.
    ///
    /// # Errors
    /// The node does not fit into the cluster.
    pub fn with_node(&self, node: NodeConfig) -> Result<Self, ConfigError> {
        self.check_addition(&node)?;
        let mut config = self.clone();
        config.nodes.push(node);
        config.validate()?;
        Ok(config)
    }

    /// The configuration without this node, whose number is not given again. No file changes.
    ///
    /// # Errors
    /// There is no such node, or the others do not make a cluster.
    pub fn without_node(&self, node: NodeId) -> Result<Self, ConfigError> {
        self.node(node)?;
        let mut config = self.clone();
        if let Some(entry) = usize::try_from(node.0).ok().and_then(|at| config.nodes.get_mut(at)) {
            entry.removed = true;
        }
        config.validate()?;
        Ok(config)
    }

    fn check_addition(&self, node: &NodeConfig) -> Result<(), ConfigError> {
        if node.removed || node.netns.is_some() || self.has_namespaces() {
            return invalid(
                "nodes that are network namespaces are made by `kumi cluster up --local N` only: this cluster takes no others",
            );
        }
        Ok(())
    }

    /// Marks a node as removed in the file in `dir`. Its number is not given again.
    ///
    /// # Errors
    /// There is no such node, the others do not make a cluster, or the file has been changed or cannot be written.
    pub fn remove_node(&self, dir: &Path, node: NodeId) -> Result<Self, ConfigError> {
        self.node(node)?;
        self.change_nodes(dir, &[], &[node])
    }

    /// Adds nodes to the file in `dir`, and marks some of the others as removed, in one step: the cluster need not make sense
    /// in between. So a node that is added can have the name of one that goes, and all others can go. Returns the configuration
    /// with these nodes, and this one's settings.
    ///
    /// # Errors
    /// What comes of it is no cluster, or the file has been changed or cannot be written.
    pub(crate) fn change_nodes(
        &self,
        dir: &Path,
        added: &[NodeConfig],
        removed: &[NodeId],
    ) -> Result<Self, ConfigError> {
        let (before, mut config) = self.same_on_disk(dir)?;
        let mut text = marked(&before, removed);
        for node in added {
            // It may have come and gone already.
            self.check_addition(&NodeConfig { removed: false, ..node.clone() })?;
            let block = toml::to_string(&Nodes { nodes: [node] })?;
            text = format!("{}\n\n{block}", text.trim_end());
        }
        for (number, node) in (0..).map(NodeId).zip(&mut config.nodes) {
            node.removed |= removed.contains(&number);
        }
        config.nodes.extend_from_slice(added);
        config.write_change(dir, &text)?;
        Ok(Self { nodes: config.nodes, ..self.clone() })
    }

    fn has_namespaces(&self) -> bool {
        self.members().any(|(_, node)| node.netns.is_some())
    }

    /// The file, which must have the nodes of this configuration: a number means the same there.
    fn same_on_disk(&self, dir: &Path) -> Result<(String, Self), ConfigError> {
        let path = paths::config(dir);
        let text = fs::read_to_string(&path)
            .map_err(|source| ConfigError::Io { path: path.clone(), source })?;
        let config = Self::parse(&text, &path)?;
        if config.nodes != self.nodes {
            return invalid(
                "the nodes in cluster.toml are not those that the head has read: start the head again, then repeat the command",
            );
        }
        Ok((text, config))
    }

    /// Writes this configuration, in this text if it says the same, in one step.
    fn write_change(&self, dir: &Path, text: &str) -> Result<(), ConfigError> {
        self.validate()?;
        // A link to the file stays one.
        let path = paths::config(dir);
        let path = fs::canonicalize(&path).map_err(|source| ConfigError::Io { path, source })?;
        let same = Self::parse(text, &path).is_ok_and(|config| config == *self);
        let text = if same { text.to_owned() } else { toml::to_string_pretty(self)? };
        let draft = path.with_extension("toml.new");
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).open(&draft)?;
            let (before, now) = (fs::metadata(&path)?, file.metadata()?);
            file.set_permissions(before.permissions())?;
            // Whoever could write it still can.
            if (before.uid(), before.gid()) != (now.uid(), now.gid()) {
                fchown(&file, Some(before.uid()), Some(before.gid()))?;
            }
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        let replaced = durable::replace(&path, &draft, write())
            .and_then(|()| fs::File::open(path.parent().unwrap_or(dir))?.sync_all());
        replaced.map_err(|source| ConfigError::Io { path: path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;
    use kumi_small_disk::{fill, on_a_small_disk};

    #[test]
    fn a_full_disk_changes_no_nodes_and_is_told() {
        on_a_small_disk(64 << 10, |disk| {
            let path = paths::config(disk);
            fs::write(&path, hosts()).unwrap();
            let config = parse(&hosts()).unwrap();
            fill(disk);
            let error = config.add_node(disk, node("gamma", "10.77.3.3")).unwrap_err();
            assert_eq!(error.exit_code(), crate::exit::ExitCode::Io);
            let says = error.to_string();
            assert!(says.contains("No space left") && says.contains("room"), "{says}");
            assert!(config.save(disk).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), hosts());
            assert!(!path.with_extension("toml.new").exists());
            fs::remove_file(disk.join("others")).unwrap();
            let config = config.add_node(disk, node("gamma", "10.77.3.3")).unwrap();
            assert_eq!(ClusterConfig::load(disk).unwrap(), config);
        });
    }

    /// A cluster in a directory, with comments.
    fn written(text: &str) -> (tempfile::TempDir, ClusterConfig) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(paths::config(dir.path()), text).unwrap();
        (dir, parse(text).unwrap())
    }

    fn hosts() -> String {
        let text = GOOD.replace("\"local\"", "\"hosts\" # real ones");
        text.replace("netns = \"kumi-default-0\"\n", "")
    }

    fn node(name: &str, address: &str) -> NodeConfig {
        let text = format!(
            "name = \"{name}\"\naddress = \"{address}\"\nport = 7701\ndevices = {{ gpu = 2 }}\n"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn nodes_come_and_go_and_comments_stay() {
        let (dir, config) = written(&hosts());
        let config = config.add_node(dir.path(), node("gamma", "10.77.3.3")).unwrap();
        let config = config.remove_node(dir.path(), NodeId(1)).unwrap();
        assert_eq!(ClusterConfig::load(dir.path()).unwrap(), config);
        let text = fs::read_to_string(paths::config(dir.path())).unwrap();
        assert!(text.contains("# real ones"), "{text}");
        assert_eq!(config.removed(), [NodeId(1)]);
        let members: Vec<u32> = config.members().map(|(number, _)| number.0).collect();
        assert_eq!((members, config.node_count()), (vec![0, 2], 3));
        assert!(config.node(NodeId(1)).is_err() && config.node(NodeId(2)).is_ok());
        // Name and address of a removed node are free again, its number is not.
        let config = config.add_node(dir.path(), node("node1", "10.77.3.2")).unwrap();
        assert_eq!(config.node(NodeId(3)).unwrap().name, "node1");
    }

    #[test]
    fn a_file_in_another_form_is_written_anew() {
        let inline = "name = \"lab\"\nkind = \"hosts\"\nhead = \"10.0.0.1:7700\"\n# one\nnodes = [{ name = \"a\", \
                      address = \"10.0.0.1\", port = 1 }, { name = \"b\", address = \"10.0.0.2\", port = 1 }]\n";
        let (dir, config) = written(inline);
        let config = config.add_node(dir.path(), node("c", "10.0.0.3")).unwrap();
        let config = config.remove_node(dir.path(), NodeId(0)).unwrap();
        assert_eq!(ClusterConfig::load(dir.path()).unwrap(), config);
        assert_eq!((config.removed(), config.nodes.len()), (vec![NodeId(0)], 3));
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let (dir, config) = written(&hosts());
        let says = |result: Result<ClusterConfig, ConfigError>| result.unwrap_err().to_string();
        let twice = says(config.add_node(dir.path(), node("node0", "10.77.3.9")));
        assert!(twice.contains("used twice"), "{twice}");
        let nowhere = says(config.add_node(dir.path(), node("x", "0.0.0.0")));
        assert!(nowhere.contains("not an address"), "{nowhere}");
        assert!(says(config.remove_node(dir.path(), NodeId(2))).contains("no node 2"));
        assert_eq!(fs::read_to_string(paths::config(dir.path())).unwrap(), hosts());
        // Somebody has changed the nodes in the file.
        fs::write(paths::config(dir.path()), hosts().replace("10.77.3.2", "10.77.3.7")).unwrap();
        assert!(says(config.remove_node(dir.path(), NodeId(1))).contains("start the head again"));
        let (dir, local) = written(GOOD);
        let namespaces = says(local.add_node(dir.path(), node("x", "10.77.3.9")));
        assert!(namespaces.contains("--local"), "{namespaces}");
    }
}
