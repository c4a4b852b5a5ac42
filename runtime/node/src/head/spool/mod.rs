//! Spool: the output of jobs, on disk as far as that takes it, and the followers that read it.
//!
//! The output of a job is a log ([`log`]) in segments ([`segment`]). An offset counts bytes of the log and stands between
//! frames.

mod aside;
mod copy;
mod disk;
mod follower;
mod log;
mod memory;
mod pace;
mod quota;
mod reader;
mod segment;
mod standby;
mod term;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use kumi_control::copying::CopiedJob;
use kumi_control::head::HeadEvent;
use kumi_control::message::{ClientReply, JobRecord, Outcome, Refusal, Stream};
use kumi_sched::JobId;
use kumi_web::Output;
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use super::metrics::HeadCounters;
use super::reserve::ReserveHeld;
pub(super) use copy::{CopyPosition, LogCopy};
use disk::{DiskOperation, SpoolDisk, is_unanswered};
use follower::{Follower, Progress, unreadable};
pub(super) use log::WrittenOutput;
use memory::WaitingMemory;
use pace::Pace;
pub(super) use quota::SpoolQuota;
use reader::{Reader, read_part};
pub(super) use standby::{CopyFailure, SpoolNews};
use term::TERM;
pub(super) use writer::SharedLog;
use writer::{JobFiles, LogWriter, name_of, rename_earlier};

/// Spools that are over and whose state is remembered.
const REMEMBERED: usize = 256;
/// Followers that read the disk at a time.
const READERS: usize = 4;
/// A job waits for a follower that sets its pace and is further behind, in bytes.
const MOST_BEHIND: u64 = 1 << 20;

/// Why output is not kept while the job table has no reserve.
fn no_reserve(reason: &str) -> String {
    format!("the disk of the head has no reserve for the job table now: {reason}")
}

/// The log of a job, and who follows it.
#[derive(Debug)]
struct Spool {
    writer: LogWriter,
    progress: watch::Sender<Progress>,
    pace: Pace,
    /// Why the disk takes nothing now.
    failing: Option<String>,
    /// It would take the output of other users.
    is_own_fault: bool,
    /// The disk has not answered yet, and the job waits for it.
    hangs: bool,
    /// Output that is not kept, as the state machine knows it.
    told: u64,
}

/// The spools of all jobs.
#[derive(Debug)]
pub(super) struct Spools {
    folder: PathBuf,
    /// The files of each job whose log is not open.
    found: BTreeMap<JobId, JobFiles>,
    spools: BTreeMap<JobId, Spool>,
    quota: SpoolQuota,
    /// Bytes of all files, and failures.
    counts: Rc<HeadCounters>,
    /// Whether the disk has room for output.
    reserve: ReserveHeld,
    /// Jobs that wait for a follower, and what tells that one has come further.
    waiting: BTreeSet<JobId>,
    progress: Arc<Notify>,
    /// Where offsets of this term begin, and what jobs had written before it; none if there is only one head.
    term: Option<(u64, BTreeMap<JobId, WrittenOutput>)>,
    disk: SpoolDisk,
    /// What waits for it.
    memory: WaitingMemory,
    /// Jobs that are not known any more, and whose files the disk has not removed yet.
    discarded: BTreeSet<JobId>,
    /// As many followers as may read the disk at a time: other threads are for other things.
    readers: Arc<Semaphore>,
    /// What standbys are to know, if there are any.
    news: Option<SpoolNews>,
    /// Another head leads, and the logs here are copies of its own.
    copies: bool,
}

