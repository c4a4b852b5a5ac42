//! Small files that are replaced in one step, and are on the disk then.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file with these permissions. After a crash it is the old one or the new one.
///
/// # Errors
/// As the system says; then the old file is there.
pub(crate) fn write(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    // A draft that was left may have other permissions.
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(draft)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // It takes room on a full disk. That it stays harms nothing: the next one replaces it.
        let _ = fs::remove_file(draft);
        return Err(error);
    }
    fs::rename(draft, path)?;
    // The name, too.
    fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
