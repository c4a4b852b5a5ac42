//! What a session says of output that is missing, or that the head does not keep.

use super::Session;
use crate::error::Error;
use crate::output;
use crate::run::writer::Piece;
use crate::table;
use kumi_control::message::Stream;
use std::fs::File;

impl Session {
    /// Standard output of the ranks goes to a file.
    pub fn write_to(&mut self, file: File) {
        self.file = Some(file);
        self.on_terminal = false;
        self.lines.nobody_reads();
    }

    /// Output is missing here: said where it would stand.
    pub(super) fn show_missing(&mut self, bytes: u64, offset: u64) {
        if offset <= self.shown {
            return;
        }
        self.seen = offset;
        self.missing = self.missing.saturating_add(bytes);
        self.flush();
        let end = if self.terminal.is_some() { "\r\n" } else { "\n" };
        let line = format!("kumi: {bytes} bytes of output are missing here{end}");
        self.waiting.push_back(Piece::Output(Stream::Err, line.into_bytes()));
    }

    /// The job was started again: said between the output of both starts.
    pub(super) fn show_restart(&mut self, restarts: u32, reason: &str, offset: u64) {
        if offset <= self.shown {
            return;
        }
        self.seen = offset;
        self.flush();
        let (job, reason) = (self.job_words(), table::printable(reason));
        let line = format!("kumi: {job} was started again ({restarts}): {reason}\n");
        self.waiting.push_back(Piece::Output(Stream::Err, line.into_bytes()));
    }

    /// From now on output may be missing for those who come later.
    pub(super) fn show_not_kept(&self, reason: &str) {
        if !self.only_shows() {
            let (job, reason) = (self.job_words(), table::printable(reason));
            output::note(&format!(
                "the head does not keep all output of {job} ({reason}); it is shown as it comes, and the job goes on"
            ));
        }
    }

    /// Says at the end of the job what is missing. The error, if any, is for a job that succeeded.
    pub(super) fn told_of_output(&self) -> Result<(), Error> {
        let job = self.job_words();
        if self.not_kept > 0 {
            let number = self.job.map_or(0, |job| job.0);
            output::note(&format!(
                "{} bytes of the output of {job} are not on the disk of the head; `kumi logs {number}` has them only while this head runs, or lacks them",
                self.not_kept
            ));
        }
        match self.missing {
            0 => Ok(()),
            bytes => Err(Error::OutputMissing { job, bytes }),
        }
    }
}
