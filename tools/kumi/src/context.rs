//! Context of a command: its cluster, and the connection to it.

use crate::cluster;
use crate::error::Error;
use crate::job_descriptions::NodeNames;
use crate::output;
use kumi_node::client::{Client, ClientError, telling};
use kumi_node::config::{ClusterConfig, ClusterKind, NodeConfig};
use kumi_node::paths;
use std::path::{Path, PathBuf};

/// The cluster that `--cluster` names.
#[derive(Clone, Debug)]
pub struct Context {
    /// Its name.
    pub name: String,
    /// Its directory, which may be missing.
    pub dir: PathBuf,
}

impl Context {
    /// The cluster of this name.
    pub fn new(name: &str) -> Result<Self, Error> {
        let dir = paths::cluster_dir(name).ok_or(Error::NoHome)?;
        // Daemons run in other directories, where a relative name would mean another place.
        let dir = std::path::absolute(&dir).map_err(|source| Error::File {
            doing: "find",
            path: dir,
            source,
        })?;
        Ok(Self { name: name.to_owned(), dir })
    }

    /// The cluster of this name that a user means: the user's own, otherwise the one that root has made for the users of
    /// this machine.
    pub fn of_user(name: &str) -> Result<Self, Error> {
        let own = Self::new(name)?;
        Ok(match paths::machine_cluster_dir(name) {
            Some(machine) => own.or(machine),
            None => own,
        })
    }

    /// Itself if it is made; otherwise that of the other directory, if that one is.
    fn or(self, other: PathBuf) -> Self {
        let made = |dir: &Path| paths::config(dir).is_file();
        if !made(&self.dir) && made(&other) { Self { dir: other, ..self } } else { self }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its configuration.
    pub fn config(&self) -> Result<ClusterConfig, Error> {
        Ok(ClusterConfig::load(&self.dir)?)
    }

    /// A connection to its head. Whenever an answer takes long, the user reads what is waited for.
    pub async fn connect(&self) -> Result<Client, Error> {
        let nodes = self.config()?.node_count();
        let connected = telling(head_is_silent, self.connect_again(nodes)).await;
        let mut client = connected.map_err(|error| self.advised(error))?;
        client.on_silence(head_is_silent);
        Ok(client)
    }

    /// On real hosts, another machine's head may run well while nothing runs here: what to start on this one.
    fn advised(&self, error: Error) -> Error {
        let Error::Client(ClientError::NotRunning(_)) = &error else { return error };
        match self.config() {
            Ok(config) if config.kind == ClusterKind::Hosts => {
                let units = cluster::units_here(&config);
                Error::NoDaemonHere { cluster: self.name.clone(), units }
            }
            _ => error,
        }
    }

    /// The same without a word, for who shows something else meanwhile.
    pub async fn connect_silently(&self) -> Result<Client, Error> {
        self.connect_again(self.config()?.node_count()).await
    }

    /// A connection to its head when the number of nodes is already known.
    pub async fn connect_again(&self, nodes: u32) -> Result<Client, Error> {
        match Client::connect(&self.dir, nodes).await {
            // A frozen machine, or a head that dies during the greeting, looks like a missing cluster.
            Err(ClientError::Lost) => Err(ClientError::NotRunning(paths::head_socket(&self.dir)))?,
            other => Ok(other?),
        }
    }

    /// Names of the nodes in the configuration.
    pub fn node_names(&self) -> NodeNames {
        NodeNames(self.places().into_iter().map(|place| place.name).collect())
    }

    /// Names and addresses of the nodes in the configuration.
    pub fn places(&self) -> Vec<NodeAddress> {
        let nodes = self.config().map(|config| config.nodes).unwrap_or_default();
        let place = |node: NodeConfig| NodeAddress {
            address: node.endpoint().to_string(),
            name: node.name,
        };
        nodes.into_iter().map(place).collect()
    }
}

/// Tells the user that the head does not answer.
pub fn head_is_silent() {
    output::note(
        "the head does not answer; waiting for it (its process stands still, or a disk of its machine does)",
    );
}

/// A node in the configuration.
#[derive(Clone, Debug, Default)]
pub struct NodeAddress {
    /// Its name.
    pub name: String,
    /// `address:port` of its daemon.
    pub address: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_cluster_is_meant_where_the_user_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let (own, machine) = (folder.path().join("own"), folder.path().join("machine"));
        let meant = || {
            let context = Context { name: "default".into(), dir: own.clone() };
            context.or(machine.clone()).dir
        };
        assert_eq!(meant(), own, "nobody has made one");
        for dir in [&machine, &own] {
            std::fs::create_dir(dir).unwrap();
            std::fs::write(paths::config(dir), "").unwrap();
            assert_eq!(meant(), *dir);
        }
    }
}
