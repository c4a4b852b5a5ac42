//! Certificates that are believed no more: each daemon keeps the list in a file, and acts on it at once.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kumi_control::message::Revocation;
use kumi_sched::NodeId;
use tokio::sync::watch;

use super::TlsError;
use crate::durable;

/// What stands above the list in the file.
const TITLE: &str =
    "# Revoked certificates: node, and the last time of issue (microseconds since 1970)\n";

/// The revoked certificates that a daemon knows.
#[derive(Clone, Debug)]
pub struct Revocations {
    path: PathBuf,
    list: Arc<watch::Sender<BTreeMap<NodeId, u64>>>,
}

impl Revocations {
    /// Those in the file at `path`; none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is not such a list.
    pub(super) fn load(path: PathBuf) -> Result<Self, TlsError> {
        let text = match durable::read(&path) {
            Ok(text) => text,
            Err(source) => return Err(TlsError::File { path, source }),
        };
        let mut list = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let parts = line.split_once(' ');
            let parsed =
                parts.and_then(|(node, until)| Some((node.parse().ok()?, until.parse().ok()?)));
            let Some((node, until)) = parsed else {
                return Err(TlsError::Content {
                    path,
                    reason: format!("{line:?} is no revocation"),
                });
            };
            list.insert(NodeId(node), until);
        }
        Ok(Self { path, list: Arc::new(watch::Sender::new(list)) })
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Revocation> {
        let list = self.list.borrow();
        list.iter().map(|(&node, &until_us)| Revocation { node, until_us }).collect()
    }

    /// The list with these, if that makes it another one.
    fn with(&self, more: &[Revocation]) -> Option<BTreeMap<NodeId, u64>> {
        let mut list = self.list.borrow().clone();
        for &Revocation { node, until_us } in more {
            let until = list.entry(node).or_default();
            *until = until_us.max(*until);
        }
        (list != *self.list.borrow()).then_some(list)
    }

    /// Adds these, on the disk first. Links of certificates that are revoked by it end.
    ///
    /// # Errors
    /// The file cannot be written; then the list counts until the daemon ends.
    pub fn add(&self, more: &[Revocation]) -> io::Result<()> {
        let Some(list) = self.with(more) else { return Ok(()) };
        let written = write(&self.path, &list);
        self.list.send_replace(list);
        written
    }

    /// Adds these, in memory only. Links of certificates that are revoked by it end.
    pub(crate) fn add_unwritten(&self, more: &[Revocation]) {
        if let Some(list) = self.with(more) {
            self.list.send_replace(list);
        }
    }

    /// Writes the list as it is now.
    ///
    /// # Errors
    /// The file cannot be written; then the list counts until the daemon ends.
    pub(crate) fn keep(&self) -> io::Result<()> {
        // No lock is held while the disk takes its time.
        let list = self.list.borrow().clone();
        let named = |error| io::Error::other(format!("{}: {error}", self.path.display()));
        write(&self.path, &list).map_err(named)
    }

    /// Whether a certificate of a node that was issued then is revoked.
    #[must_use]
    pub fn is_revoked(&self, node: NodeId, issued_us: u64) -> bool {
        is_in(&self.list.borrow(), node, issued_us)
    }

    /// Waits until such a certificate is revoked.
    pub async fn until_revoked(&self, node: NodeId, issued_us: u64) {
        let mut list = self.list.subscribe();
        // The list is there as long as this is.
        let _ = list.wait_for(|list| is_in(list, node, issued_us)).await;
    }
}

fn is_in(list: &BTreeMap<NodeId, u64>, node: NodeId, issued_us: u64) -> bool {
    list.get(&node).is_some_and(|&until| issued_us <= until)
}

fn write(path: &Path, list: &BTreeMap<NodeId, u64>) -> io::Result<()> {
    let lines = list.iter().map(|(node, until)| format!("{node} {until}\n"));
    let text: String = [TITLE.to_owned()].into_iter().chain(lines).collect();
    durable::write(path, 0o644, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_small_disk::{fill, on_a_small_disk};
    use std::fs;

    const NODE: NodeId = NodeId(3);

    #[tokio::test(flavor = "current_thread")]
    async fn a_list_is_kept_and_acts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.revoked");
        let list = Revocations::load(path.clone()).unwrap();
        let revoke = |until_us| [Revocation { node: NODE, until_us }];
        assert!(!list.is_revoked(NODE, 7));
        let link = list.until_revoked(NODE, 7);
        list.add(&revoke(7)).unwrap();
        tokio::time::timeout(std::time::Duration::from_secs(5), link).await.expect("cut");
        list.add(&revoke(5)).unwrap();
        let again = Revocations::load(path.clone()).unwrap();
        assert_eq!(again.list(), revoke(7), "an older list takes nothing back");
        assert!(again.is_revoked(NODE, 7) && again.is_revoked(NODE, 0));
        assert!(!again.is_revoked(NODE, 8) && !again.is_revoked(NodeId(4), 7));
        fs::write(&path, "three\n").unwrap();
        assert!(matches!(Revocations::load(path), Err(TlsError::Content { .. })));
    }

    #[test]
    fn what_is_in_memory_goes_to_the_disk_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.revoked");
        let list = Revocations::load(path.clone()).unwrap();
        let revoked = [Revocation { node: NODE, until_us: 9 }];
        list.add_unwritten(&revoked);
        assert!(list.is_revoked(NODE, 9) && !path.exists());
        list.keep().unwrap();
        assert_eq!(Revocations::load(path).unwrap().list(), revoked);
    }

    #[test]
    fn a_full_disk_keeps_the_list_of_before_and_gets_the_rest_later() {
        on_a_small_disk(64 << 10, |disk| {
            let path = disk.join("head.revoked");
            let list = Revocations::load(path.clone()).unwrap();
            let first = [Revocation { node: NODE, until_us: 9 }];
            list.add(&first).unwrap();
            fill(disk);
            let second = Revocation { node: NodeId(4), until_us: 7 };
            list.add(&[second]).unwrap_err();
            assert!(list.is_revoked(NodeId(4), 7), "it counts at once");
            assert_eq!(Revocations::load(path.clone()).unwrap().list(), first);
            fs::remove_file(disk.join("others")).unwrap();
            list.keep().unwrap();
            assert_eq!(Revocations::load(path).unwrap().list(), [first[0], second]);
        });
    }

    #[test]
    fn what_cannot_be_written_counts_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let list = Revocations::load(dir.path().join("no/folder")).unwrap();
        assert!(list.add(&[Revocation { node: NODE, until_us: 9 }]).is_err());
        assert!(list.is_revoked(NODE, 9));
    }
}
