//! What daemons of a node leave to their successors beside the keepers: how many there were, and the node's lease.
//!
//! The watcher of a daemon that died reads there whether another one has come. The file counts for one boot of the machine.
//! Leases come every second or so, and a thread of its own writes them: the disk may take its time, or be full.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durable;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    boot: String,
    /// How many daemons there were.
    daemons: u64,
    /// Until when jobs may run, on the clock of the boot.
    lease: Option<u64>,
}

/// How long the daemon's end waits for the disk.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The file, as the node's present daemon has it.
#[derive(Debug)]
pub(crate) struct NodeLife {
    path: PathBuf,
    content: Content,
    disk: Arc<Disk>,
}

/// What the thread that writes is to write.
#[derive(Debug, Default)]
struct Wanted {
    /// The last of it; what came before is of no use any more.
    next: Option<Content>,
    /// Nothing comes any more.
    closed: bool,
    /// All is written, and the thread ends.
    over: bool,
}

/// Between the daemon and the thread that writes.
#[derive(Debug, Default)]
struct Disk {
    wanted: Mutex<Wanted>,
    changed: Condvar,
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
        write(&path, &content)?;
        let disk = Arc::new(Disk::default());
        let (place, writes) = (path.clone(), Arc::clone(&disk));
        std::thread::Builder::new().name("life".to_owned()).spawn(move || writes.serve(&place))?;
        Ok(Self { path, content, disk })
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
        self.disk.lock().next = Some(self.content.clone());
        self.disk.changed.notify_all();
    }
}

impl Drop for NodeLife {
    fn drop(&mut self) {
        let mut wanted = self.disk.lock();
        wanted.closed = true;
        self.disk.changed.notify_all();
        let is_under_way = |wanted: &mut Wanted| !wanted.over;
        let waited = self.disk.changed.wait_timeout_while(wanted, LAST_WRITE, is_under_way);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            tracing::warn!(path = %self.path.display(), "the disk does not answer: a later daemon may not know the node's last lease");
        }
    }
}

impl Disk {
    fn lock(&self) -> MutexGuard<'_, Wanted> {
        // It holds plain values, which no panic leaves half changed.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next content to write; none, and never again, at the end.
    fn next(&self) -> Option<Content> {
        let waits = |wanted: &mut Wanted| wanted.next.is_none() && !wanted.closed;
        let waited = self.changed.wait_while(self.lock(), waits);
        let mut wanted = waited.unwrap_or_else(PoisonError::into_inner);
        let next = wanted.next.take();
        if next.is_none() {
            wanted.over = true;
            self.changed.notify_all();
        }
        next
    }

    /// Writes what comes. A lease that the disk does not take is followed by the next one.
    fn serve(&self, path: &Path) {
        let mut fails = false;
        while let Some(content) = self.next() {
            let written = write(path, &content);
            match &written {
                Err(error) if !fails => {
                    tracing::error!(path = %path.display(), %error, "a later daemon will not know the node's lease, and ends jobs early; make room, or look at the disk");
                }
                Ok(()) if fails => tracing::info!(path = %path.display(), "leases are noted again"),
                _ => {}
            }
            fails = written.is_err();
        }
    }
}

/// Replaces the file. It counts for one boot, so it need not be on the disk.
fn write(path: &Path, content: &Content) -> io::Result<()> {
    let draft = path.with_extension("new");
    let text = toml::to_string(content).map_err(io::Error::other)?;
    durable::replace(path, &draft, fs::write(&draft, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_small_disk::{fill, on_a_small_disk};
    use std::time::Instant;

    /// Waits until the file says this lease.
    fn await_lease(path: &Path, lease: u64) {
        let end = Instant::now() + Duration::from_secs(60);
        while read(path).unwrap().lease != Some(lease) {
            assert!(Instant::now() < end, "never {lease}: {:?}", read(path));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A pipe at the place of the draft stands for a disk that does not answer: who opens it waits for a reader.
    #[test]
    fn a_disk_that_does_not_answer_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("life");
        let mut life = NodeLife::begin(path.clone()).unwrap();
        let draft = path.with_extension("new");
        nix::unistd::mkfifo(&draft, nix::sys::stat::Mode::S_IRWXU).unwrap();
        life.set_lease(Some(1));
        while life.disk.lock().next.is_some() {
            std::thread::yield_now();
        }
        for lease in 2..=100 {
            life.set_lease(Some(lease));
        }
        // The disk answers. What was under way is written, and after it the last one.
        let first = fs::read_to_string(&draft).unwrap();
        assert!(first.contains("lease = 1\n"), "{first}");
        let disk = Arc::clone(&life.disk);
        drop(life);
        // The pipe has the file's name until the last lease is there, and nobody is to read it once more.
        let end = Instant::now() + Duration::from_secs(60);
        while !disk.lock().over {
            assert!(Instant::now() < end, "the last lease is still being written");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(fs::metadata(&path).unwrap().is_file(), "it is still the pipe");
        assert_eq!(read(&path).unwrap().lease, Some(100));
    }

    #[test]
    fn a_full_disk_leaves_the_file_whole_and_leases_are_noted_again_when_there_is_room() {
        on_a_small_disk(64 << 10, |disk| {
            let path = disk.join("life");
            let mut life = NodeLife::begin(path.clone()).unwrap();
            life.set_lease(Some(1));
            await_lease(&path, 1);
            fill(disk);
            let error = write(&path, &life.content).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert!(!path.with_extension("new").exists());
            life.set_lease(Some(2));
            assert_eq!(read(&path).unwrap().daemons, 1);
            fs::remove_file(disk.join("others")).unwrap();
            life.set_lease(Some(3));
            await_lease(&path, 3);
        });
    }

    #[test]
    fn daemons_are_counted_and_the_lease_stays_until_the_machine_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("life");
        assert_eq!(daemons(&path), Some(0));
        let mut first = NodeLife::begin(path.clone()).unwrap();
        assert_eq!((first.number(), first.lease()), (1, None));
        first.set_lease(Some(77));
        drop(first);
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
