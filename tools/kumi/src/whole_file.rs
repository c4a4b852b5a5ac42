//! Files of results: whole, or as they were before.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The name of a draft beside a file.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

/// Writes a file in one step over an older one, whose permissions stay. What is no file, as a terminal or a pipe, is written
/// as it is.
///
/// # Errors
/// As the system says; then the old file is there, or none.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let old = match fs::symlink_metadata(path) {
        Ok(old) if !old.is_file() => return fs::write(path, content),
        Ok(old) => Some(old.permissions()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if old.is_some() {
        // Who may not write a file may still replace it in the folder, which is not what was asked for.
        OpenOptions::new().write(true).open(path)?;
    }
    let draft = beside(path);
    let mut file = match OpenOptions::new().write(true).create_new(true).open(&draft) {
        // The folder takes no other file than this one.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && old.is_some() => {
            return fs::write(path, content);
        }
        opened => opened?,
    };
    let permitted = old.map_or(Ok(()), |old| file.set_permissions(old));
    let written = permitted.and_then(|()| file.write_all(content.as_ref()));
    // Some disks say only then that they are full.
    let written = written.and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&draft, path)).inspect_err(|_| {
        // The error that counts is the one before.
        let _ = fs::remove_file(&draft);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        write(&path, "one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write(folder.path(), "x").is_err());
        assert!(write(&folder.path().join("no/folder"), "x").is_err());
    }

    #[test]
    fn what_is_no_file_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write(&link, "here").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "here");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        write(Path::new("/dev/null"), "gone").unwrap();
        assert_eq!(
            write(Path::new("/dev/full"), "x").unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
    }
}