impl Spools {
    /// Spools in `folder`, which is made; files of jobs that are not `known` are removed.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub(super) fn open(
        folder: PathBuf,
        known: impl Fn(JobId) -> bool,
        mut quota: SpoolQuota,
        (counts, reserve): (Rc<HeadCounters>, ReserveHeld),
    ) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        // What jobs write is for their users, who get it through the head.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        let mut found: BTreeMap<JobId, JobFiles> = BTreeMap::new();
        let mut lengths: BTreeMap<JobId, u64> = BTreeMap::new();
        let mut discarded = BTreeSet::new();
        for entry in fs::read_dir(&folder)? {
            let path = rename_earlier(entry?.path())?;
            let aside = aside::name_of(&path);
            let Some((job, start)) = aside.or_else(|| name_of(&path)) else { continue };
            if !known(job) {
                let Err(error) = fs::remove_file(&path) else { continue };
                tracing::error!(%job, path = %path.display(), %error, "output of a job that is not known cannot be removed");
                discarded.insert(job);
            }
            let files = found.entry(job).or_default();
            let starts = if aside.is_some() { &mut files.aside } else { &mut files.segments };
            starts.push(start);
            *lengths.entry(job).or_default() += fs::metadata(&path)?.len();
        }
        found.values_mut().for_each(|files| files.segments.sort_unstable());
        counts.spool_bytes.set(lengths.values().sum());
        for (&job, &length) in &lengths {
            quota.set(job, length);
        }
        let (spools, waiting, progress) = Default::default();
        let (disk, readers) = (SpoolDisk::start(&progress)?, Arc::new(Semaphore::new(READERS)));
        let term = None;
        Ok(Self {
            folder,
            found,
            spools,
            quota,
            counts,
            reserve,
            waiting,
            progress,
            term,
            disk,
            memory: WaitingMemory::default(),
            discarded,
            readers,
            news: None,
            copies: false,
        })
    }

    /// These jobs are recorded, and each user counts for what theirs have written before.
    pub(super) fn know_all(&mut self, records: &[JobRecord]) {
        for record in records {
            self.quota.know(record.spec.job, record.spec.user.uid, super::is_over(record));
        }
        self.trim();
    }

    /// A job is recorded, and its user counts for what it writes.
    pub(super) fn know(&mut self, record: &JobRecord) {
        let over = super::is_over(record);
        self.know_job(CopiedJob { job: record.spec.job, uid: record.spec.user.uid, over });
    }

    /// Removes output of the oldest jobs that are over, as far as all of them have too much.
    fn trim(&mut self) {
        for job in self.quota.excess() {
            self.remove_or_warn(job, "output of the job makes room for that of later ones");
        }
    }

    /// The job is not known any more: its output goes, and what is remembered of it.
    pub(super) fn discard(&mut self, job: JobId) {
        // That it fails is told once. Other heads remove theirs, whatever this disk says.
        let removed = if self.discarded.contains(&job) {
            self.remove(job).is_ok()
        } else {
            let removed = self.remove_or_warn(job, "output of the job is not kept any longer");
            self.tell(|news| news.discarded(job));
            removed
        };
        if !removed {
            self.discarded.insert(job);
        } else {
            self.discarded.remove(&job);
            self.spools.remove(&job);
            self.quota.discard(job);
            if let Some((_, written)) = &mut self.term {
                written.remove(&job);
            }
        }
    }

    /// Returns whether it is removed.
    fn remove_or_warn(&mut self, job: JobId, why: &str) -> bool {
        let removed = self.remove(job);
        match &removed {
            Ok(()) => tracing::info!(%job, why, "removed"),
            // What is discarded is tried again each second, and at the next start.
            Err(error) => tracing::error!(%job, %error, "output of the job cannot be removed"),
        }
        removed.is_ok()
    }

    /// Removes the output of a job that is over. Who reads it finds that it is missing. Its followers may not know yet how it
    /// ended, so its log stays until it is finished, without content.
    ///
    /// # Errors
    /// As the system says. That there is none is no error.
    fn remove(&mut self, job: JobId) -> io::Result<()> {
        let removed = match self.spools.get_mut(&job) {
            Some(spool) => spool.writer.remove_all(&mut self.disk),
            None => {
                let files = self.found.get(&job).cloned().unwrap_or_default();
                let (folder, disk) = (&self.folder, &mut self.disk);
                let segments = files.segments.into_iter();
                let segments =
                    segments.map(|start| DiskOperation::Remove(writer::path(folder, job, start)));
                let aside = files.aside.into_iter().map(|start| aside::removal(folder, job, start));
                segments.chain(aside).try_for_each(|removal| disk.perform(removal))
            }
        };
        removed?;
        if let Some(spool) = self.spools.get_mut(&job) {
            // Nothing waits for the disk any more.
            (spool.failing, spool.hangs) = (None, false);
            if spool.progress.borrow().outcome.is_some() {
                self.spools.remove(&job);
            }
        }
        self.found.remove(&job);
        self.tell(|news| news.emptied(job));
        self.count(job);
        Ok(())
    }

    /// Counts what the files of a job have now.
    fn count(&mut self, job: JobId) {
        let now = self.spools.get(&job).map_or(0, |spool| spool.writer.bytes());
        let before = self.quota.bytes(job);
        self.quota.set(job, now);
        let total = &self.counts.spool_bytes;
        total.set((total.get() + now).saturating_sub(before));
    }

    fn spool(&mut self, job: JobId) -> &mut Spool {
        if !self.spools.contains_key(&job) {
            self.tell(|news| news.extended(job));
            if self.spools.len() > REMEMBERED {
                self.forget_some();
            }
        }
        let (folder, found, term) = (&self.folder, &mut self.found, &self.term);
        let copies = self.copies;
        self.spools.entry(job).or_insert_with(|| {
            let files = found.remove(&job).unwrap_or_default();
            let mut writer = LogWriter::open(folder, job, &files, self.memory.of_job());
            if copies {
                writer.begin_copy();
            }
            if let Some((base, written)) = term {
                writer.begin_term(*base, written.get(&job).copied().unwrap_or_default());
            }
            let progress = watch::Sender::new(Progress::default());
            let (pace, failing, is_own_fault, hangs, told) = Default::default();
            Spool { writer, progress, pace, failing, is_own_fault, hangs, told }
        })
    }

    /// Forgets the state of jobs that are over and that nobody follows. Their files stay. A job of an earlier head is over
    /// without an outcome here, if somebody only looks at it.
    fn forget_some(&mut self) {
        let (found, quota, disk) = (&mut self.found, &self.quota, &self.disk);
        self.spools.retain(|&job, spool| {
            let progress = &spool.progress;
            let over = progress.borrow().outcome.is_some() || quota.is_over(job);
            let stays = !over || progress.receiver_count() > 0;
            if !stays {
                spool.writer.close(disk);
                found.insert(job, spool.writer.files());
            }
            stays
        });
    }

    /// The job is started again, this often with that time: its streams begin anew. Returns what the state machine has to know.
    pub(super) fn mark_restart(
        &mut self,
        job: JobId,
        restarts: u32,
        reason: &str,
    ) -> Option<HeadEvent> {
        self.mark(job, restarts, reason);
        self.news(job)
    }

    fn mark(&mut self, job: JobId, restarts: u32, reason: &str) {
        self.tell(|news| news.extended(job));
        let spool = self.spool(job);
        if let Err(error) = spool.writer.mark_restart(restarts, reason) {
            tracing::error!(%job, restarts, %error, "the log has no mark of a restart");
        }
        if spool.failing.is_none() {
            self.write(job);
        }
        self.spool(job).progress.send_modify(|_| ());
    }

    /// Takes output whose bytes begin at `at` in their stream: followers have it from now on. Returns what the state machine has to know of it.
    pub(super) fn keep(
        &mut self,
        job: JobId,
        (rank, stream): (u32, Stream),
        at: u64,
        data: &[u8],
    ) -> Vec<HeadEvent> {
        self.tell(|news| news.extended(job));
        let spool = self.spool(job);
        if let Err(error) = spool.writer.push(rank, stream, at, data) {
            tracing::error!(%job, rank, %error, "output of this form cannot be kept");
            return vec![HeadEvent::Spooled { job }];
        }
        // While the disk takes nothing, only the second's look tries again.
        if spool.failing.is_none() {
            self.write(job);
        }
        self.spool(job);
        let Some(spool) = self.spools.get_mut(&job) else { return Vec::new() };
        let (slowest, hangs) = (spool.pace.slowest(), spool.hangs);
        let writer = &mut spool.writer;
        writer.bound_waiting(slowest, hangs, &self.disk);
        let spool = self.spool(job);
        // Followers look for themselves how far the log has come.
        spool.progress.send_modify(|_| ());
        let spooled = if self.is_held(job) {
            self.waiting.insert(job);
            None
        } else {
            Some(HeadEvent::Spooled { job })
        };
        self.news(job).into_iter().chain(spooled).collect()
    }

    /// Whether a job is far ahead of a follower that sets its pace.
    fn is_ahead(&self, job: JobId) -> bool {
        let Some(spool) = self.spools.get(&job) else { return false };
        let end = spool.writer.log().lock().end();
        spool.pace.slowest().is_some_and(|slowest| end.saturating_sub(slowest) > MOST_BEHIND)
    }

    /// Whether a job waits, for a follower or for the disk.
    fn is_held(&self, job: JobId) -> bool {
        self.is_ahead(job) || self.hangs(job)
    }

    fn hangs(&self, job: JobId) -> bool {
        self.spools.get(&job).is_some_and(|spool| spool.hangs)
    }

    /// Waits until a follower that sets the pace of a job has come further, or the disk has answered late.
    pub(super) async fn progress(&self) {
        loop {
            self.progress.notified().await;
            let free = |&job: &JobId| self.hangs(job) || !self.is_ahead(job);
            if self.waiting.iter().any(free) || self.spools.values().any(|spool| spool.hangs) {
                return;
            }
        }
    }

    /// The jobs that need not wait any more may write on.
    pub(super) fn release(&mut self) -> Vec<HeadEvent> {
        let mut events = Vec::new();
        let hanging = self.spools.iter().filter(|(_, spool)| spool.hangs);
        for job in hanging.map(|(&job, _)| job).collect::<Vec<JobId>>() {
            self.write(job);
            events.extend(self.news(job));
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (held, free) = waiting.into_iter().partition(|&job| self.is_held(job));
        self.waiting = held;
        let free: BTreeSet<JobId> = free;
        events.extend(free.into_iter().map(|job| HeadEvent::Spooled { job }));
        events
    }

    /// Writes what waits for the disk, and remembers whether that takes it.
    fn write(&mut self, job: JobId) {
        let written = self.try_write(job);
        self.count(job);
        let hangs_for_long = self.disk.hangs_for_long();
        self.spool(job);
        let Some(spool) = self.spools.get_mut(&job) else { return };
        if spool.progress.borrow().outcome.is_some() && spool.writer.needs().is_none() {
            spool.writer.close(&self.disk);
        }
        // The job waits for a disk that is late. After a while the disk counts as one that fails.
        spool.hangs = matches!(&written, Err(error) if is_unanswered(error) && !hangs_for_long);
        match written {
            Err(_) if spool.hangs => {}
            Ok(()) if spool.failing.take().is_some() => {
                tracing::info!(%job, "output is kept again");
            }
            Ok(()) => {}
            Err(error) => {
                let reason = error.to_string();
                spool.is_own_fault = error.kind() == io::ErrorKind::QuotaExceeded;
                if spool.failing.replace(reason).is_none() {
                    tracing::error!(%job, %error, "output cannot be kept");
                    self.counts.spool_failures.set(self.counts.spool_failures.get() + 1);
                }
            }
        }
    }

    fn try_write(&mut self, job: JobId) -> io::Result<()> {
        let ring = self.quota.ring();
        let full = |text: String| Err(io::Error::new(io::ErrorKind::StorageFull, text));
        if let Some(reason) = self.reserve.reason() {
            return full(no_reserve(&reason));
        }
        let Some(first) = self.spool(job).writer.needs() else { return Ok(()) };
        // What is under way has passed this: its answer comes first.
        if !self.hangs(job) {
            self.disk.perform(DiskOperation::NeedRoom(self.folder.clone()))?;
        }
        let mut needs = Some(first);
        while let Some(bytes) = needs {
            self.make_room(job, bytes, ring)?;
            self.spool(job);
            let Some(spool) = self.spools.get_mut(&job) else { return Ok(()) };
            spool.writer.write(ring, &mut self.disk)?;
            needs = spool.writer.needs();
            self.count(job);
        }
        Ok(())
    }

    /// Makes room for so many more bytes of a job: removes its oldest output, or that of its user's oldest jobs that are over.
    ///
    /// # Errors
    /// Its user has too much, or the system says no.
    fn make_room(&mut self, job: JobId, needs: u64, ring: u64) -> io::Result<()> {
        loop {
            self.spool(job);
            let Some(spool) = self.spools.get_mut(&job) else { return Ok(()) };
            let writer = &mut spool.writer;
            let bytes = writer.bytes() + needs;
            if (bytes > ring || writer.has_too_many()) && writer.drop_oldest(&mut self.disk)? {
                continue;
            }
            let full = match self.quota.admit(job, bytes) {
                Ok(gone) => {
                    for old in gone {
                        self.remove(old)?;
                        tracing::info!(job = %old, "output of the job makes room for later output of its user");
                    }
                    return Ok(());
                }
                Err(full) => full,
            };
            let spool = self.spools.get_mut(&job);
            let dropped = spool.map_or(Ok(false), |it| it.writer.drop_oldest(&mut self.disk));
            if !dropped? {
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, full));
            }
        }
    }

    /// What the state machine does not know yet of output that is not kept.
    fn news(&mut self, job: JobId) -> Option<HeadEvent> {
        let ring_is_full = self.quota.ring_is_full();
        let spool = self.spool(job);
        if spool.hangs {
            // What waits for a disk that is late is not lost.
            return None;
        }
        let bytes = spool.writer.not_kept();
        if std::mem::replace(&mut spool.told, bytes) == bytes {
            return None;
        }
        let unreadable = spool.writer.unreadable().map(str::to_owned);
        let reason = spool.failing.clone().or(unreadable).unwrap_or(ring_is_full);
        Some(HeadEvent::NotKept { job, bytes, reason })
    }

    /// Why output is not kept now, if the reason is none of a single user's.
    pub(super) fn trouble(&self) -> Option<String> {
        let failing = |spool: &Spool| spool.failing.clone().filter(|_| !spool.is_own_fault);
        let reserve = self.reserve.reason().as_deref().map(no_reserve);
        reserve.or_else(|| self.spools.values().find_map(failing))
    }

    /// Tries again to write what the disk did not take. Returns what the state machine has to know of it, and of what could not
    /// be read.
    pub(super) fn write_again(&mut self) -> Vec<HeadEvent> {
        let failing = |spool: &Spool| spool.failing.is_some();
        let untold = |spool: &Spool| {
            spool.writer.unreadable().is_some() && spool.writer.not_kept() != spool.told
        };
        let these = self.spools.iter().filter(|(_, spool)| failing(spool) || untold(spool));
        let these: Vec<JobId> = these.map(|(&job, _)| job).collect();
        for job in self.discarded.clone() {
            self.discard(job);
        }
        let mut events = self.release();
        let again = |job| {
            if self.spools.get(&job).is_some_and(failing) {
                self.write(job);
            }
            self.news(job)
        };
        events.extend(these.into_iter().filter_map(again));
        events
    }

    /// No more will come. So much output of the job is not kept.
    pub(super) fn finish(&mut self, job: JobId, outcome: Outcome, not_kept: u64) {
        self.tell(|news| news.extended(job));
        self.spool(job);
        let Some(spool) = self.spools.get_mut(&job) else { return };
        if !spool.hangs {
            spool.writer.close(&self.disk);
        }
        spool.progress.send_modify(|progress| progress.outcome = Some((outcome, not_kept)));
    }

    /// A reader of a part of a job's output: from byte `from` on, or the last one. It may take long.
    pub(super) fn part(
        &mut self,
        job: JobId,
        from: Option<u64>,
    ) -> impl FnOnce() -> Result<Output, Refusal> + Send + use<> {
        let folder = self.folder.clone();
        let log = self.spool(job).writer.log().clone();
        move || {
            read_part(&folder, (job, log), from).map_err(|error| unreadable(&folder, job, &error))
        }
    }

    /// A follower of the job from `offset` on, which sends to `client` until the end. One that paces is waited for.
    pub(super) fn follow(
        &mut self,
        job: JobId,
        offset: u64,
        (wait, paces): (bool, bool),
        client: mpsc::Sender<ClientReply>,
    ) -> impl Future<Output = ()> + use<> {
        let folder = self.folder.clone();
        let told = Arc::clone(&self.progress);
        let spool = self.spool(job);
        let progress = spool.progress.subscribe();
        let reader = Reader::new(&folder, job, spool.writer.log().clone(), offset);
        let pacer = paces.then(|| spool.pace.join(offset, told));
        let (reader, readers) = (Some(reader), Arc::clone(&self.readers));
        Follower { reader, readers, folder, job, wait, pacer, progress, client }.run()
    }
}
