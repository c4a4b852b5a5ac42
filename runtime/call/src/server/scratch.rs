//! Files of calls: each call that has some has a folder, which goes with it.
//!
//! The folder of a call is of the user as whom its routine runs, and for nobody else. It lies in a folder of its owner, whose
//! calls may share a process: that one is the server's, who alone makes and names things in it, and it is all that a sandbox
//! shows. What a routine has left under the names of files is looked at by the folder's descriptor and not believed.
//!
//! A server has a folder of its own below the one it was given, with a lock that the system lets go of when the server
//! ends, however it does: folders whose lock can be had are of servers that are gone, and are removed.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kumi_idl::{Interface, Type};
use kumi_rpc::{ArraySize, Code, Failure};
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, fchown, geteuid};

use super::folder_removal::{FOLDER, FolderRemoval, remove_server};
use super::owner::Owner;
use crate::confine::RunAs;
use crate::values::GivenValues;

/// What the names of servers' folders begin with.
const PREFIX: &str = "kumi-call-";
/// The lock in a server's folder.
const LOCK: &str = "lock";

/// The folder of a server, with those of its calls.
#[derive(Debug)]
pub struct Scratch {
    base: PathBuf,
    /// Made when the first call needs it; with the lock, which is held as long as it is open.
    made: Option<(PathBuf, File)>,
    /// Those of owners in it.
    places: HashMap<Owner, OwnerFolder>,
    /// Whether routines run in a sandbox.
    sandbox: bool,
    next: Cell<u64>,
    /// Bytes of the files that calls have sent or send, and the most of them.
    total: Rc<Cell<u64>>,
    most: u64,
}

/// Where the calls of an owner have their folders, and the user of the system whose those are; `None`: the server's.
#[derive(Debug, Clone)]
struct OwnerFolder {
    folder: PathBuf,
    user: Option<RunAs>,
}

/// Room for the files of a call, as long as that is here.
#[derive(Debug)]
struct FileReservation {
    bytes: u64,
    total: Rc<Cell<u64>>,
}

impl Drop for FileReservation {
    fn drop(&mut self) {
        self.total.set(self.total.get() - self.bytes);
    }
}

fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn open_lock(folder: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(create).mode(0o600);
    // Not waited for: what another has put there under this name may be a pipe.
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(folder.join(LOCK))
}

