//! Table that grows while a sweep runs, in the order of the cases.
//!
//! A case that ends before an earlier one waits in memory.

use kumi_sim::SimError;
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::NamedTempFile;

/// The table; `None` if none is wanted.
pub struct Rows(Option<Mutex<Table>>);

struct Table {
    path: PathBuf,
    to: TableSink,
    /// The case whose lines come next.
    next: usize,
    waiting: BTreeMap<usize, String>,
}

/// A file has another name until it is complete. So a stopped command leaves nothing, and an older file
/// stays. Pipes and terminals are written at once.
enum TableSink {
    File(NamedTempFile),
    Other(File),
}

impl TableSink {
    fn open(path: &Path) -> io::Result<(Self, PathBuf)> {
        let Ok(real) = path.canonicalize() else {
            // The umask applies, as for any file.
            let permissions = Permissions::from_mode(0o666);
            return Ok((Self::beside(path, permissions)?, path.to_owned()));
        };
        let to = if real.is_file() {
            Self::beside(&real, real.metadata()?.permissions())?
        } else {
            Self::Other(File::options().write(true).open(&real)?)
        };
        Ok((to, real))
    }

    fn beside(path: &Path, permissions: Permissions) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut builder = tempfile::Builder::new();
        builder.prefix(".kumi-sim-").permissions(permissions);
        Ok(Self::File(builder.tempfile_in(folder.unwrap_or(Path::new(".")))?))
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(text.as_bytes()),
            Self::Other(file) => file.write_all(text.as_bytes()),
        }
    }
}

impl Rows {
    /// A table with this header line.
    pub fn new(path: Option<&Path>, header: &str) -> Result<Self, SimError> {
        let Some(path) = path else { return Ok(Self(None)) };
        let wrong = |source| SimError::Unwritable { path: path.to_owned(), source };
        let (mut to, path) = TableSink::open(path).map_err(wrong)?;
        to.write(header).map_err(wrong)?;
        Ok(Self(Some(Mutex::new(Table { path, to, next: 0, waiting: BTreeMap::new() }))))
    }

    /// Adds the lines of the case at `place`.
    pub fn add(&self, place: usize, lines: impl FnOnce() -> String) -> Result<(), SimError> {
        let Some(table) = &self.0 else { return Ok(()) };
        let lines = lines();
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        table.waiting.insert(place, lines);
        while let Some(lines) = {
            let next = table.next;
            table.waiting.remove(&next)
        } {
            table.next += 1;
            let written = table.to.write(&lines);
            written.map_err(|source| SimError::Unwritable { path: table.path.clone(), source })?;
        }
        Ok(())
    }

    /// Completes the table.
    pub fn finish(self) -> Result<(), SimError> {
        let Some(table) = self.0 else { return Ok(()) };
        let Table { path, to, .. } = table.into_inner().unwrap_or_else(PoisonError::into_inner);
        match to {
            TableSink::Other(_) => Ok(()),
            TableSink::File(file) => match file.persist(&path) {
                Ok(_) => Ok(()),
                Err(error) => Err(SimError::Unwritable { path, source: error.error }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_the_order_of_the_cases_and_the_file_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let rows = Rows::new(Some(&path), "head\n").unwrap();
        for place in [2, 0, 3, 1] {
            assert!(!path.exists());
            rows.add(place, || format!("{place}\n")).unwrap();
        }
        rows.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "head\n0\n1\n2\n3\n");
        let stopped = Rows::new(Some(&path), "other\n").unwrap();
        stopped.add(0, || "0\n".to_owned()).unwrap();
        drop(stopped);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("head\n"));
    }

    #[test]
    fn nothing_is_made_where_no_table_is_wanted() {
        let rows = Rows::new(None, "head\n").unwrap();
        rows.add(0, || unreachable!("nobody wants it")).unwrap();
        rows.finish().unwrap();
    }

    #[test]
    fn folders_that_are_not_there_are_told() {
        let rows = Rows::new(Some(Path::new("/nowhere/at/all.csv")), "head\n");
        assert!(matches!(rows, Err(SimError::Unwritable { .. })));
    }
}
