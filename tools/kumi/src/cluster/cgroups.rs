//! Control groups of the cluster: finds and removes them, with every process in them.

use crate::error::Error;
use kumi_node::cgroup::{ControlGroup, mount_points};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long killed processes may take to leave their group.
const EMPTYING: Duration = Duration::from_secs(5);
/// Depth to which service managers may nest the groups that they delegate.
const DEPTH: u32 = 8;

/// The cluster's groups in all hierarchies, version 2 first: under the mount point, or in a group that a service manager
/// delegated.
fn existing(cluster: &str) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    for mount in mount_points(&table) {
        find(&mount, &format!("kumi-{cluster}"), DEPTH, &mut found);
    }
    found
}

fn find(folder: &Path, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
    // Groups may appear and disappear during the search.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name() == name {
            // A group delegated to another user belongs to that user's cluster of the same name.
            let user = nix::unistd::geteuid().as_raw();
            if entry.metadata().is_ok_and(|data| data.uid() == user) {
                found.push(entry.path());
            }
        } else if depth > 0 {
            find(&entry.path(), name, depth - 1, found);
        }
    }
}

/// Kills every process in the cluster's groups and removes them. Those of version 2 have all processes, and come first.
pub fn remove(cluster: &str) -> Result<(), Error> {
    for path in existing(cluster) {
        ControlGroup::at(path.clone()).destroy(EMPTYING).map_err(|error| Error::LeftOver {
            what: format!("the control group {}", path.display()),
            said: error.to_string(),
        })?;
    }
    Ok(())
}

/// Whether the cluster has any groups.
pub fn any(cluster: &str) -> bool {
    !existing(cluster).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegated_groups_are_found_and_others_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let ours = ["kumi-lab", "user.slice/user@1.service/kumi-lab"].map(|p| root.path().join(p));
        for path in [&ours[0].join("node-0"), &ours[1], &root.path().join("a/kumi-lab2")] {
            fs::create_dir_all(path).unwrap();
        }
        let mut found = Vec::new();
        find(root.path(), "kumi-lab", DEPTH, &mut found);
        found.sort();
        assert_eq!(found, ours);
    }
}
