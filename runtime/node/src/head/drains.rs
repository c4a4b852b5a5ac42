//! The file with the nodes that are drained, which outlives the head.

use std::io;
use std::path::{Path, PathBuf};

use kumi_control::drain::{Drain, check_drainer, check_reason};
use kumi_control::message::{ClientReply, RefusalKind};
use kumi_sched::NodeId;
use serde::{Deserialize, Serialize};

use crate::client::refusal;
use crate::durable;
use crate::exit::{ExitCode, Failure};
use crate::paths;

/// What stands above the list.
const TITLE: &str = "# Drained nodes. `kumi node drain` and `kumi node resume` write this file.\n";

/// The whole file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    drained: Vec<Entry>,
}

/// A node in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    node: u32,
    reason: String,
    by: String,
    since_ms: u64,
}

impl From<&Drain> for Entry {
    fn from(drain: &Drain) -> Self {
        let Drain { node, reason, by, since_ms } = drain.clone();
        Self { node: node.0, reason, by, since_ms }
    }
}

impl From<Entry> for Drain {
    fn from(entry: Entry) -> Self {
        let Entry { node, reason, by, since_ms } = entry;
        Self { node: NodeId(node), reason, by, since_ms }
    }
}

/// Keeps the list of drained nodes in the cluster's directory.
#[derive(Clone, Debug)]
pub(super) struct DrainFile(PathBuf);

impl DrainFile {
    /// The file of the cluster in `dir`, and the nodes in it; none if there is no file.
    ///
    /// # Errors
    /// It cannot be read, or is not such a list.
    pub(super) fn open(dir: &Path) -> Result<(Self, Vec<Drain>), Failure> {
        let path = paths::drains(dir);
        let text = durable::read(&path).map_err(|error| {
            Failure::new(ExitCode::Io, format!("{} cannot be read: {error}", path.display()))
        })?;
        let wrong = |what: String| {
            let path = path.display();
            let message = format!(
                "{path} is no list of drained nodes ({what}); correct it, or remove it and drain the nodes again"
            );
            Failure::new(ExitCode::BadConfig, message)
        };
        let content: Content =
            toml::from_str(&text).map_err(|error| wrong(error.message().to_owned()))?;
        for entry in &content.drained {
            check_reason(&entry.reason).and_then(|()| check_drainer(&entry.by)).map_err(wrong)?;
        }
        let drains = content.drained.into_iter().map(Drain::from).collect();
        Ok((Self(path), drains))
    }

    /// The state of all heads has what counts: the file is not read any more. It stays, under another name.
    pub(super) fn set_aside(&self) {
        let mut aside = self.0.as_os_str().to_owned();
        aside.push(".old");
        match std::fs::rename(&self.0, &aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %self.0.display(), "an old list of drained nodes is left");
            }
            _ => {}
        }
    }

    /// Writes the list, and says what the client that changed it is answered.
    pub(super) fn keep(&self, drains: &[Drain]) -> ClientReply {
        let Err(error) = self.write(drains) else { return ClientReply::Done };
        tracing::error!(%error, "the list of drained nodes is lost when the head ends");
        let message = format!(
            "the change is in force, but {} cannot be written: {error}; make room there and repeat the command, or it is \
             lost when the head ends",
            self.0.display()
        );
        ClientReply::Refused(refusal(RefusalKind::NoResources, message))
    }

    fn write(&self, drains: &[Drain]) -> io::Result<()> {
        let content = Content { drained: drains.iter().map(Entry::from).collect() };
        let text = toml::to_string_pretty(&content).map_err(io::Error::other)?;
        durable::write(&self.0, 0o644, &format!("{TITLE}{text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_small_disk::{fill, on_a_small_disk};
    use std::fs;

    fn drain(node: u32) -> Drain {
        let reason = "disk \"b\" # fails".to_owned();
        Drain { node: NodeId(node), reason, by: "ada".to_owned(), since_ms: 1_700_000_000_000 }
    }

    #[test]
    fn a_list_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (file, none) = DrainFile::open(dir.path()).unwrap();
        assert_eq!(none, []);
        for list in [vec![drain(1), drain(3)], vec![drain(3)], Vec::new()] {
            assert_eq!(file.keep(&list), ClientReply::Done);
            assert_eq!(DrainFile::open(dir.path()).unwrap().1, list);
        }
    }

    #[test]
    fn a_list_that_was_taken_over_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (file, _) = DrainFile::open(dir.path()).unwrap();
        file.set_aside();
        assert_eq!(file.keep(&[drain(1)]), ClientReply::Done);
        file.set_aside();
        assert_eq!(DrainFile::open(dir.path()).unwrap().1, []);
        assert!(dir.path().join("head.drained.old").exists());
    }

    #[test]
    fn what_cannot_be_kept_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (file, _) = DrainFile::open(&dir.path().join("gone")).unwrap();
        let ClientReply::Refused(refusal) = file.keep(&[drain(1)]) else { panic!("not told") };
        assert_eq!(refusal.kind, RefusalKind::NoResources);
        assert!(refusal.message.contains("in force"), "{}", refusal.message);
    }

    #[test]
    fn another_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for text in [
            "drained = 3",
            "[[drained]]\nnode = 1",
            "[[drained]]\nnode = 1\nreason = \"a\\nb\"\nby = \"x\"\nsince_ms = 1",
            "[[drained]]\nnode = 1\nreason = \"a\"\nby = \"x\\u001b[2J\"\nsince_ms = 1",
        ] {
            fs::write(paths::drains(dir.path()), text).unwrap();
            let error = DrainFile::open(dir.path()).unwrap_err();
            assert_eq!(error.code, ExitCode::BadConfig, "{text}");
        }
    }
    #[test]
    fn a_full_disk_is_told_and_keeps_the_list_of_before() {
        on_a_small_disk(64 << 10, |disk| {
            let (file, _) = DrainFile::open(disk).unwrap();
            assert_eq!(file.keep(&[drain(1)]), ClientReply::Done);
            fill(disk);
            let reply = file.keep(&[drain(1), drain(2)]);
            let ClientReply::Refused(refused) = reply else { panic!("{reply:?}") };
            let says = ["the change is in force", "No space left", "make room there"];
            assert!(says.iter().all(|text| refused.message.contains(text)), "{}", refused.message);
            assert_eq!(DrainFile::open(disk).unwrap().1, [drain(1)]);
            fs::remove_file(disk.join("others")).unwrap();
            assert_eq!(file.keep(&[drain(2)]), ClientReply::Done);
            assert_eq!(DrainFile::open(disk).unwrap().1, [drain(2)]);
        });
    }
}
