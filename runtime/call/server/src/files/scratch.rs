//! Folders for the files of calls, one for each call that has files.
//!
//! A call's folder belongs to the system user of its routine, and nobody else can enter. It lies in a folder
//! of its owner, whose calls may share a process. Only the server creates entries there, and a sandbox shows
//! nothing else. The server does not trust what a routine leaves under the names of files: it opens them
//! relative to the folder's descriptor and checks them.
//!
//! Each server has a folder of its own with a lock, which the system releases when the server ends. A new
//! server removes the folders whose lock is free.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use kumi_idl::{Interface, Type};
use kumi_rpc::{ArraySize, Code, Failure};
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, fchown, geteuid};

use super::super::folder_removal::{FOLDER, FolderRemoval, remove_server};
use super::super::owner::Owner;
use crate::budget::{Budget, Reservation};
use crate::confine::RunAs;
use crate::values::GivenValues;

/// Prefix of the names of servers' folders.
const PREFIX: &str = "kumi-call-";
/// Name of the lock file in a server's folder.
const LOCK: &str = "lock";

/// The folder of a server, with the folders of its calls.
#[derive(Debug)]
pub struct Scratch {
    base: PathBuf,
    /// The folder and its lock, made when the first call needs it. The lock is held while this is open.
    made: Option<(PathBuf, File)>,
    /// Folders of owners in it.
    places: HashMap<Owner, OwnerFolder>,
    /// Whether routines run in a sandbox.
    sandbox: bool,
    next: Cell<u64>,
    /// Bytes of the files of all calls.
    budget: Budget,
}

/// The folder of an owner's calls, and its system user. `None`: the server's own.
#[derive(Debug, Clone)]
struct OwnerFolder {
    folder: PathBuf,
    user: Option<RunAs>,
}

fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn open_lock(folder: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(create).mode(0o600);
    // Non-blocking: another user may have put a pipe under this name.
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(folder.join(LOCK))
}

impl Scratch {
    /// Scratch space below this folder with this limit in bytes. Removes what earlier servers left.
    pub fn new(base: &Path, most: u64, sandbox: bool) -> Scratch {
        match stale(base) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "what other servers left in {} stays", base.display());
            }
        }
        let (next, budget) = (Cell::new(0), Budget::new(most));
        let places = HashMap::new();
        Scratch { base: base.to_owned(), made: None, places, sandbox, next, budget }
    }

    /// The folder of an owner's calls.
    fn place(&mut self, owner: &Owner) -> io::Result<OwnerFolder> {
        // A cleaner may have removed it.
        if self.made.as_ref().is_none_or(|(folder, _)| !folder.is_dir()) {
            self.made = Some(own(&self.base)?);
            self.places.clear();
        }
        if let Some(place) = self.places.get(owner).filter(|place| place.folder.is_dir()) {
            return Ok(place.clone());
        }
        let user = RunAs::of(owner.run_as.as_deref(), self.sandbox)?;
        let (server, _) = self.made.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let folder = server.join(format!("owner-{}", self.number()));
        private(&folder)?;
        passable(&folder)?;
        let place = OwnerFolder { folder, user };
        self.places.insert(owner.clone(), place.clone());
        Ok(place)
    }

    /// The folder that contains the folders of an owner's calls.
    ///
    /// # Errors
    /// An error of the system.
    pub fn folder_of(&mut self, owner: &Owner) -> io::Result<PathBuf> {
        self.place(owner).map(|place| place.folder)
    }

    fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// A new folder for a call, and its owner's folder.
    fn folder(&mut self, owner: &Owner) -> io::Result<(PathBuf, OwnerFolder)> {
        let place = self.place(owner)?;
        let folder = place.folder.join(self.number().to_string());
        private(&folder)?;
        Ok((folder, place))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some((folder, _lock)) = self.made.take()
            && let Err(error) = remove_server(&folder)
        {
            tracing::warn!(%error, "{} cannot be removed", folder.display());
        }
    }
}

/// Lets others pass through a folder to entries whose names they know. Only a server of root has such users.
fn passable(folder: &Path) -> io::Result<()> {
    match geteuid().is_root() {
        true => std::fs::set_permissions(folder, Permissions::from_mode(0o711)),
        false => Ok(()),
    }
}

