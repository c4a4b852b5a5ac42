//! Disk that the job table has to itself: a file that is there for its length, and goes when the disk is full.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::statvfs;

/// Length of the file, and what output leaves free beside it, in bytes.
const RESERVE: u64 = 32 << 20;
/// On a small disk both are this part of it.
const PART: u64 = 16;
/// What is written at once where a file system cannot set blocks aside.
const CHUNK: usize = 64 << 10;
/// The unit in which the system counts what a file takes, in bytes.
const BLOCK: u64 = 512;

/// Whether the reserve is there, for those who leave the disk alone while it is not.
pub(super) type ReserveHeld = Rc<ReserveState>;

/// Whether the reserve is there, and if not, why.
#[derive(Debug)]
pub(super) struct ReserveState(RefCell<Option<String>>);

impl ReserveState {
    /// It is not there, and this is why.
    pub(super) fn missing_because(reason: &str) -> Self {
        Self(RefCell::new(Some(reason.to_owned())))
    }

    pub(super) fn is_held(&self) -> bool {
        self.0.borrow().is_none()
    }

    /// Why it is not there.
    pub(super) fn reason(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    pub(super) fn set_held(&self) {
        self.0.replace(None);
    }

    /// It is not there, and this is why. Returns whether that is news.
    pub(super) fn set_missing(&self, reason: &str) -> bool {
        let before = self.0.replace(Some(reason.to_owned()));
        before.as_deref() != Some(reason)
    }
}

/// The reserve of a disk.
#[derive(Debug)]
pub(super) struct DiskReserve {
    path: PathBuf,
    held: ReserveHeld,
}

/// Bytes that are to be set aside on the disk of this folder.
fn share(folder: &Path) -> io::Result<u64> {
    let disk = statvfs(folder)?;
    Ok(RESERVE.min(disk.blocks().saturating_mul(disk.fragment_size()) / PART))
}

/// Whether the disk of this folder has little room left: then only the job table may write.
///
/// # Errors
/// The system does not say.
pub(super) fn is_nearly_full(folder: &Path) -> io::Result<bool> {
    let disk = statvfs(folder)?;
    Ok(disk.blocks_available().saturating_mul(disk.fragment_size()) < share(folder)?)
}

/// Refuses if the disk has no room for a reserve and half as much beside it: it is not to take what others need, nor take
/// back what it gave up. Output leaves the room of two, or a little less. The file that is there already, of `own` bytes, is
/// room.
fn check_room(folder: &Path, own: u64, length: u64) -> io::Result<()> {
    let disk = statvfs(folder)?;
    let available = disk.blocks_available().saturating_mul(disk.fragment_size());
    let least = length + length / 2;
    if available.saturating_add(own) < least {
        let text = format!("{} has less than {} KiB free", folder.display(), least >> 10);
        return Err(io::Error::new(io::ErrorKind::StorageFull, text));
    }
    Ok(())
}

fn fill(file: &mut File, length: u64) -> io::Result<()> {
    let whole = i64::try_from(length).map_err(io::Error::other)?;
    loop {
        match fallocate(&*file, FallocateFlags::empty(), 0, whole) {
            Err(Errno::EINTR) => {}
            Err(Errno::EOPNOTSUPP) => break,
            allocated => return Ok(allocated?),
        }
    }
    let zeros = [0; CHUNK];
    let mut left = length;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        file.write_all(&zeros[..count])?;
        left -= count as u64;
    }
    Ok(())
}

impl DiskReserve {
    /// The reserve in the file at `path`, made if there is room for it.
    pub(super) fn open(path: PathBuf) -> Self {
        let reserve = Self { path, held: Rc::new(ReserveState::missing_because("not made yet")) };
        reserve.renew();
        reserve
    }

