//! A control group of version 2: what can be frozen, killed and waited for.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::folder::{gone, remove_tree};

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
        // Writing takes the lock of all groups, which others may hold long; reading does not.
        let events = File::open(self.path.join("cgroup.events"));
        if events.is_ok_and(|events| populated(&events).is_ok_and(|populated| !populated)) {
            return Ok(());
        }
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

fn populated(mut events: &File) -> io::Result<bool> {
    let mut text = String::new();
    events.rewind()?;
    events.read_to_string(&mut text)?;
    Ok(text.lines().any(|line| line == "populated 1"))
}
