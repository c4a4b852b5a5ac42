//! Small files that are replaced in one step, and are on the disk then.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// What is in a file; nothing if there is none.
///
/// # Errors
/// It is there and cannot be read, or is no text.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// Puts a draft in the place of a file, if it could be written. Otherwise the old file stays, and the draft goes.
///
/// # Errors
/// That of the writing, or as the system says.
pub(crate) fn replace(path: &Path, draft: &Path, written: io::Result<()>) -> io::Result<()> {
    written.and_then(|()| fs::rename(draft, path)).inspect_err(|_| {
        // It takes room on a full disk. That it stays harms nothing: the next one replaces it.
        let _ = fs::remove_file(draft);
    })
}

/// Writes a file with these permissions. After a crash it is the old one or the new one.
///
/// # Errors
/// As the system says; then the old file is there.
pub(crate) fn write(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(mode).open(draft)?;
    // A draft that was left may have other permissions, and nobody may read a secret meanwhile.
    file.set_permissions(Permissions::from_mode(mode))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    replace(path, draft, written)?;
    // The name, too.
    fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_small_disk::{fill, on_a_small_disk};

    #[test]
    fn a_full_disk_keeps_the_old_file_and_no_draft() {
        on_a_small_disk(64 << 10, |disk| {
            let path = disk.join("list");
            write(&path, 0o600, "old\n").unwrap();
            fill(disk);
            let error = write(&path, 0o600, "new\n").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert_eq!(read(&path).unwrap(), "old\n");
            assert!(!disk.join("list.new").exists());
            fs::remove_file(disk.join("others")).unwrap();
            write(&path, 0o600, "new\n").unwrap();
            assert_eq!(read(&path).unwrap(), "new\n");
        });
    }

    #[test]
    fn a_file_is_replaced_with_its_permissions_whatever_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        assert_eq!(read(&path).unwrap(), "");
        // A daemon of an earlier version died here.
        let draft = dir.path().join("list.new");
        fs::write(&draft, "the beginning of something longer").unwrap();
        fs::set_permissions(&draft, Permissions::from_mode(0o644)).unwrap();
        write(&path, 0o600, "one\n").unwrap();
        assert_eq!(read(&path).unwrap(), "one\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!draft.exists());
        assert!(read(dir.path()).is_err(), "a folder is no empty list");
    }
}
