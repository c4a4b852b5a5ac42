//! Small disks for tests: file systems in memory that are soon full.
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::statvfs;

/// Runs this on a thread with a disk of its own, of so many bytes. Skipped, visibly, where that is not permitted.
///
/// # Panics
/// If the test does, or where skips are forbidden.
pub fn on_a_small_disk(bytes: u64, test: impl FnOnce(&Path) + Send) {
    let dir = tempfile::tempdir().expect("a folder");
    let own = || {
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        let size = format!("size={bytes}");
        mount(Some("none"), dir.path(), Some("tmpfs"), MsFlags::empty(), Some(&*size))
    };
    std::thread::scope(|threads| {
        threads.spawn(|| match own() {
            Ok(()) => test(dir.path()),
            Err(error) => kumi_skip::skip("a small disk", &format!("no mount: {error}")),
        });
    });
}

/// Another program takes all that is left of the disk, with a file `others`, which grows if it is there.
///
/// # Panics
/// If the disk does not become full.
pub fn fill(disk: &Path) {
    let others = OpenOptions::new().create(true).append(true).open(disk.join("others"));
    let mut others = others.expect("a small disk");
    let full = io::copy(&mut io::repeat(0), &mut others).expect_err("it is small");
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
}

/// Bytes that are left of the disk.
///
/// # Panics
/// If the system does not say.
#[must_use]
pub fn free(disk: &Path) -> u64 {
    let disk = statvfs(disk).expect("a disk");
    disk.blocks_available() * disk.fragment_size()
}
