//! Folders of MPI programs: files of a job's server, and of its ranks.

use std::io;
use std::path::{Path, PathBuf};

use kumi_control::message::JobSpec;
use kumi_sched::NodeId;
use nix::unistd::{Gid, Uid, chown, mkdtemp};

/// Folder of a job's server and ranks. It goes with the value.
#[derive(Debug)]
pub(in crate::job) struct MpiFolder(PathBuf);

/// How the names of the folders of a cluster in this directory begin, or of one of its nodes. Two users may have clusters of
/// the same name.
fn beginning(cluster: &Path, node: Option<NodeId>) -> String {
    let hash = blake3::hash(cluster.as_os_str().as_encoded_bytes());
    let node = node.map_or_else(String::new, |node| format!("{node}+"));
    format!("kumi-mpi+{}+{node}", crate::paths::hex(&hash.as_bytes()[..6]))
}

impl MpiFolder {
    /// Makes one that the job's user owns.
    pub(super) fn make(cluster: &Path, node: NodeId, spec: &JobSpec) -> io::Result<Self> {
        let name = format!("{}{}+XXXXXX", beginning(cluster, Some(node)), spec.job);
        let folder = Self(mkdtemp(&std::env::temp_dir().join(name))?);
        let user = &spec.user;
        chown(&folder.0, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for MpiFolder {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a folder, whose user may have removed or replaced it. A link is removed and not followed.
fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "a folder of an MPI program is left");
    }
}

/// Removes what killed daemons of the cluster in this directory, or of one of its nodes, have left. None of them runs.
pub fn remove_left(cluster: &Path, node: Option<NodeId>) {
    let beginning = beginning(cluster, node);
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&beginning) {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_known_by_their_cluster_and_node() {
        let cluster = std::env::temp_dir().join(format!("test{}", std::process::id()));
        let folder = |node: u32| {
            let name = format!("{}7+XXXXXX", beginning(&cluster, Some(NodeId(node))));
            let made = mkdtemp(&std::env::temp_dir().join(name)).unwrap();
            std::fs::write(made.join("file"), "x").unwrap();
            made
        };
        let (one, eleven, two) = (folder(1), folder(11), folder(2));
        remove_left(&cluster, Some(NodeId(1)));
        assert!(!one.exists() && eleven.exists() && two.exists());
        remove_left(&cluster, None);
        assert!(!eleven.exists() && !two.exists());
    }
}
