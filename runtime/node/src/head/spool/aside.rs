//! Segments that could not be read. They keep their content under another name, so that nothing is ever written over them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kumi_sched::JobId;
use nix::errno::Errno;

use super::disk::DiskOperation;
use super::segment::HEADER;
use super::writer::path;

/// End of the names of such files.
const ENDING: &str = "unreadable";

/// A segment that was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AsideSegment {
    /// Where it begins in its log.
    pub(super) start: u64,
    /// Length of its file.
    pub(super) length: u64,
}

impl AsideSegment {
    /// About how much output is in it.
    pub(super) fn output(&self) -> u64 {
        self.length.saturating_sub(HEADER as u64)
    }

    /// An offset behind all that it can have.
    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.length).saturating_add(1)
    }
}

fn aside_path(folder: &Path, job: JobId, start: u64) -> PathBuf {
    folder.join(format!("{job}.{start}.{ENDING}"))
}

/// The job and offset in the name of a segment that was set aside.
pub(super) fn name_of(path: &Path) -> Option<(JobId, u64)> {
    let (name, ending) = path.file_name()?.to_str()?.rsplit_once('.')?;
    let (job, start) = name.split_once('.').filter(|_| ending == ENDING)?;
    Some((JobId(job.parse().ok()?), start.parse().ok()?))
}

/// Whether another attempt may read the file: then it stays where it is.
pub(super) fn may_be_readable_later(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, UnexpectedEof};
    let damaged = matches!(error.kind(), InvalidData | UnexpectedEof);
    !damaged && error.raw_os_error() != Some(Errno::EIO as i32)
}

/// Sets a segment aside.
///
/// # Errors
/// As the system says. The file is where it was.
pub(super) fn set_aside(folder: &Path, job: JobId, start: u64) -> io::Result<AsideSegment> {
    let aside = aside_path(folder, job, start);
    fs::rename(path(folder, job, start), &aside)?;
    Ok(AsideSegment { start, length: fs::symlink_metadata(&aside)?.len() })
}

/// One that an earlier head set aside.
pub(super) fn known(folder: &Path, job: JobId, start: u64) -> AsideSegment {
    let length = fs::symlink_metadata(aside_path(folder, job, start)).map_or(0, |it| it.len());
    AsideSegment { start, length }
}

/// What removes it.
pub(super) fn removal(folder: &Path, job: JobId, start: u64) -> DiskOperation {
    DiskOperation::Remove(aside_path(folder, job, start))
}
