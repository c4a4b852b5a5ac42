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
    number_in(&get(folder, file).ok()?, name)
}

/// The number after a name in a text with a pair on each line.
pub(super) fn number_in(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Whether the error says that there is no such group.
pub(super) fn gone(error: &io::Error) -> bool {
    const ENODEV: i32 = nix::errno::Errno::ENODEV as i32;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV)
}

/// How often a group is made again if another process removes the one above it meanwhile.
const TRIES: usize = 8;

/// Makes groups, one in another, and again if another process has removed the upper one meanwhile.
pub(super) fn while_gone<T>(mut make: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match make() {
            Err(error) if gone(&error) => {}
            made => return made,
        }
    }
    make()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_made_again_while_the_one_above_is_gone_but_not_for_ever() {
        let gone_for = |times: usize| {
            let mut tries = 0;
            let made = while_gone(|| {
                tries += 1;
                if tries > times { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
            });
            (made.is_ok(), tries)
        };
        assert_eq!(gone_for(0), (true, 1));
        assert_eq!(gone_for(TRIES - 1), (true, TRIES));
        assert_eq!(gone_for(usize::MAX), (false, TRIES));
        let mut tries = 0;
        let refused: io::Result<()> = while_gone(|| {
            tries += 1;
            Err(io::ErrorKind::PermissionDenied.into())
        });
        assert!(refused.is_err() && tries == 1);
    }
}
