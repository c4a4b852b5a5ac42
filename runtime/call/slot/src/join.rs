//! Control groups that a slot's process joins before it becomes its program. The server names their files.
//!
//! The kernel may take some milliseconds to move a process, and the server's thread must not wait for that.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The word that makes an executable of slots join groups and become a program. What [`words`] has, the program and its
/// arguments follow.
pub const JOIN: &str = "--join";

/// Most files: one of version 2, and one for each controller of version 1.
const MOST: usize = 16;

/// The words by which [`files`] knows the files of groups: their number, and the files.
pub fn words(files: &[PathBuf]) -> Vec<OsString> {
    let count = OsString::from(files.len().to_string());
    std::iter::once(count).chain(files.iter().map(OsString::from)).collect()
}

/// Takes the files of groups from the front of a server's words, and opens them.
///
/// # Errors
/// The words are not a server's, or a file cannot be opened.
pub(crate) fn files(words: &mut impl Iterator<Item = OsString>) -> io::Result<Vec<File>> {
    let count = words.next().and_then(|count| count.to_str()?.parse::<usize>().ok());
    let count = count.filter(|count| *count <= MOST).ok_or_else(missing)?;
    let paths: Vec<OsString> = words.take(count).collect();
    if paths.len() < count {
        return Err(missing());
    }
    paths.iter().map(|path| open(Path::new(path))).collect()
}

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the files of control groups are missing")
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> io::Error {
    let text = format!("its control group cannot be joined: {}: {error}", path.display());
    io::Error::new(error.kind(), text)
}

/// Joins groups and becomes a program. Does not return unless that fails; the server has been told then.
///
/// # Errors
/// The words are not a server's, or an error of the system.
pub fn join(words: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    let mut words = words.into_iter();
    let files = files(&mut words);
    let program = words.next().ok_or_else(missing)?;
    let joined = files.and_then(|files| {
        // In one write: 0 is the process that writes.
        files.into_iter().try_for_each(|mut file| file.write_all(b"0"))
    });
    let failed = match joined {
        Ok(()) => Command::new(&program).args(words).exec(),
        Err(error) => error,
    };
    Err(crate::guard::tell(&program, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_groups_is_read_and_checked() {
        let folder = std::env::temp_dir().join(format!("kumi-join-{}", std::process::id()));
        std::fs::write(&folder, "").expect("a file");
        let mut said =
            words(&[folder.clone(), folder.clone()]).into_iter().chain(["program".into()]);
        assert_eq!(files(&mut said).expect("they are there").len(), 2);
        assert_eq!(said.next(), Some("program".into()));
        std::fs::remove_file(&folder).expect("it is ours");
        let error = files(&mut words(&[folder]).into_iter()).expect_err("it has gone").to_string();
        assert!(error.contains("cannot be joined: /"), "{error}");
        for wrong in [vec![], vec!["x"], vec!["2", "/dev/null"], vec!["999999999999"], vec!["-1"]] {
            let mut said = wrong.iter().map(OsString::from);
            assert!(files(&mut said).is_err(), "{wrong:?}");
        }
        assert!(files(&mut words(&[]).into_iter()).expect("none is fine").is_empty());
    }
}
