//! Records of jobs on their way to the durable table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use kumi_control::message::JobRecord;
use kumi_sched::JobId;

use super::job_table::{JobTable, TableError};
use super::metrics::HeadCounters;
use super::reserve::{DiskReserve, ReserveHeld};

/// The durable table, and what it has not taken yet.
#[derive(Debug)]
pub(super) struct JobRecords {
    table: JobTable,
    /// Records that could not be written yet, the latest of each job.
    unwritten: BTreeMap<JobId, JobRecord>,
    /// Jobs whose records are to be removed.
    discarded: BTreeSet<JobId>,
    /// Disk for them when there is no other.
    reserve: DiskReserve,
    counts: Rc<HeadCounters>,
}

impl JobRecords {
    /// Opens the table at `path`, or makes it. Returns the records that it holds, too.
    ///
    /// # Errors
    /// When the table cannot be used or read.
    pub(super) fn open(
        path: &Path,
        counts: Rc<HeadCounters>,
    ) -> Result<(Self, Vec<JobRecord>), TableError> {
        let mut table = JobTable::open(path)?;
        let records = table.load()?;
        let reserve = DiskReserve::open(path.with_extension("reserve"));
        let (unwritten, discarded) = Default::default();
        Ok((Self { table, unwritten, discarded, reserve, counts }, records))
    }

    /// Whether the disk has room for others than the table.
    pub(super) fn reserve(&self) -> &ReserveHeld {
        self.reserve.held()
    }

    /// Whether the table has all records. While it has not, a new job could be lost.
    pub(super) fn all_written(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// Makes records durable, those that failed before included.
    pub(super) fn persist(&mut self, records: BTreeMap<JobId, JobRecord>) {
        if records.is_empty() {
            return;
        }
        self.unwritten.extend(records);
        self.write_again();
    }

    /// Tries once more to write what failed before.
    pub(super) fn write_again(&mut self) {
        if self.unwritten.is_empty() {
            return;
        }
        let mut written = self.table.persist(self.unwritten.values());
        if written.is_err() && self.reserve.release() {
            written = self.table.persist(self.unwritten.values());
        }
        match written {
            Ok(()) => self.unwritten.clear(),
            Err(error) => {
                tracing::error!(%error, jobs = self.unwritten.len(), "records are kept in memory");
            }
        }
        self.counts.unwritten.set(self.unwritten.len());
    }

    /// The record of the job is to be removed, soon: several at once cost one write.
    pub(super) fn discard(&mut self, job: JobId) {
        self.unwritten.remove(&job);
        self.discarded.insert(job);
    }

    /// Removes what is to go of ended jobs from the disk: records, keys and environments. What fails is tried again at the next call.
    pub(super) fn clean_up(&mut self) {
        if self.all_written() {
            self.reserve.renew();
        }
        match self.table.remove(&self.discarded) {
            Ok(()) => self.discarded.clear(),
            Err(error) => {
                tracing::error!(%error, jobs = self.discarded.len(), "records of old jobs are not removed yet");
            }
        }
        if let Err(error) = self.table.forget_secrets() {
            tracing::error!(%error, "keys and environments of jobs that are over are still in the log of the job table");
        }
    }
}
