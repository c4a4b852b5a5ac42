//! Control groups (version 2): the mount point, and one group for each node and job.
//!
//! The mount point is taken from the mount table, since systems that also mount version 1 put
//! version 2 in a folder of its own.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Where version 2 is mounted, according to the text of `/proc/self/mountinfo`.
pub fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    let of_line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        if after.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        // A bind mount of some inner group is not the hierarchy.
        (root == "/").then(|| PathBuf::from(unescape(point)))
    };
    mountinfo.lines().find_map(of_line)
}

/// Undoes the octal escapes of the mount table.
fn unescape(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        match after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                text.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                text.push('\\');
                rest = after;
            }
        }
    }
    text + rest
}

/// The group `kumi-<cluster>/node-<i>` if this process may make it: under the mount point or, where
/// a service manager delegated one, under this process's own group.
///
/// # Errors
/// Why there is none, as a sentence for people.
pub fn node_group(cluster: &str, node: kumi_sched::NodeId) -> Result<ControlGroup, String> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("/proc/self/mountinfo cannot be read: {error}"))?;
    let mount = mount_point(&mountinfo).ok_or("cgroup v2 is not mounted")?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let delegated = mount.join(own.trim_end_matches('/'));
    let mut reason = String::new();
    for parent in [mount, delegated] {
        let path = parent.join(format!("kumi-{cluster}")).join(format!("node-{node}"));
        match fs::create_dir_all(&path).and_then(|()| usable(&path)) {
            Ok(()) => return Ok(ControlGroup { path }),
            Err(error) => reason = format!("{} cannot be used: {error}", path.display()),
        }
    }
    Err(reason)
}

fn usable(path: &Path) -> io::Result<()> {
    for file in ["cgroup.procs", "cgroup.freeze", "cgroup.kill"] {
        OpenOptions::new()
            .write(true)
            .open(path.join(file))
            .map_err(|error| io::Error::new(error.kind(), format!("{file}: {error}")))?;
    }
    Ok(())
}

/// One control group. Dropping it does not remove it.
#[derive(Clone, Debug)]
pub struct ControlGroup {
    path: PathBuf,
}

impl ControlGroup {
    /// A group at a known place.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells this group from another made later at the same place; `None` when there is none.
    pub fn identity(&self) -> Option<u64> {
        fs::metadata(&self.path).ok().map(|data| data.ino())
    }

    /// Makes a group below this one.
    ///
    /// # Errors
    /// When the system refuses; also when it exists.
    pub fn child(&self, name: &str) -> io::Result<Self> {
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        Ok(Self { path })
    }

