//! Clusters whose jobs outlive the daemons of their nodes, and daemons that are killed and started again.

use nix::sys::signal::Signal;

use crate::cluster::TestCluster;
use crate::command::{self, RunningCommand};
use crate::machine;

/// A cluster of so many nodes, of a processor each, whose jobs outlive their daemons.
///
/// # Panics
/// When it does not come up.
#[track_caller]
pub fn up(nodes: u32) -> TestCluster {
    up_with(nodes, |_| toml::Table::new())
}

/// The same with more in cluster.toml, which is made once the cluster's folder is known.
///
/// # Panics
/// When it does not come up.
#[track_caller]
pub fn up_with(nodes: u32, more: impl FnOnce(&TestCluster) -> toml::Table) -> TestCluster {
    let mut cluster = TestCluster::prepare();
    let count = nodes.to_string();
    cluster.kumi(&["cluster", "init", "--local", &count, "--cpus", "per-node"]).ok();
    let path = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).expect("cluster.toml");
    let mut table: toml::Table = text.parse().expect("TOML");
    let times = [("keep_ms", 60_000), ("grace_ms", 60_000), ("lease_ms", 120_000)];
    table.extend(times.map(|(key, value)| (key.to_owned(), value.into())));
    table.extend(more(&cluster));
    std::fs::write(&path, table.to_string()).expect("our file");
    cluster.try_up_as_it_is().ok();
    cluster
}

/// Ends the daemon of a node, and waits until the kernel has let go of it.
#[track_caller]
pub fn end(cluster: &TestCluster, node: u32, signal: Signal) {
    let daemon = cluster.pid(&format!("node-{node}"));
    machine::signal(daemon, signal);
    command::wait_for("the daemon's end", || (!machine::lives(daemon)).then_some(()));
}

/// Starts the next daemon of a node, and waits until all nodes are there.
#[track_caller]
pub fn start(cluster: &TestCluster, node: u32, nodes: usize) -> RunningCommand {
    let daemon = cluster.start_daemon(node, &["node", "--node", &node.to_string()]);
    command::wait_for("the node", || (cluster.nodes_up() == nodes).then_some(()));
    daemon
}
