//! Output that another head copies, and output that is copied here.
//!
//! A head that waits has the log of each job as the leader has it, with the same offsets. What it has and the leader has not was
//! never acknowledged, and nodes have sent it again. So it is cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use kumi_control::copying::{CopiedJob, CopiedLog, LogPlace};
use kumi_leadership::TermEnds;
use kumi_sched::JobId;

use super::disk::{SpoolDisk, is_unanswered};
use super::segment::parse;
use super::writer::{LogWriter, SharedLog};
use super::{Spools, TERM};

/// Between looks whether a disk has answered that is late.
const LATE: Duration = Duration::from_millis(20);

/// What standbys are to know, since somebody looked last.
#[derive(Debug, Default)]
pub(in crate::head) struct SpoolNews {
    /// Jobs whose log has come further, or has been opened.
    pub(in crate::head) extended: BTreeSet<JobId>,
    /// Jobs whose output has made room: how far their logs had come counts no more.
    pub(in crate::head) emptied: BTreeSet<JobId>,
    /// Jobs that are recorded.
    pub(in crate::head) known: BTreeMap<JobId, CopiedJob>,
    /// Jobs that are not known any more.
    pub(in crate::head) discarded: BTreeSet<JobId>,
}

impl SpoolNews {
    pub(super) fn extended(&mut self, job: JobId) {
        self.extended.insert(job);
    }

    pub(super) fn emptied(&mut self, job: JobId) {
        self.emptied.insert(job);
    }

    pub(super) fn discarded(&mut self, job: JobId) {
        self.extended.remove(&job);
        self.emptied.remove(&job);
        self.known.remove(&job);
        self.discarded.insert(job);
    }
}

/// Why output is not copied here.
#[derive(Debug, thiserror::Error)]
pub(in crate::head) enum CopyFailure {
    /// The leader does not say what it may say.
    #[error("the leader does not go on where the log of job {0} ends")]
    Place(JobId),
    /// What it sends is no output.
    #[error("the leader sends no whole frames of the output of job {0}")]
    Frames(JobId),
    /// The disk takes nothing.
    #[error("output cannot be kept here: {0}")]
    Disk(#[from] io::Error),
    /// The head is told to do something else.
    #[error("this head has other things to do")]
    Stopped,
}

impl Spools {
    /// From now on standbys are to know of what comes.
    pub(in crate::head) fn begin_news(&mut self) {
        self.news = Some(SpoolNews::default());
    }

