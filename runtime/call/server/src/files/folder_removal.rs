//! Removal of folders in which routines have written.
//!
//! The content is not trusted: it may belong to another user. Links are not followed. At most two folders are
//! open at a time, however deep they are nested, and nothing recurses.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Flags that open a folder, and never a link to one.
pub const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// The removal of one folder, in steps.
#[derive(Debug)]
pub struct FolderRemoval {
    /// The parent folder, in which only the server creates and names entries.
    parent: OwnedFd,
    stem: OsString,
    /// Entries of the parent to remove: the folder, and deeper folders that were moved up.
    left: Vec<OsString>,
    moved: u64,
}

/// Removes one entry. False: it is a folder that is not empty.
fn gone(folder: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let file = match unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
        // Linux reports the first for a folder, other systems the second.
        Err(Errno::EISDIR | Errno::EPERM) => unlinkat(folder, name, UnlinkatFlags::RemoveDir),
        removed => removed,
    };
    match file {
        Ok(()) | Err(Errno::ENOENT) => Ok(true),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

impl FolderRemoval {
    /// The removal of this folder.
    ///
    /// # Errors
    /// An error of the system.
    pub fn of(path: &Path) -> io::Result<FolderRemoval> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = open(parent, FOLDER, Mode::empty())?;
        Ok(FolderRemoval { parent, stem: name.to_owned(), left: vec![name.to_owned()], moved: 0 })
    }

    /// Removes at most this many entries. Returns whether all is done.
    ///
    /// # Errors
    /// An error of the system.
    pub fn go(&mut self, mut steps: u64) -> io::Result<bool> {
        while let Some(name) = self.left.last().cloned() {
            let Some(rest) = steps.checked_sub(1) else { return Ok(false) };
            steps = rest;
            if gone(&self.parent, &name)? {
                self.left.pop();
                continue;
            }
            let folder = openat(&self.parent, name.as_os_str(), FOLDER, Mode::empty())?;
            for entry in std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))? {
                let Some(rest) = steps.checked_sub(1) else { return Ok(false) };
                steps = rest;
                let name = entry?.file_name();
                if !gone(&folder, &name)? {
                    self.lift(&folder, &name)?;
                }
            }
        }
        Ok(true)
    }

    /// Moves a folder up into the parent, to be removed next.
    fn lift(&mut self, folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let mut free = self.stem.clone();
        free.push(format!(".{}", self.moved));
        self.moved += 1;
        match renameat(folder, name, &self.parent, free.as_os_str()) {
            Ok(()) => self.left.push(free),
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

/// Removes the folder of a server with all folders of its users.
///
/// # Errors
/// An error of the system.
pub fn remove_server(folder: &Path) -> io::Result<()> {
    for owner in std::fs::read_dir(folder)? {
        let owner = owner?;
        if owner.file_type()?.is_dir() {
            for call in std::fs::read_dir(owner.path())? {
                remove(&call?.path())?;
            }
        }
        remove(&owner.path())?;
    }
    remove(folder)
}

/// Steps after which the removal is given up, because something keeps adding entries.
const ENOUGH: u64 = 100_000_000;

fn remove(path: &Path) -> io::Result<()> {
    match FolderRemoval::of(path)?.go(ENOUGH)? {
        true => Ok(()),
        false => Err(io::Error::other("new entries keep appearing in it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::AT_FDCWD;
    use nix::sys::stat::mkdirat;

    /// Makes nested folders of this depth.
    fn deep(base: &Path, levels: usize) {
        let mut folder = open(base, FOLDER, Mode::empty()).expect("it is there");
        for _ in 0..levels {
            mkdirat(&folder, "x", Mode::S_IRWXU).expect("made");
            folder = openat(&folder, "x", FOLDER, Mode::empty()).expect("it is there");
        }
    }

    #[test]
    fn whatever_was_left_goes_and_nothing_else() {
        let base = tempfile::tempdir().expect("a folder");
        let (kept, call) = (base.path().join("kept"), base.path().join("7"));
        std::fs::create_dir(&kept).expect("made");
        std::fs::write(kept.join("file"), "kept").expect("written");
        std::fs::create_dir(&call).expect("made");
        deep(&call, 3_000);
        for at in 0..50 {
            let wide = call.join(format!("wide{at}"));
            std::fs::create_dir_all(wide.join("a/b")).expect("made");
            std::fs::write(wide.join("a/file"), "text").expect("written");
        }
        std::os::unix::fs::symlink(&kept, call.join("link")).expect("a link");
        std::os::unix::fs::symlink(kept.join("file"), call.join("x/link")).expect("a link");
        nix::unistd::mkfifoat(AT_FDCWD, &call.join("pipe"), Mode::S_IRWXU).expect("a pipe");
        let mut sweep = FolderRemoval::of(&call).expect("it is there");
        assert!(!sweep.go(10).expect("a part"), "not all at once");
        assert!(call.exists());
        while !sweep.go(1_000).expect("a part") {}
        let left = std::fs::read_dir(base.path()).expect("a folder");
        assert_eq!(left.map(|one| one.expect("one").file_name()).collect::<Vec<_>>(), ["kept"]);
        assert_eq!(std::fs::read(kept.join("file")).expect("it is there"), b"kept");
        assert!(sweep.go(1).expect("nothing is left"));
    }
}
