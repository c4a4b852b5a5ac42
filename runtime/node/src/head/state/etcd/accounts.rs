//! Accounts of jobs that are over, on this machine's disk, while their records are in etcd.
//!
//! A thread of its own writes them. So a disk that hangs holds up no record. What waits is in memory, where questions find it.
//! If the head ends before it is on the disk, the next one finds the jobs among the records and accounts for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kumi_control::message::{JobRecord, JobUsage};
use kumi_sched::JobId;

use crate::head::job_table::{JobTable, TableError, UsageRetention, account_of};

/// Most accounts that wait for the disk. A head keeps fewer records of jobs that are over.
const MOST_WAITING: usize = 1 << 16;
/// Before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What waits for the disk.
#[derive(Debug, Default)]
struct Waiting {
    accounts: BTreeMap<JobId, JobUsage>,
    /// Accounts beyond these are to be removed, by the time of the wall clock.
    trim: Option<(UsageRetention, u64)>,
    /// Some did not find room here, which was told.
    overflowed: bool,
    /// Nobody writes any more.
    closed: bool,
}

/// Accounts on their way to the disk. All copies are the same.
#[derive(Clone, Debug, Default)]
pub(in crate::head) struct WaitingAccounts(Arc<(Mutex<Waiting>, Condvar)>);

impl WaitingAccounts {
    /// Nobody panics while they have it, and it is sound at any time.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What waits now.
    pub(in crate::head) fn all(&self) -> Vec<JobUsage> {
        self.lock().accounts.values().cloned().collect()
    }

    /// Whether that of this job waits.
    fn has(&self, job: JobId) -> bool {
        self.lock().accounts.contains_key(&job)
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.lock());
        self.0.1.notify_one();
    }

    /// Accounts for those of the jobs that are over.
    fn add<'a>(&self, records: impl IntoIterator<Item = &'a JobRecord>) {
        let mut accounts = records.into_iter().filter_map(account_of).peekable();
        if accounts.peek().is_none() {
            return;
        }
        self.change(|waiting| {
            for usage in accounts {
                let has_room = waiting.accounts.len() < MOST_WAITING;
                if has_room || waiting.accounts.contains_key(&usage.job) {
                    waiting.accounts.insert(usage.job, usage);
                } else if !std::mem::replace(&mut waiting.overflowed, true) {
                    tracing::error!(job = %usage.job, "accounts of further jobs are not kept here: the disk takes none, and too many wait");
                }
            }
        });
    }
}

/// The thread that writes accounts. It ends with this.
pub(super) struct AccountsWriter(WaitingAccounts);

/// Jobs whose records are to be removed. Those whose accounts still wait stay: a later head accounts for them by their records.
#[derive(Debug, Default)]
pub(super) struct Removals(BTreeSet<JobId>);

impl Removals {
    /// Adds jobs. Returns all that may be removed now.
    pub(super) fn take(
        &mut self,
        jobs: &BTreeSet<JobId>,
        writer: &AccountsWriter,
    ) -> BTreeSet<JobId> {
        self.0.extend(jobs);
        let (waiting, now) = self.0.iter().partition(|&&job| writer.0.has(job));
        self.0 = waiting;
        now
    }
}

impl AccountsWriter {
    /// Starts the thread, which opens the table at `path`.
    ///
    /// # Errors
    /// There can be no thread.
    pub(super) fn start(path: &Path, waiting: WaitingAccounts) -> Result<Self, TableError> {
        let (path, shared) = (path.to_owned(), waiting.clone());
        let thread = std::thread::Builder::new().name("accounts".to_owned());
        thread.spawn(move || write_all(&path, &shared))?;
        Ok(Self(waiting))
    }

    /// Accounts for those of the jobs that are over.
    pub(super) fn add<'a>(&self, records: impl IntoIterator<Item = &'a JobRecord>) {
        self.0.add(records);
    }

    /// Removes accounts that are not to be kept.
    pub(super) fn trim(&self, keep: UsageRetention, now_ms: u64) {
        self.0.change(|waiting| waiting.trim = Some((keep, now_ms)));
    }
}

