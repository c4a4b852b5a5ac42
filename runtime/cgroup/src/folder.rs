//! The folder of a control group of either version.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes a value into one of its files.
pub(super) fn set(folder: &Path, file: &str, value: &str) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
    let mut open = OpenOptions::new().write(true).open(folder.join(file)).map_err(named)?;
    // In one write: the kernel takes each as a value.
    open.write_all(value.as_bytes()).map_err(named)
}

/// Whether this process may write a file of it.
pub(super) fn may_write(folder: &Path, file: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(folder.join(file))
        .map(drop)
        .map_err(|error| io::Error::new(error.kind(), format!("{file}: {error}")))
}

/// The text of one of its files, without the end of the line.
pub(super) fn get(folder: &Path, file: &str) -> io::Result<String> {
    fs::read_to_string(folder.join(file)).map(|text| text.trim_end().to_owned())
}

/// The number in one of its files.
pub(super) fn number(folder: &Path, file: &str) -> Option<u64> {
    get(folder, file).ok()?.parse().ok()
}

/// The number after a name in a file with a pair on each line.
pub(super) fn number_of(folder: &Path, file: &str, name: &str) -> Option<u64> {
    let text = get(folder, file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Whether the error says that there is no such group.
pub(super) fn gone(error: &io::Error) -> bool {
    const ENODEV: i32 = nix::errno::Errno::ENODEV as i32;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV)
}

/// Removes a group with all below; no process may be left in them. One that is gone is no error.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Ok(()) => return Ok(()),
        Err(error) if gone(&error) => return Ok(()),
        Err(_) => {}
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}