impl Scratch {
    /// Below this folder, for so many bytes of files together. What servers that are gone have left there is removed.
    pub fn new(base: &Path, most: u64, sandbox: bool) -> Scratch {
        match stale(base) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "what other servers left in {} stays", base.display());
            }
        }
        let (next, total) = (Cell::new(0), Rc::default());
        let places = HashMap::new();
        Scratch { base: base.to_owned(), made: None, places, sandbox, next, total, most }
    }

    /// Room for so many bytes; `None`: other calls have it.
    fn room(&self, bytes: u64) -> Option<FileReservation> {
        let total = self.total.get().checked_add(bytes).filter(|total| *total <= self.most)?;
        self.total.set(total);
        Some(FileReservation { bytes, total: Rc::clone(&self.total) })
    }

    /// Where the calls of an owner have their folders.
    fn place(&mut self, owner: &Owner) -> io::Result<OwnerFolder> {
        // Somebody may have cleaned up.
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

    /// The folder in which those of the calls of an owner are.
    ///
    /// # Errors
    /// What the system says.
    pub fn folder_of(&mut self, owner: &Owner) -> io::Result<PathBuf> {
        self.place(owner).map(|place| place.folder)
    }

    fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// A folder for a call, and where that is.
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

/// Others may go through a folder to what they have in it, if they know its name; only a server of root's has others.
fn passable(folder: &Path) -> io::Result<()> {
    match geteuid().is_root() {
        true => std::fs::set_permissions(folder, Permissions::from_mode(0o711)),
        false => Ok(()),
    }
}

/// A folder for this server, and its lock.
fn own(base: &Path) -> io::Result<(PathBuf, File)> {
    std::fs::create_dir_all(base)?;
    // The name by which a sandbox, too, has it.
    let base = std::fs::canonicalize(base)?;
    loop {
        let begin = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let folder = base.join(format!("{PREFIX}{}-{begin}", std::process::id()));
        private(&folder)?;
        let lock = open_lock(&folder, true)?;
        // Another server that starts may have taken it, just before it was locked, for one that nobody has any more.
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
        // Others may have folders that are called so.
        let ours = |about: Metadata| about.is_dir() && about.uid() == geteuid().as_raw();
        if !entry.metadata().is_ok_and(ours) {
            continue;
        }
        // One without a lock is just being made, or is not ours.
        let Ok(lock) = open_lock(&entry.path(), false) else { continue };
        if lock.try_lock().is_ok()
            && let Err(error) = remove_server(&entry.path())
        {
            tracing::warn!(%error, "{} cannot be removed", entry.path().display());
        }
    }
    Ok(())
}

/// The files of a call, in a folder that goes with this.
#[derive(Debug)]
pub struct CallFiles {
    folder: PathBuf,
    /// The folder, whatever may be at its name.
    held: OwnedFd,
    place: OwnerFolder,
    /// Those that are sent, to be written.
    coming: Vec<(u16, File)>,
    _room: FileReservation,
}

/// A file that goes to the client.
#[derive(Debug)]
pub struct OutgoingFile {
    /// The parameter, and its bytes.
    pub size: ArraySize,
    /// The file, which has no name any more.
    pub file: File,
}

/// The server's disk fails before the routine has run: another server may take the call.
fn disk(doing: &str, error: &io::Error) -> Failure {
    let text = format!("the server cannot {doing} a file of the call: {error}");
    Failure::new(Code::Busy, i64::from(error.raw_os_error().unwrap_or_default()), text)
}

/// What the routine has left cannot be read.
fn unreadable(error: &io::Error) -> Failure {
    let text =
        format!("the routine has run, but the server cannot read a file of the call: {error}");
    Failure::new(Code::Storage, i64::from(error.raw_os_error().unwrap_or_default()), text)
}

impl CallFiles {
    /// Makes room for the files of a call, whose lengths `given` has, and gives it their names. `None`: it has none.
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
        let room = scratch.room(bytes).ok_or_else(|| {
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

    /// Makes the files, for the user as whom the routine runs.
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

    /// The folder that the routine's process needs to reach.
    pub fn place(&self) -> &Path {
        &self.place.folder
    }

    /// Whether the bytes of a parameter go to a file.
    pub fn takes(&self, parameter: u16) -> bool {
        self.coming.iter().any(|(other, _)| *other == parameter)
    }

    /// Writes bytes that have come.
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

    /// All has come: the routine has the files for itself.
    pub fn complete(&mut self) {
        self.coming.clear();
    }

    /// The files that go back, when the routine has run. What it has left there is not believed to be files.
    ///
    /// # Errors
    /// It left something else, or more than `most` bytes.
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
            // A second name of somebody else's file is none of the routine's.
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

/// What a file is called in the folder of its call.
fn name(parameter: u16) -> String {
    format!("file-{parameter}")
}

/// Entries of a call's folder that are removed while the server waits; a routine may have left any number.
const AT_ONCE: u64 = 256;

impl Drop for CallFiles {
    fn drop(&mut self) {
        let folder = self.folder.clone();
        let told = move |error: io::Error| {
            // The server's whole folder may have gone before.
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(%error, "{} cannot be removed", folder.display());
            }
        };
        match FolderRemoval::of(&self.folder).and_then(|mut sweep| Ok((sweep.go(AT_ONCE)?, sweep)))
        {
            Ok((true, _)) => {}
            Ok((false, mut sweep)) => {
                let rest = move || sweep.go(u64::MAX).map(|_| ()).unwrap_or_else(told);
                // If there is no thread it is removed at the server's end.
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
        // As a crash leaves it: the folder with a lock that nobody holds.
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
        let (one, other) = (scratch.room(4).expect("room"), scratch.room(6).expect("room"));
        assert!(scratch.room(1).is_none() && scratch.room(u64::MAX).is_none());
        drop(one);
        assert!(scratch.room(5).is_none() && scratch.room(4).is_some());
        drop(other);
        assert!(scratch.room(10).is_some());
    }
}
