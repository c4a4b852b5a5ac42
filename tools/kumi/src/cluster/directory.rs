//! Directory of the cluster: locked for one command at a time, removed as a whole.

use crate::context::Context;
use crate::error::Error;
use kumi_node::paths;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Longest name of a Unix socket, in bytes (`unix(7)`, less the final zero).
const SOCKET_NAME: usize = 107;

/// The cluster's directory, locked against other `kumi cluster` commands.
pub struct DirectoryLock {
    dir: PathBuf,
    /// Whether this claim created it.
    pub fresh: bool,
    _lock: File,
}

impl DirectoryLock {
    /// Creates the directory if it is missing, and locks it.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let dir = context.dir().to_owned();
        let most = SOCKET_NAME - "/node-4095.sock".len();
        let length = dir.as_os_str().len();
        if length > most {
            return Err(Error::LongDirectory { path: dir, length, most });
        }
        let fresh = !dir.exists();
        if !fresh && is_foreign(&dir)? {
            return Err(Error::Exists {
                what: format!("{} exists and is not a cluster's directory", dir.display()),
                advice: "name another cluster with --cluster or set KUMI_DIR".to_owned(),
            });
        }
        let make = |source| Error::File { doing: "make", path: dir.clone(), source };
        fs::create_dir_all(&dir).map_err(make)?;
        if fresh {
            // Other users may see the configuration and reach the sockets, whatever the umask is.
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).map_err(make)?;
        }
        let lock = lock(&dir)?;
        Ok(Self { dir, fresh, _lock: lock })
    }

    /// Locks the directory if it exists.
    pub fn existing(context: &Context) -> Result<Option<Self>, Error> {
        let dir = context.dir().to_owned();
        if !dir.is_dir() {
            return Ok(None);
        }
        let lock = lock(&dir)?;
        Ok(Some(Self { dir, fresh: false, _lock: lock }))
    }

    /// Removes the directory again if this claim created it.
    pub fn abandon(&self) {
        if self.fresh
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            crate::output::note(&format!("{} is left: {error}", self.dir.display()));
        }
    }
}

fn lock(dir: &Path) -> Result<File, Error> {
    let failed = |source| Error::File { doing: "open", path: dir.to_owned(), source };
    let file = File::open(dir).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Busy(dir.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Whether a directory has contents that are not a cluster's.
pub fn is_foreign(dir: &Path) -> Result<bool, Error> {
    let ours = [paths::config(dir), paths::tls(dir), paths::head_db(dir), paths::head_log(dir)];
    if ours.iter().any(|path| path.exists()) {
        return Ok(false);
    }
    let mut entries = fs::read_dir(dir).map_err(|source| Error::File {
        doing: "read",
        path: dir.to_owned(),
        source,
    })?;
    Ok(entries.next().is_some())
}

/// Removes pid files and sockets of processes that have ended.
pub fn remove_stale(dir: &Path) -> Result<(), Error> {
    remove_matching(dir, &|name| name.ends_with(".sock") || name.ends_with(".pid"))
}

/// Removes the whole directory.
pub fn remove_all(dir: &Path) -> Result<(), Error> {
    if !dir.exists() || is_foreign(dir)? {
        return Ok(());
    }
    fs::remove_dir_all(dir).map_err(|source| Error::File {
        doing: "remove",
        path: dir.to_owned(),
        source,
    })
}

fn remove_matching(dir: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<(), Error> {
    if !dir.exists() || is_foreign(dir)? {
        return Ok(());
    }
    let failed =
        |path: &Path, source| Error::File { doing: "remove", path: path.to_owned(), source };
    for entry in fs::read_dir(dir).map_err(|source| failed(dir, source))?.flatten() {
        let path = entry.path();
        if !entry.file_name().to_str().is_some_and(wanted) {
            continue;
        }
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|source| failed(&path, source))?;
    }
    Ok(())
}

/// The last lines of a log, for a message; a sentence if there are none.
pub fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return format!("its log {} is empty", log.display());
    }
    let last: Vec<&str> = lines[lines.len().saturating_sub(5)..].to_vec();
    format!("its log {} ends with:\n  {}", log.display(), last.join("\n  "))
}
