//! What daemons of a node leave to their successors beside the keepers: how many there were, and the node's lease.
//!
//! The watcher of a daemon that died reads there whether another one has come. The file counts for one boot of the machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    boot: String,
    /// How many daemons there were.
    daemons: u64,
    /// Until when jobs may run, on the clock of the boot.
    lease: Option<u64>,
}

/// The file, as the node's present daemon has it.
#[derive(Debug)]
pub(crate) struct NodeLife {
    path: PathBuf,
    content: Content,
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// What is in the file; nothing if it is of another boot.
fn read(path: &Path) -> io::Result<Content> {
    let boot = boot()?;
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    // What is damaged says as little as what is missing.
    let content = toml::from_str::<Content>(&text).ok().filter(|content| content.boot == boot);
    Ok(content.unwrap_or(Content { boot, ..Content::default() }))
}

/// How many daemons of the node there were since the machine was started; none if that is not known.
pub(crate) fn daemons(path: &Path) -> Option<u64> {
    read(path).ok().map(|content| content.daemons)
}

impl NodeLife {
    /// A new daemon begins. From now on watchers of former ones end nothing.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn begin(path: PathBuf) -> io::Result<Self> {
        let mut content = read(&path)?;
        content.daemons = content.daemons.saturating_add(1);
        let life = Self { path, content };
        life.write()?;
        Ok(life)
    }

    /// This daemon's number, from 1 on.
    pub(crate) fn number(&self) -> u64 {
        self.content.daemons
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The lease that a former daemon had.
    pub(crate) fn lease(&self) -> Option<u64> {
        self.content.lease
    }

    /// Notes a lease, if it is another one.
    pub(crate) fn set_lease(&mut self, until: Option<u64>) {
        if self.content.lease == until {
            return;
        }
        self.content.lease = until;
        if let Err(error) = self.write() {
            tracing::error!(path = %self.path.display(), %error, "a later daemon will not know the node's lease, and ends jobs early");
        }
    }

    fn write(&self) -> io::Result<()> {
        let draft = self.path.with_extension("new");
        let text = toml::to_string(&self.content).map_err(io::Error::other)?;
        fs::write(&draft, text)?;
        fs::rename(draft, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_counted_and_the_lease_stays_until_the_machine_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("life");
        assert_eq!(daemons(&path), Some(0));
        let mut first = NodeLife::begin(path.clone()).unwrap();
        assert_eq!((first.number(), first.lease()), (1, None));
        first.set_lease(Some(77));
        assert_eq!(daemons(&path), Some(1));
        let second = NodeLife::begin(path.clone()).unwrap();
        assert_eq!((second.number(), second.lease()), (2, Some(77)));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("boot = \"", "boot = \"0")).unwrap();
        let third = NodeLife::begin(path.clone()).unwrap();
        assert_eq!((third.number(), third.lease()), (1, None), "another boot");
        fs::write(&path, "nonsense").unwrap();
        assert_eq!(daemons(&path), Some(0));
    }
}
