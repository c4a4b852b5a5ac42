//! Paths of a cluster's files, relative to its directory.

use std::path::{Path, PathBuf};

use kumi_sched::{JobId, NodeId};

/// Where root's clusters are, which are for all users of the machine.
const MACHINE: &str = "/var/lib/kumi";

/// The directory of the cluster `name` that root has made for the users of this machine; `None` if `$KUMI_DIR` says where
/// clusters are.
pub fn machine_cluster_dir(name: &str) -> Option<PathBuf> {
    let set = std::env::var_os("KUMI_DIR").is_some_and(|value| !value.is_empty());
    (!set).then(|| Path::new(MACHINE).join(name))
}

/// The directory of cluster `name`: `$KUMI_DIR/<name>`; without the variable `/var/lib/kumi` for
/// root, otherwise `$XDG_STATE_HOME/kumi` or `~/.local/state/kumi`. `None` when nothing says where
/// the user's home is.
pub fn cluster_dir(name: &str) -> Option<PathBuf> {
    let set =
        |key: &str| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("KUMI_DIR").or_else(|| {
        if nix::unistd::geteuid().is_root() {
            return Some(PathBuf::from(MACHINE));
        }
        let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
        Some(state.join("kumi"))
    })?;
    Some(base.join(name))
}

/// The configuration.
pub fn config(dir: &Path) -> PathBuf {
    dir.join("cluster.toml")
}

/// Certificates and keys.
pub fn tls(dir: &Path) -> PathBuf {
    dir.join("tls")
}

/// The head's job table.
pub fn head_db(dir: &Path) -> PathBuf {
    dir.join("head.db")
}

/// The nodes that are drained, as the head keeps them.
pub fn drains(dir: &Path) -> PathBuf {
    dir.join("head.drained")
}

/// Room on the disk that is kept for the job table.
pub fn head_reserve(dir: &Path) -> PathBuf {
    dir.join("head.reserve")
}

/// Hashes of the tokens with which machines may join, as the head keeps them.
pub fn tokens(dir: &Path) -> PathBuf {
    dir.join("head.tokens")
}

/// Where the head listens for clients of its machine.
pub fn head_socket(dir: &Path) -> PathBuf {
    dir.join("head.sock")
}

/// Where the head listens for browsers of its machine.
pub fn web_socket(dir: &Path) -> PathBuf {
    dir.join("web.sock")
}

/// History of the cluster's load.
pub fn history(dir: &Path) -> PathBuf {
    dir.join("history")
}

/// Written by the head when it listens.
pub fn head_pid(dir: &Path) -> PathBuf {
    dir.join("head.pid")
}

/// Locked by the head of this folder, also while it waits until it leads.
pub fn head_lock(dir: &Path) -> PathBuf {
    dir.join("head.lock")
}

/// The head's log.
pub fn head_log(dir: &Path) -> PathBuf {
    dir.join("head.log")
}

/// Where a node listens for clients of its machine.
pub fn node_socket(dir: &Path, node: NodeId) -> PathBuf {
    dir.join(format!("node-{node}.sock"))
}

/// Written by a node's daemon when it listens.
pub fn node_pid(dir: &Path, node: NodeId) -> PathBuf {
    dir.join(format!("node-{node}.pid"))
}

/// Where the keepers of a node's jobs listen.
pub fn keepers(dir: &Path, node: NodeId) -> PathBuf {
    dir.join("keep").join(format!("node-{node}"))
}

/// What daemons of a node leave to their successors.
pub fn node_life(dir: &Path, node: NodeId) -> PathBuf {
    dir.join(format!("node-{node}.life"))
}

/// A node's log.
pub fn node_log(dir: &Path, node: NodeId) -> PathBuf {
    dir.join(format!("node-{node}.log"))
}

/// Output of jobs.
pub fn spool(dir: &Path) -> PathBuf {
    dir.join("spool")
}

/// Output of one job.
pub fn spool_file(dir: &Path, job: JobId) -> PathBuf {
    spool(dir).join(job.to_string())
}

/// A node's cache of programs.
pub fn cache(dir: &Path, node: NodeId) -> PathBuf {
    dir.join("cache").join(format!("node-{node}"))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
