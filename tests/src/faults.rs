//! Faults and attackers in the namespaces that a test's cluster made, and nowhere else.

use crate::cluster::TestCluster;
use crate::{command, machine};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::process::Command;
use std::thread::JoinHandle;

/// Whether the tools and rights are there; says so if not.
pub fn possible(test: &str) -> bool {
    let reason = if !machine::has_namespaces() {
        "network namespaces are not permitted"
    } else if !["nsenter", "iptables", "tc", "ip"].iter().all(|name| machine::has_command(name)) {
        "nsenter, iptables, tc or ip is not installed"
    } else {
        return true;
    };
    machine::skipped(test, reason);
    false
}

/// Runs a command in the namespace of a node.
///
/// # Panics
/// When the cluster has no namespaces or the command fails.
#[track_caller]
pub fn on_node(cluster: &TestCluster, node: u32, words: &str) -> String {
    let name = cluster.namespace(node).expect("a cluster of root has namespaces");
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{name}")).args(words.split(' '));
    command::run(command).ok().out
}

/// Has a node lose this share of the packets of ranks that come to it.
#[track_caller]
pub fn lose(cluster: &TestCluster, node: u32, probability: &str) {
    let rule = format!(
        "iptables -A INPUT -p udp -m statistic --mode random --probability {probability} -j DROP"
    );
    on_node(cluster, node, &rule);
}

/// Packets that [`lose`] has dropped on a node.
///
/// # Panics
/// When it was not called.
#[track_caller]
pub fn lost(cluster: &TestCluster, node: u32) -> u64 {
    let table = on_node(cluster, node, "iptables -L INPUT -v -n -x");
    let line = table.lines().find(|line| line.contains("statistic")).expect("our rule");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a count")
}

/// Runs `body` on a thread of its own in a namespace of this name.
///
/// # Panics
/// In the thread, when there is no such namespace or entering it is not permitted.
pub fn within<R: Send + 'static>(
    namespace: &str,
    body: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<R> {
    let path = format!("/run/netns/{namespace}");
    // Entering a namespace concerns the thread only.
    std::thread::spawn(move || {
        let file = File::open(&path).expect("the namespace");
        setns(file, CloneFlags::CLONE_NEWNET).expect("setns is permitted");
        body()
    })
}