    /// Opens one of its files for writing.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(&self, file: &str) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.path.join(file))
    }

    /// The processes in it, not those in groups below.
    ///
    /// # Errors
    /// As the system says.
    pub fn processes(&self) -> io::Result<BTreeSet<i32>> {
        let text = fs::read_to_string(self.path.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Nanoseconds of processor time that all have used that are or were in it and below.
    ///
    /// # Errors
    /// As the system says; also if it does not say how much.
    pub fn processor_time(&self) -> io::Result<u64> {
        let text = fs::read_to_string(self.path.join("cpu.stat"))?;
        let used = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok());
        let used: u64 = used.ok_or(io::ErrorKind::InvalidData)?;
        Ok(used.saturating_mul(1_000))
    }

    /// Opens its folder, for starting processes in it.
    ///
    /// # Errors
    /// As the system says.
    pub fn open_folder(&self) -> io::Result<File> {
        File::open(&self.path)
    }

    /// Kills every process in it and below; works on stopped groups too.
    ///
    /// # Errors
    /// As the system says. A group that is gone already is no error.
    pub fn kill(&self) -> io::Result<()> {
        let written = self.open("cgroup.kill").and_then(|mut file| file.write_all(b"1"));
        match written {
            Err(error) if gone(&error) => Ok(()),
            other => other,
        }
    }

    /// Waits until no process is left in it or below.
    ///
    /// # Errors
    /// As the system says. A group that is gone already is no error.
    pub async fn wait_empty(&self) -> io::Result<()> {
        let file = match File::open(self.path.join("cgroup.events")) {
            Err(error) if gone(&error) => return Ok(()),
            other => other?,
        };
        #[expect(
            deprecated,
            reason = "the other constructor is unsafe; a File keeps its descriptor"
        )]
        let events = AsyncFd::with_interest(file, Interest::PRIORITY | Interest::ERROR)?;
        loop {
            // Reading arms the next notification, so read before waiting.
            match populated(events.get_ref()) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if gone(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            let ready = events.ready(Interest::PRIORITY | Interest::ERROR);
            // The notification is the way; the timeout only covers kernels that lose one.
            if let Ok(ready) = tokio::time::timeout(Duration::from_secs(1), ready).await {
                ready?.clear_ready();
            }
        }
    }

    /// Kills what is in it and removes it with all groups below, waiting at most `patience`.
    ///
    /// # Errors
    /// When something is left of it after that.
    pub fn destroy(&self, patience: Duration) -> io::Result<()> {
        let end = std::time::Instant::now() + patience;
        loop {
            self.kill()?;
            match self.remove() {
                Err(error) if std::time::Instant::now() >= end => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Removes the group above it, the cluster's, if this was the last node of it here.
    pub fn remove_empty_parent(&self) {
        if let Some(cluster) = self.path.parent() {
            // It stays while other nodes of this machine have theirs.
            let _ = fs::remove_dir(cluster);
        }
    }

    /// Removes it with all groups below; no process may be left in them.
    ///
    /// # Errors
    /// As the system says. A group that is gone already is no error.
    pub fn remove(&self) -> io::Result<()> {
        remove_tree(&self.path)
    }
}

fn gone(error: &io::Error) -> bool {
    const ENODEV: i32 = nix::errno::Errno::ENODEV as i32;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV)
}

fn populated(mut events: &File) -> io::Result<bool> {
    let mut text = String::new();
    events.rewind()?;
    events.read_to_string(&mut text)?;
    Ok(text.lines().any(|line| line == "populated 1"))
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Ok(()) => return Ok(()),
        Err(error) if gone(&error) => return Ok(()),
        Err(_) => {}
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_version_2_wherever_it_is() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mount_point(unified), Some(PathBuf::from("/sys/fs/cgroup")));
        let hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
            41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw shared:3 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(hybrid), Some(PathBuf::from("/sys/fs/cgroup/uni fied")));
        let bound = "41 31 0:38 /inner /mnt rw - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(bound), None);
        assert_eq!(mount_point("nonsense\n1 2 - cgroup2\n"), None);
    }

    #[test]
    fn escapes_of_the_mount_table() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescape("/a\\9"), "/a\\9");
        assert_eq!(unescape("/plain"), "/plain");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_group_is_killed_and_removed() {
        let name = format!("test-{}", std::process::id());
        let group = match node_group(&name, kumi_sched::NodeId(0)) {
            Ok(group) => group,
            Err(reason) => {
                return kumi_skip::skip("a_group_is_killed_and_removed", &reason.to_string());
            }
        };
        let job = group.child("job-1").unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        job.open("cgroup.procs").unwrap().write_all(child.id().to_string().as_bytes()).unwrap();
        assert_eq!(job.processes().unwrap(), [i32::try_from(child.id()).unwrap()].into());
        assert!(job.processor_time().is_ok());
        job.open("cgroup.freeze").unwrap().write_all(b"1").unwrap();
        assert!(job.remove().is_err());
        job.kill().unwrap();
        job.wait_empty().await.unwrap();
        child.wait().unwrap();
        job.remove().unwrap();
        job.kill().unwrap();
        job.wait_empty().await.unwrap();
        group.destroy(Duration::from_secs(1)).unwrap();
        group.remove_empty_parent();
        assert!(!group.path().parent().unwrap().exists());
    }
}