    /// What they are to know.
    pub(in crate::head) fn take_news(&mut self) -> SpoolNews {
        self.news.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn tell(&mut self, tell: impl FnOnce(&mut SpoolNews)) {
        if let Some(news) = &mut self.news {
            tell(news);
        }
    }

    /// A job is recorded, and its user counts for what it writes.
    pub(in crate::head) fn know_job(&mut self, known: CopiedJob) {
        let CopiedJob { job, uid, over } = known;
        self.quota.know(job, uid, over);
        self.tell(|news| {
            news.known.insert(job, known);
        });
        if over {
            self.trim();
        }
    }

    /// Jobs that have output here. Those of which only the files are left that the disk does not remove are none.
    pub(in crate::head) fn jobs(&self) -> BTreeSet<JobId> {
        let jobs = self.found.keys().chain(self.spools.keys()).copied();
        jobs.filter(|job| !self.discarded.contains(job)).collect()
    }

    /// The log of a job, and its end.
    pub(in crate::head) fn log(&mut self, job: JobId) -> (SharedLog, u64) {
        let log = self.spool(job).writer.log().clone();
        let end = log.lock().end();
        (log, end)
    }

    /// Where the last output of a job ends.
    pub(in crate::head) fn data_end(&mut self, job: JobId) -> u64 {
        self.spool(job).writer.log().lock().data_end()
    }

    /// The latest term of which there is output here.
    pub(in crate::head) fn latest_term(&mut self) -> u64 {
        let ends = self.jobs().into_iter().map(|job| self.log(job).1);
        ends.max().unwrap_or(0) / TERM
    }

    /// Removes the output of jobs that are not among these.
    pub(in crate::head) fn retain(&mut self, known: &BTreeSet<JobId>) {
        for job in self.jobs().into_iter().filter(|job| !known.contains(job)) {
            self.discard(job);
        }
    }

    /// The logs here are copies from now on, which another head has, too.
    pub(in crate::head) fn begin_copies(&mut self) {
        self.copies = true;
    }

    /// Jobs whose copies cannot go on, or have a hole, since segments of them cannot be read.
    pub(in crate::head) fn damaged_copies(&mut self) -> Vec<JobId> {
        let mut jobs: Vec<JobId> = self.jobs().into_iter().collect();
        jobs.retain(|&job| self.spool(job).writer.damage().is_some());
        jobs
    }

    /// Removes what cannot be read of a copy, and what stands behind it: it is to be copied again.
    ///
    /// # Errors
    /// The disk says no.
    pub(in crate::head) fn drop_damage(
        &mut self,
        job: JobId,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), CopyFailure> {
        let Some(from) = self.spool(job).writer.damage() else { return Ok(()) };
        self.cut_by(job, from, stopped, LogWriter::cut_damage)?;
        tracing::warn!(%job, from, "output from a damaged segment on is removed here, and copied again");
        Ok(())
    }

    /// What there is of each job, up to what cannot be read of it.
    pub(in crate::head) fn copied_logs(&mut self) -> Vec<CopiedLog> {
        let mut logs = Vec::new();
        for job in self.jobs() {
            let most = self.spool(job).writer.damage().unwrap_or(u64::MAX);
            let TermEnds { first, ends } = self.log(job).0.lock().term_ends_before(most);
            logs.push(CopiedLog { job, first, ends: ends.into_values().collect() });
        }
        logs
    }

    /// Up to where a standby has the same of a job, which has this. If it has more, that goes.
    pub(in crate::head) fn compare(&mut self, standby: &CopiedLog) -> (u64, bool) {
        let ends = standby.ends.iter().map(|&end| (end / TERM, end)).collect();
        let theirs = TermEnds { first: standby.first, ends };
        let common = self.log(standby.job).0.lock().common_end(&theirs);
        (common, theirs.ends.values().any(|&end| end > common))
    }

    /// The leader's log of a job goes on at this place in this term or an earlier one. Returns where the log here ends now.
    ///
    /// # Errors
    /// The leader says what it may not say.
    pub(in crate::head) fn copy_place(
        &mut self,
        job: JobId,
        term: u64,
        place: &LogPlace,
    ) -> Result<u64, CopyFailure> {
        if place.offset < self.log(job).1 || place.offset / TERM > term {
            return Err(CopyFailure::Place(job));
        }
        self.spool(job).writer.go_to(place);
        Ok(place.offset)
    }

    /// Removes output behind `end`, which the leader does not have.
    ///
    /// # Errors
    /// The disk says no.
    pub(in crate::head) fn copy_cut(
        &mut self,
        job: JobId,
        end: u64,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), CopyFailure> {
        self.cut_by(job, end, stopped, LogWriter::cut)?;
        tracing::info!(%job, end, "output that the head that leads does not have is cut off");
        Ok(())
    }

    /// Has the writer of a log remove what stands behind `end`, and opens it anew.
    fn cut_by(
        &mut self,
        job: JobId,
        end: u64,
        stopped: &dyn Fn() -> bool,
        cut: fn(&mut LogWriter, u64, &mut SpoolDisk) -> io::Result<()>,
    ) -> Result<(), CopyFailure> {
        loop {
            self.spool(job);
            let Some(spool) = self.spools.get_mut(&job) else { return Ok(()) };
            match cut(&mut spool.writer, end, &mut self.disk) {
                Ok(()) => break,
                Err(error) if is_unanswered(&error) => wait(stopped)?,
                Err(error) => return Err(error.into()),
            }
        }
        // How far streams have come is to be read anew.
        if let Some(spool) = self.spools.remove(&job) {
            let mut files = spool.writer.files();
            files.segments.retain(|&start| start < end);
            self.found.insert(job, files);
        }
        self.spool(job);
        self.count(job);
        Ok(())
    }

    /// Takes frames of the leader's log, which stand at `offset` there and here. Returns where the log here ends then.
    ///
    /// # Errors
    /// As [`Spools::copy_place`].
    pub(in crate::head) fn copy_frames(
        &mut self,
        job: JobId,
        offset: u64,
        frames: &[u8],
        stopped: &dyn Fn() -> bool,
    ) -> Result<u64, CopyFailure> {
        let writer = &mut self.spool(job).writer;
        if writer.log().lock().end() != offset || frames.is_empty() {
            return Err(CopyFailure::Place(job));
        }
        let mut rest = frames;
        while !rest.is_empty() {
            let Ok(Some(record)) = parse(rest) else { return Err(CopyFailure::Frames(job)) };
            let (frame, after) = rest.split_at(record.length);
            writer.push_copy(&record, frame.to_vec());
            rest = after;
        }
        self.write_copy(job, stopped)?;
        Ok(offset + frames.len() as u64)
    }

    /// Writes what has come of a job. What its user has too much of is dropped, as the leader does.
    fn write_copy(&mut self, job: JobId, stopped: &dyn Fn() -> bool) -> Result<(), CopyFailure> {
        loop {
            let written = self.try_write(job);
            self.count(job);
            self.spool(job);
            let Some(spool) = self.spools.get_mut(&job) else { return Ok(()) };
            spool.hangs = false;
            match written {
                Ok(()) => return Ok(()),
                Err(error) if is_unanswered(&error) => {
                    spool.hangs = true;
                    wait(stopped)?;
                }
                // Not if it is the file system's: then output is lost here that the leader has.
                Err(error) if is_share(&error) => {
                    spool.writer.drop_all_waiting(&self.disk);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether a user has too much, by the cluster's own rules.
fn is_share(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::QuotaExceeded && error.raw_os_error().is_none()
}

fn wait(stopped: &dyn Fn() -> bool) -> Result<(), CopyFailure> {
    if stopped() {
        return Err(CopyFailure::Stopped);
    }
    std::thread::sleep(LATE);
    Ok(())
}
