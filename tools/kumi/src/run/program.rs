//! Lookup of the program, like a shell, and its content hash.

use crate::error::Error;
use kumi_control::message::{ContentHash, Program};
use nix::unistd::{AccessFlags, access};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Size of the pieces in which the file is hashed, in bytes.
const PIECE: usize = 1 << 20;

/// The path for `name`: itself if it has a slash, otherwise the first executable file of that name in the
/// directories of `path`. As in a shell, an existing file that cannot be executed is reported only if no
/// later directory has an executable one.
pub fn find(name: &str, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    if name.is_empty() {
        return Err(Error::ProgramNotFound(String::new()));
    }
    if name.contains('/') {
        let place = PathBuf::from(name);
        return match obstacle(&place) {
            None => absolute(&place),
            Some(error) => Err(error.unwrap_or_else(|| Error::ProgramNotFound(name.to_owned()))),
        };
    }
    let mut best = Error::ProgramNotFound(name.to_owned());
    for directory in path.map(std::env::split_paths).into_iter().flatten() {
        let place = directory.join(name);
        match obstacle(&place) {
            None => return absolute(&place),
            Some(Some(error)) if !place.is_dir() => best = error,
            Some(_) => {}
        }
    }
    Err(best)
}

fn absolute(place: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(place).map_err(|source| Error::File {
        doing: "find",
        path: place.to_owned(),
        source,
    })
}

/// Whether this file can be executed: yes, it is missing, or an error.
#[allow(clippy::option_option)]
fn obstacle(place: &Path) -> Option<Option<Error>> {
    let refuse = |reason: &str| {
        Some(Some(Error::NotExecutable { path: place.to_owned(), reason: reason.to_owned() }))
    };
    let meta = match std::fs::metadata(place) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return refuse("its directory may not be searched; check its permissions");
        }
        Err(_) => return Some(None),
    };
    if meta.is_dir() {
        return refuse("it is a directory; name a program");
    }
    if !meta.is_file() {
        return refuse("it is not a regular file; name a program");
    }
    if access(place, AccessFlags::X_OK).is_err() {
        return refuse("its permissions do not allow it; try `chmod +x` on it");
    }
    None
}

/// Reads and hashes the file.
pub fn identify(place: &Path) -> Result<Program, Error> {
    let path = place.to_str().map(str::to_owned).ok_or_else(|| {
        Error::Usage(format!("the name {} is not UTF-8; rename the program", place.display()))
    })?;
    let unreadable = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::PermissionDenied => Error::NotExecutable {
            path: place.to_owned(),
            reason: "it cannot be read, so it cannot be sent to the nodes; check its permissions"
                .to_owned(),
        },
        _ => Error::File { doing: "read", path: place.to_owned(), source },
    };
    let mut file = File::open(place).map_err(unreadable)?;
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    let mut size = 0;
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&piece[..count]);
                size += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    if size == 0 {
        return Err(Error::NotExecutable {
            path: place.to_owned(),
            reason: "it is empty; build it again".to_owned(),
        });
    }
    Ok(Program { path, hash: ContentHash(*hasher.finalize().as_bytes()), size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(directory: &Path, name: &str, mode: u32) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, b"#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn the_search_path_is_searched_in_order() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(a.path(), "plain", 0o644);
        let second = file(b.path(), "plain", 0o755);
        let path = std::env::join_paths([a.path(), b.path()]).unwrap();
        assert_eq!(find("plain", Some(&path)).unwrap(), second);
        let only_first = std::env::join_paths([a.path()]).unwrap();
        assert_eq!(find("plain", Some(&only_first)).unwrap_err().exit_code(), 126);
        assert_eq!(find("absent", Some(&path)).unwrap_err().exit_code(), 127);
        assert_eq!(find("plain", None).unwrap_err().exit_code(), 127);
        assert_eq!(find("", Some(&path)).unwrap_err().exit_code(), 127);
    }

    #[test]
    fn a_name_with_a_slash_is_taken_as_it_is() {
        let a = tempfile::tempdir().unwrap();
        let good = file(a.path(), "good", 0o755);
        let plain = file(a.path(), "plain", 0o644);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        assert_eq!(find(&text(&good), None).unwrap(), good);
        assert_eq!(find(&text(&plain), None).unwrap_err().exit_code(), 126);
        assert_eq!(find(&text(a.path()), None).unwrap_err().exit_code(), 126);
        assert_eq!(find(&text(&a.path().join("no")), None).unwrap_err().exit_code(), 127);
    }

    #[test]
    fn a_program_is_known_by_its_content() {
        let a = tempfile::tempdir().unwrap();
        let (one, two) = (file(a.path(), "one", 0o755), file(a.path(), "two", 0o755));
        let (one, two) = (identify(&one).unwrap(), identify(&two).unwrap());
        assert_eq!((one.hash, one.size), (two.hash, 10));
        assert_eq!(one.hash.0, *blake3::hash(b"#!/bin/sh\n").as_bytes());
        std::fs::write(a.path().join("empty"), b"").unwrap();
        assert_eq!(identify(&a.path().join("empty")).unwrap_err().exit_code(), 126);
    }
}
