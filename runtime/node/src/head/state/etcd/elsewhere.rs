//! What a host has of a cluster that etcd does not know.
//!
//! A head removes output of jobs that its state does not have. So it must not lead with a state that is not the cluster's: of an
//! etcd that was emptied, or under another prefix.

use std::io;
use std::path::{Path, PathBuf};

use crate::head::job_table::{JobTable, TableError};
use crate::paths;

/// The file or folder that has jobs on this host, if one does. `table` is the one at `accounts`.
pub(super) fn jobs_here(table: &JobTable, accounts: &Path) -> Result<Option<PathBuf>, TableError> {
    if !table.is_empty()? {
        return Ok(Some(accounts.to_owned()));
    }
    let Some(dir) = accounts.parent() else { return Ok(None) };
    let spool = paths::spool(dir);
    match std::fs::read_dir(&spool) {
        Ok(mut files) => Ok(files.next().transpose()?.map(|_| spool)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