/// Makes the folder of this server and locks it.
fn own(base: &Path) -> io::Result<(PathBuf, File)> {
    std::fs::create_dir_all(base)?;
    // The canonical path, which is the same in a sandbox.
    let base = std::fs::canonicalize(base)?;
    loop {
        let begin = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let folder = base.join(format!("{PREFIX}{}-{begin}", std::process::id()));
        private(&folder)?;
        let lock = open_lock(&folder, true)?;
        // Another starting server may have removed it as abandoned just before it was locked.
        match lock.try_lock() {
            Ok(()) if open_lock(&folder, false).is_ok() => {
                passable(&folder)?;
                return Ok((folder, lock));
            }
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Removes the folders of servers that are gone.
fn stale(base: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(base)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // Folders of others may have such names too.
        let ours = |about: Metadata| about.is_dir() && about.uid() == geteuid().as_raw();
        if !entry.metadata().is_ok_and(ours) {
            continue;
        }
        // A folder without a lock is just being made, or is not ours.
        let Ok(lock) = open_lock(&entry.path(), false) else { continue };
        if lock.try_lock().is_ok()
            && let Err(error) = remove_server(&entry.path())
        {
            tracing::warn!(%error, "{} cannot be removed", entry.path().display());
        }
    }
    Ok(())
}

/// The files of a call. Dropping this removes their folder.
#[derive(Debug)]
pub struct CallFiles {
    folder: PathBuf,
    /// The folder, whatever its name may refer to now.
    held: OwnedFd,
    place: OwnerFolder,
    /// Files that the client sends, open for writing.
    coming: Vec<(u16, File)>,
    _room: Reservation,
}

/// A file that goes back to the client.
#[derive(Debug)]
pub struct OutgoingFile {
    /// The parameter and the length.
    pub size: ArraySize,
    /// The file; its name is already removed.
    pub file: File,
}

/// The disk failed before the routine ran, so another server may take the call.
fn disk(doing: &str, error: &io::Error) -> Failure {
    let text = format!("the server cannot {doing} a file of the call: {error}");
    Failure::new(Code::Busy, i64::from(error.raw_os_error().unwrap_or_default()), text)
}

/// The failure for an unreadable result file.
fn unreadable(error: &io::Error) -> Failure {
    let text =
        format!("the routine has run, but the server cannot read a file of the call: {error}");
    Failure::new(Code::Storage, i64::from(error.raw_os_error().unwrap_or_default()), text)
}

impl CallFiles {
    /// Makes the files of a call, whose lengths are in `given`, and puts their names there. `None`: the call
    /// has no files.
    ///
    /// # Errors
    /// They are longer than `most` bytes together, or the disk does not take them.
    pub fn new(
        scratch: &mut Scratch,
        owner: &Owner,
        interface: &Interface,
        given: &mut GivenValues,
        most: u64,
    ) -> Result<Option<CallFiles>, Failure> {
        if !interface.params.iter().any(|param| param.ty == Type::File) {
            return Ok(None);
        }
        let bytes = given.files.iter().flatten().fold(0_u64, |sum, file| sum.saturating_add(*file));
        if bytes > most {
            let text = format!("files of {bytes} bytes are more than the {most} of a call");
            return Err(Failure::new(
                Code::TooLarge,
                i64::try_from(bytes).unwrap_or(i64::MAX),
                text,
            ));
        }
        let room = scratch.budget.reserve(bytes).ok_or_else(|| {
            let text = format!(
                "the files of other calls leave no room for {bytes} bytes; try again later"
            );
            Failure::new(Code::Busy, i64::from(libc::ENOSPC), text)
        })?;
        let made = scratch.folder(owner).and_then(|(folder, place)| {
            let held = open(&folder, FOLDER, Mode::empty())?;
            // From here on the folder is removed, however this ends.
            let mut files = CallFiles { folder, held, place, coming: Vec::new(), _room: room };
            files.make(interface, given)?;
            Ok(files)
        });
        made.map(Some).map_err(|error| disk("make", &error))
    }

    /// Makes the files, owned by the user of the routine.
    fn make(&mut self, interface: &Interface, given: &mut GivenValues) -> io::Result<()> {
        let user = self.place.user.as_ref();
        let user = user.map(|user| (Uid::from_raw(user.user()), Gid::from_raw(user.group())));
        let hand_over = |file: &OwnedFd| match user {
            Some((user, group)) => fchown(file, Some(user), Some(group)),
            None => Ok(()),
        };
        for (index, param) in (0_u16..).zip(&interface.params) {
            if param.ty != Type::File {
                continue;
            }
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
            let mode = Mode::S_IRUSR | Mode::S_IWUSR;
            let file = openat(&self.held, name(index).as_str(), flags, mode)?;
            hand_over(&file)?;
            if param.mode.is_sent() {
                self.coming.push((index, File::from(file)));
            }
            let path = self.folder.join(name(index));
            given.texts[usize::from(index)] = Some(path.to_string_lossy().into_owned());
        }
        Ok(hand_over(&self.held)?)
    }

    /// The folder that the routine's process must reach.
    pub fn place(&self) -> &Path {
        &self.place.folder
    }

    /// Whether the bytes of a parameter go to a file.
    pub fn takes(&self, parameter: u16) -> bool {
        self.coming.iter().any(|(other, _)| *other == parameter)
    }

    /// Writes bytes that have arrived.
    ///
    /// # Errors
    /// The disk does not take them.
    pub fn write(&self, parameter: u16, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        let Some((_, file)) = self.coming.iter().find(|(other, _)| *other == parameter) else {
            return Ok(());
        };
        std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
            .map_err(|error| disk("write", &error))
    }

    /// All files have arrived; the server closes them.
    pub fn complete(&mut self) {
        self.coming.clear();
    }

    /// Opens the result files after the routine has run. It does not trust them to be regular files.
    ///
    /// # Errors
    /// A result is not a regular file, or longer than `most` bytes.
    pub fn outgoing(&self, interface: &Interface, most: u64) -> Result<Vec<OutgoingFile>, Failure> {
        let mut all = Vec::new();
        let mut left = most;
        for (argument, param) in (0_u16..).zip(&interface.params) {
            if param.ty != Type::File || !param.mode.is_returned() {
                continue;
            }
            let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
            let flags = flags | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
            let opened = openat(&self.held, name(argument).as_str(), flags, Mode::empty());
            let file = File::from(opened.map_err(|errno| unreadable(&errno.into()))?);
            let about = file.metadata().map_err(|error| unreadable(&error))?;
            // A hard link to somebody else's file is not a result.
            let own = self.place.user.as_ref().is_none_or(|user| about.uid() == user.user());
            if !about.is_file() || !own {
                let text = format!("`{}` left no file for `{}`", interface.name, param.name);
                return Err(Failure::new(Code::Storage, 0, text));
            }
            let bytes = about.len();
            left = left.checked_sub(bytes).ok_or_else(|| {
                let text = format!(
                    "`{}` has run, but wrote {bytes} bytes to `{}`, more than the {most} of a call",
                    interface.name, param.name
                );
                Failure::new(Code::Storage, i64::try_from(bytes).unwrap_or(i64::MAX), text)
            })?;
            all.push(OutgoingFile { size: ArraySize { argument, bytes }, file });
        }
        Ok(all)
    }
}

/// The name of a parameter's file in the folder of its call.
fn name(parameter: u16) -> String {
    format!("file-{parameter}")
}

/// Entries that the server removes at once. A routine may have left any number; a thread removes the rest.
const AT_ONCE: u64 = 256;

impl Drop for CallFiles {
    fn drop(&mut self) {
        let folder = self.folder.clone();
        let told = move |error: io::Error| {
            // The whole folder of the server may be gone already.
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(%error, "{} cannot be removed", folder.display());
            }
        };
        match FolderRemoval::of(&self.folder).and_then(|mut sweep| Ok((sweep.go(AT_ONCE)?, sweep)))
        {
            Ok((true, _)) => {}
            Ok((false, mut sweep)) => {
                let rest = move || sweep.go(u64::MAX).map(|_| ()).unwrap_or_else(told);
                // Without a thread, it is removed when the server ends.
                if let Err(error) = std::thread::Builder::new().spawn(rest) {
                    tracing::warn!(%error, "no thread to remove what a routine has left");
                }
            }
            Err(error) => told(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_servers_that_are_gone_are_removed() {
        let base = tempfile::tempdir().expect("a folder");
        let there = || std::fs::read_dir(base.path()).expect("readable").count();
        let mut lives = Scratch::new(base.path(), 10, false);
        let folder = lives.folder(&Owner::default()).expect("a folder").0;
        assert!(folder.exists());
        // As after a crash: a folder whose lock nobody holds.
        let left = base.path().join("kumi-call-1-2");
        private(&left).expect("made");
        open_lock(&left, true).expect("a lock");
        std::fs::write(left.join("file-0"), "data").expect("written");
        std::fs::create_dir(base.path().join("kumi-call-new")).expect("made");
        std::fs::create_dir(base.path().join("other")).expect("made");
        let next = Scratch::new(base.path(), 10, false);
        assert!(folder.exists(), "its server lives");
        assert!(!left.exists());
        assert_eq!(there(), 3, "one without a lock is nobody's to remove");
        drop((lives, next));
        assert!(!folder.exists());
    }

    #[test]
    fn the_files_of_all_calls_are_bounded() {
        let base = tempfile::tempdir().expect("a folder");
        let scratch = Scratch::new(base.path(), 10, false);
        let room = |bytes| scratch.budget.reserve(bytes);
        let (one, other) = (room(4).expect("room"), room(6).expect("room"));
        assert!(room(1).is_none() && room(u64::MAX).is_none());
        drop(one);
        assert!(room(5).is_none() && room(4).is_some());
        drop(other);
        assert!(room(10).is_some());
    }
}