impl Drop for AccountsWriter {
    /// Waits for nobody: the disk may take any time.
    fn drop(&mut self) {
        self.0.change(|waiting| waiting.closed = true);
    }
}

/// Writes what comes until nobody writes any more. What fails waits on, and is tried again.
fn write_all(path: &Path, waiting: &WaitingAccounts) {
    let mut table = None;
    let mut fails = false;
    loop {
        let mut now = waiting.lock();
        while now.accounts.is_empty() && now.trim.is_none() && !now.closed {
            now = waiting.0.1.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        let (accounts, trim, closed) = (now.accounts.clone(), now.trim.take(), now.closed);
        drop(now);
        match write(path, &mut table, &accounts, trim) {
            Ok(()) => {
                if std::mem::take(&mut fails) {
                    tracing::info!("accounts are on the disk again");
                }
                let mut now = waiting.lock();
                now.overflowed = false;
                now.accounts.retain(|job, usage| accounts.get(job) != Some(usage));
            }
            Err(error) => {
                if !std::mem::replace(&mut fails, true) {
                    tracing::error!(%error, "accounts of jobs that are over wait for the disk");
                }
                if !closed {
                    std::thread::sleep(AGAIN);
                }
            }
        }
        if closed {
            return;
        }
    }
}

fn write(
    path: &Path,
    table: &mut Option<JobTable>,
    accounts: &BTreeMap<JobId, JobUsage>,
    trim: Option<(UsageRetention, u64)>,
) -> Result<(), TableError> {
    let table = match table {
        Some(table) => table,
        None => table.insert(JobTable::open(path)?),
    };
    table.add_accounts(accounts.values())?;
    trim.map_or(Ok(()), |(keep, now_ms)| table.trim_usage(keep, now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::job_table::tests::record;
    use kumi_control::message::{JobState, Outcome};
    use std::os::unix::fs::OpenOptionsExt;
    use std::time::Instant;

    fn over(job: u64) -> JobRecord {
        let mut record = record(job, JobState::Ended(Outcome::Success));
        record.ended_ms = Some(job);
        record
    }

    fn until(what: &str, is: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(120);
        while !is() {
            assert!(Instant::now() < end, "{what}: never");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whoever opens the table waits for ever, as on a disk that hangs.
    #[test]
    fn a_disk_that_hangs_holds_nobody_up_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let waiting = WaitingAccounts::default();
        let writer = AccountsWriter::start(&path, waiting.clone()).unwrap();
        writer.add(&[over(1), record(2, JobState::Running), over(3)]);
        writer.add(&[over(1)]);
        let jobs = |waiting: &WaitingAccounts| -> Vec<u64> {
            waiting.all().iter().map(|usage| usage.job.0).collect()
        };
        assert_eq!(jobs(&waiting), [1, 3]);
        // Nor is a record removed without which it would be.
        let set = |jobs: &[u64]| jobs.iter().copied().map(JobId).collect::<BTreeSet<_>>();
        let mut removals = Removals::default();
        assert_eq!(removals.take(&set(&[1, 3, 5]), &writer), set(&[5]));
        assert_eq!(removals.take(&set(&[6]), &writer), set(&[6]));
        // The disk answers: whoever waits to open the pipe goes on, however late it comes to that, and later ones find no pipe.
        std::fs::rename(&path, dir.path().join("hung")).unwrap();
        let mut options = std::fs::OpenOptions::new();
        options.read(true).custom_flags(nix::libc::O_NONBLOCK);
        let other_end = options.open(dir.path().join("hung")).unwrap();
        until("they are written", || waiting.all().is_empty());
        assert_eq!(removals.take(&set(&[]), &writer), set(&[1, 3]));
        writer.add(&[over(4)]);
        until("so is the next", || waiting.all().is_empty());
        drop(writer);
        let table = JobTable::open(&path).unwrap();
        assert_eq!(table.count_accounts(), 3);
        drop(other_end);
    }
}