    /// Whether it is there, now and later.
    pub(super) fn held(&self) -> &ReserveHeld {
        &self.held
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    fn make(&self) -> io::Result<()> {
        let folder = self.folder();
        let length = share(folder)?;
        let own = match fs::metadata(&self.path) {
            Ok(found) => found.blocks().saturating_mul(BLOCK),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        check_room(folder, own, length).inspect_err(|_| {
            // Of an earlier head: nobody would give it up when the table needs it.
            if own > 0 {
                self.remove();
            }
        })?;
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).open(&self.path)?;
        fill(&mut file, length).inspect_err(|_| self.remove())
    }

    fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::error!(path = %self.path.display(), %error, "the reserve cannot be removed");
        }
    }

    /// Makes it, if it is not there and there is room.
    pub(super) fn renew(&self) {
        if self.held.is_held() {
            return;
        }
        match self.make() {
            Ok(()) => self.held.set_held(),
            Err(error) => {
                if self.held.set_missing(&error.to_string()) {
                    let path = self.path.display();
                    tracing::warn!(%path, %error, "no reserve for the job table: output is not kept");
                }
            }
        }
    }

    /// Whether its disk has little room left beside it. A disk that does not say is not taken for full.
    pub(super) fn has_little_beside_it(&self) -> bool {
        is_nearly_full(self.folder()).unwrap_or_else(|error| {
            tracing::warn!(path = %self.path.display(), %error, "the disk does not say how full it is");
            false
        })
    }

    /// Gives it up. Returns whether there was one.
    pub(super) fn release(&self) -> bool {
        let held = self.held.is_held();
        if held {
            self.held.set_missing("the disk was full, and the table uses it");
            tracing::warn!(
                "the disk is full: the job table uses its reserve, and output is not kept"
            );
            self.remove();
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_small_disk::{free, on_a_small_disk};

    #[test]
    fn the_reserve_takes_room_and_gives_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        let length = || fs::metadata(&path).map_or(0, |found| found.len());
        let reserve = DiskReserve::open(path.clone());
        assert!(reserve.held().is_held());
        assert_eq!(length(), share(dir.path()).unwrap());
        assert!(reserve.release() && !reserve.held().is_held());
        assert_eq!(length(), 0);
        assert!(!reserve.release());
        reserve.renew();
        assert!(reserve.held().is_held() && length() > 0);
        // Where no file can be there is none, which is no failure.
        let none = DiskReserve::open(dir.path().join("no/such/folder"));
        assert!(!none.held().is_held() && !none.release());
        let says = none.held().reason().unwrap_or_default();
        assert!(says.contains("No such file"), "{says}");
        assert!(!none.held().set_missing(&says) && none.held().set_missing("another reason"));
    }

    #[test]
    fn a_disk_with_little_room_keeps_it() {
        on_a_small_disk(64 << 20, |disk| {
            let path = disk.join("reserve");
            let reserve = DiskReserve::open(path.clone());
            let length = share(disk).unwrap();
            assert!(reserve.held().is_held());
            // The file of an earlier head is room for the next.
            let left = free(disk);
            let others = File::create(disk.join("others")).unwrap();
            fallocate(&others, FallocateFlags::empty(), 0, (left - length) as i64).unwrap();
            let reserve = DiskReserve::open(path.clone());
            assert!(reserve.held().is_held());
            // What one of them has no room for goes, too: nobody would give it up.
            others.set_len(0).unwrap();
            fallocate(&others, FallocateFlags::empty(), 0, left as i64).unwrap();
            let next = DiskReserve::open(path.clone());
            assert!(!next.held().is_held() && !path.exists());
            others.set_len(left - length).unwrap();
            reserve.held.set_missing("a test");
            reserve.renew();
            assert!(reserve.held().is_held());
            // What is given up is the table's, and not taken back.
            others.set_len(0).unwrap();
            fallocate(&others, FallocateFlags::empty(), 0, left as i64).unwrap();
            assert!(reserve.has_little_beside_it());
            assert!(reserve.release());
            assert_eq!(free(disk), length);
            assert!(!reserve.has_little_beside_it());
            reserve.renew();
            let says = reserve.held().reason().unwrap_or_default();
            assert!(says.contains("less than 6144 KiB free"), "{says}");
            assert_eq!(free(disk), length);
            others.set_len(left - length).unwrap();
            reserve.renew();
            assert!(reserve.held().is_held());
        });
    }
}
