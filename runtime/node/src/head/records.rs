//! Records of jobs on their way to the durable table.
//!
//! A thread of its own writes the table: a disk may take any time over a write, and the head must serve its links meanwhile.
//! What was changed since the last write goes to the disk together with the next, the latest record of each job. So what
//! waits is bounded by the jobs that there are. Writes are counted, and each action that needs a record waits for its write.
//!
//! A write that failed holds up no action. But nodes hear that they may forget a job only when the table has its end, and while
//! the disk takes little, ends are written before all else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use kumi_control::join::TokenChanges;
use kumi_control::message::{JobRecord, JobUsage, NodeSet, Revocation};
use kumi_control::tree::LinkId;
use kumi_control::unrecorded_ends::{UnrecordedEnds, nodes_can_repeat};
use kumi_sched::JobId;
use rusqlite::ErrorCode;
use tokio::sync::{mpsc, oneshot};

use super::is_over;
use super::job_table::{TableError, UsageRetention};
use super::metrics::HeadCounters;
use super::reserve::{DiskReserve, ReserveHeld};
use super::spool::WrittenOutput;
use super::state::{
    Batch, KnownState, SharedSettings, StateNews, StatePlace, StateStore, WaitingAccounts,
};
use crate::clock::wall_ms;
use crate::exit::{ExitCode, Failure};

/// A write that takes longer holds up whoever submits a job: better say so.
const SLOW: Duration = Duration::from_secs(1);

/// The number of a write. Records that come before it begins are in it.
pub(super) type WriteNumber = u64;

/// What the writer is to do. At most one of each is under way.
enum Order {
    Write(WriteNumber, Box<Batch>),
    /// Remove the records of these jobs, and keys and environments of jobs that are over.
    CleanUp(BTreeSet<JobId>),
}

/// What the writer has done.
#[derive(Debug)]
pub(super) enum Written {
    /// A write, or why it failed.
    Records(WriteNumber, Result<(), TableError>),
    /// These records are removed, or why they are not.
    Removed(BTreeSet<JobId>, Result<(), TableError>),
    /// Nothing any more: its thread has ended.
    Gone,
}

/// The records that the durable table does not have yet.
pub(super) struct JobRecords {
    orders: SyncSender<Order>,
    done: mpsc::UnboundedReceiver<Written>,
    /// The latest of each job, and the write that it is in.
    unwritten: BTreeMap<JobId, (WriteNumber, Arc<JobRecord>)>,
    /// The latest list of revoked certificates, and the write that it is in.
    revoked: Option<(WriteNumber, Vec<Revocation>)>,
    /// How much jobs have written, for heads of later terms, and the write that it is in. Nothing waits for it.
    written: BTreeMap<JobId, (WriteNumber, WrittenOutput)>,
    /// Settings that all heads are to know, as far as they have changed, and the write that they are in.
    settings: (WriteNumber, SharedSettings),
    in_sync: Option<(WriteNumber, BTreeSet<SocketAddr>)>,
    /// Tokens of machines that join, as far as they have changed, and the write that they are in.
    tokens: Option<(WriteNumber, TokenChanges)>,
    /// Whether there are such settings and tokens.
    shares_settings: bool,
    /// What users read when the state does not answer.
    silent: &'static str,
    /// Another head leads: nothing is written any more, and nothing that waits for a write may be done.
    deposed: bool,
    /// The next write.
    next: WriteNumber,
    /// The last write that is over.
    settled: WriteNumber,
    /// The write in which the last record is.
    needed: WriteNumber,
    /// When the write under way began.
    writing_since: Option<Instant>,
    /// The last write failed, or had only a part of what waits.
    failed: bool,
    /// The write under way has only records of jobs that are over.
    only_ends: bool,
    /// Nodes that are to forget jobs whose end the table does not have.
    ends: UnrecordedEnds,
    cleaning: bool,
    /// The writer is gone: records stay in memory.
    gone: bool,
    /// Jobs whose records are to be removed.
    discarded: BTreeSet<JobId>,
    /// Disk for them when there is no other.
    reserve: DiskReserve,
    /// Accounts of jobs whose records are written, on their way to the disk.
    accounts: WaitingAccounts,
    counts: Rc<HeadCounters>,
}

/// Opens the state and says what it holds, then writes until nobody orders any more.
fn serve(
    (place, news): (StatePlace, StateNews),
    (keep, half_life_ms): (UsageRetention, Option<u64>),
    known: oneshot::Sender<Result<KnownState, TableError>>,
    orders: &std::sync::mpsc::Receiver<Order>,
    done: &mpsc::UnboundedSender<Written>,
) {
    let opened = place.open(news).and_then(|mut table| {
        let mut state = table.load()?;
        if let Some(half_life) = half_life_ms {
            state.spent = table.spent(half_life, wall_ms())?;
        }
        Ok((state, table))
    });
    // Who asked waits for it, unless it is told to stop meanwhile.
    match opened {
        Ok((state, table)) => {
            if known.send(Ok(state)).is_ok() {
                write((table, keep), orders, done);
            }
        }
        Err(error) => drop(known.send(Err(error))),
    }
}

fn write(
    (mut table, keep): (Box<dyn StateStore>, UsageRetention),
    orders: &std::sync::mpsc::Receiver<Order>,
    done: &mpsc::UnboundedSender<Written>,
) {
    for order in orders {
        let written = match order {
            Order::Write(number, batch) => Written::Records(number, table.persist(&batch)),
            Order::CleanUp(jobs) => {
                let removed = table.remove(&jobs);
                if let Err(error) = table.forget_secrets() {
                    tracing::error!(%error, "keys and environments of jobs that are over are still in the log of the job table");
                }
                if let Err(error) = table.trim_usage(keep, wall_ms()) {
                    tracing::error!(%error, "old accounts are not removed yet");
                }
                Written::Removed(jobs, removed)
            }
        };
        if done.send(written).is_err() {
            return;
        }
    }
}

impl TableError {
    /// Whether the disk is full.
    fn is_full(&self) -> bool {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::DiskFull),
            Self::File(error) => error.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }

    /// Whether the system refused something to SQLite, which does not say why: it may be that the disk is full.
    fn is_io(&self) -> bool {
        let Self::Sqlite(error) = self else { return false };
        error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
    }
}

impl JobRecords {
    /// Opens the state, and starts its writer, which keeps so many accounts. `reserve` is the file that keeps room for tables
    /// on its disk. Returns what the state holds, too; with a half-life also what users spent of their shares.
    ///
    /// # Errors
    /// When the state cannot be used or read, or there is no thread.
    pub(super) async fn open(
        place: StatePlace,
        accounts: (UsageRetention, Option<u64>),
        reserve: PathBuf,
        counts: Rc<HeadCounters>,
    ) -> Result<(Self, KnownState), Failure> {
        let (silent, shares_settings) = (place.silent(), place.shares_settings());
        // One write and one removal may be under way.
        let (orders, queue) = sync_channel(2);
        let (sender, done) = mpsc::unbounded_channel();
        let writer = std::thread::Builder::new().name("job-table".to_owned());
        let (known, state) = oneshot::channel();
        let waiting = WaitingAccounts::default();
        let refusal = counts.state_refusal.clone();
        let place = (place, StateNews { refusal, accounts: waiting.clone() });
        writer.spawn(move || serve(place, accounts, known, &queue, &sender)).map_err(|error| {
            Failure::new(
                ExitCode::MachineLimits,
                format!("no thread can be made: {error}; raise the limit of processes"),
            )
        })?;
        let gone = || Failure::new(ExitCode::Internal, "the thread of the job table is gone");
        let state = state.await.map_err(|_| gone())??;
        let reserve = DiskReserve::open(reserve);
        let opened = Self {
            orders,
            done,
            unwritten: BTreeMap::new(),
            revoked: None,
            written: BTreeMap::new(),
            settings: (0, SharedSettings::default()),
            in_sync: None,
            tokens: None,
            shares_settings,
            silent,
            deposed: false,
            next: 1,
            settled: 0,
            needed: 0,
            writing_since: None,
            failed: false,
            only_ends: false,
            ends: UnrecordedEnds::default(),
            cleaning: false,
            gone: false,
            discarded: BTreeSet::new(),
            reserve,
            accounts: waiting,
            counts,
        };
        Ok((opened, state))
    }

    /// Whether the disk has room for others than the table.
    pub(super) fn reserve(&self) -> &ReserveHeld {
        self.reserve.held()
    }

    /// The record is to be made durable, with the next write.
    pub(super) fn add(&mut self, record: JobRecord) {
        self.needed = self.next;
        self.unwritten.insert(record.spec.job, (self.next, Arc::new(record)));
    }

    /// All certificates that are revoked are to be made durable, with the next write.
    pub(super) fn revoke(&mut self, list: Vec<Revocation>) {
        self.needed = self.next;
        self.revoked = Some((self.next, list));
    }

    /// Whether settings that change while heads run are in the state.
    pub(super) fn shares_settings(&self) -> bool {
        self.shares_settings
    }

    /// These settings are to be made durable, with the next write, which is returned.
    pub(super) fn change_settings(&mut self, change: SharedSettings) -> WriteNumber {
        self.needed = self.next;
        self.settings.0 = self.next;
        self.settings.1.add(change);
        self.next
    }

    /// These heads have all output that is acknowledged: to be made durable at once, with the write that is returned. No action waits.
    pub(super) fn record_in_sync(&mut self, heads: BTreeSet<SocketAddr>) -> WriteNumber {
        let write = self.next;
        self.in_sync = Some((write, heads));
        self.begin_write();
        write
    }

    /// The write in which is what changes now.
    pub(super) fn next_write(&self) -> WriteNumber {
        self.next
    }

    /// These changes of tokens are to be made durable, with the next write. Also that there are none is kept.
    pub(super) fn change_tokens(&mut self, changes: TokenChanges) {
        self.needed = self.next;
        let (write, unwritten) = self.tokens.get_or_insert_default();
        *write = self.next;
        unwritten.extend(changes);
    }

    /// How much jobs have written is to be known to heads of later terms.
    pub(super) fn note_written(&mut self, jobs: Vec<(JobId, WrittenOutput)>) {
        self.add_written(jobs);
        self.begin_write();
    }

    /// The same, with the next write.
    pub(super) fn add_written(&mut self, jobs: impl IntoIterator<Item = (JobId, WrittenOutput)>) {
        self.written.extend(jobs.into_iter().map(|(job, written)| (job, (self.next, written))));
    }

    /// The same, and whoever waits for the write that is returned waits for that.
    pub(super) fn need_written(&mut self, job: (JobId, WrittenOutput)) -> WriteNumber {
        self.needed = self.next;
        self.add_written([job]);
        self.write();
        self.needed
    }

    /// Whether another head leads: then this one's term is over.
    pub(super) fn is_deposed(&self) -> bool {
        self.deposed
    }

    /// The write for which an action has to wait that comes now.
    pub(super) fn needed(&self) -> WriteNumber {
        self.needed
    }

    /// Whether that write is over. If it failed, its records are in memory and are written again.
    pub(super) fn is_settled(&self, write: WriteNumber) -> bool {
        write <= self.settled
    }

    /// Accounts of jobs that are over and not on the disk yet.
    pub(super) fn unwritten_usage(&self) -> impl Iterator<Item = JobUsage> + '_ {
        let records = self.unwritten.values().map(|(_, record)| record);
        let over = records.filter(|record| record.ended_ms.is_some());
        let waiting = self.accounts.all().into_iter();
        let waiting = waiting.filter(|usage| !self.unwritten.contains_key(&usage.job));
        over.map(|record| JobUsage::of(record, record.used)).chain(waiting)
    }

    /// Whether nodes are to forget the job, which they name so, only later: the table does not have its end, and lets a head that
    /// reads it believe that the job runs. Then they are told when it has.
    pub(super) fn holds_forget(&mut self, link: LinkId, job: JobId, nodes: &NodeSet) -> bool {
        let holds = !self.has_end(job);
        if holds {
            self.ends.hold(link, job, nodes);
        }
        holds
    }

    fn has_end(&self, job: JobId) -> bool {
        self.unwritten.get(&job.number()).is_none_or(|(_, record)| !nodes_can_repeat(record))
    }

    /// The nodes that may forget jobs now.
    pub(super) fn take_forgets(&mut self) -> Vec<(LinkId, NodeSet, JobId)> {
        let mut ends = std::mem::take(&mut self.ends);
        let recorded = ends.take_recorded(|job| self.has_end(job));
        self.ends = ends;
        recorded
    }

    /// The link is gone, and whoever was to be told something over it says more when it attaches again.
    pub(super) fn link_gone(&mut self, link: LinkId) {
        self.ends.link_gone(link);
    }

    /// Whether the table has all records.
    pub(super) fn all_written(&self) -> bool {
        let other = self.revoked.is_none() && self.settings.1.is_empty();
        let other = other && self.in_sync.is_none() && self.tokens.is_none();
        self.unwritten.is_empty() && other && self.written.is_empty()
    }

    /// Whether the last write failed, so that it is to be tried again.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Why no new job can be taken, if that is so: it could be lost, or its user would wait without a word.
    pub(super) fn trouble(&self) -> Option<String> {
        let slow = self.writing_since.is_some_and(|since| since.elapsed() > SLOW);
        if self.failed {
            Some("the job table cannot be written (is the disk of the head full?); jobs that run go on, new ones are refused until it can".to_owned())
        } else if let Some(reason) = self.counts.state_refusal.get() {
            Some(format!(
                "the head cannot record jobs: {reason}; jobs that run go on, new ones are refused until an administrator has mended that"
            ))
        } else if slow {
            Some(self.silent.to_owned())
        } else {
            None
        }
    }

    /// Begins a write, if there are new records and none is under way.
    pub(super) fn write(&mut self) {
        if self.needed == self.next {
            self.begin_write();
        }
    }

    /// Tries once more to write what failed before.
    pub(super) fn write_again(&mut self) {
        if self.failed {
            self.begin_write();
        }
    }

    fn begin_write(&mut self) {
        if self.writing_since.is_some() || self.all_written() || self.deposed {
            return;
        }
        let number = self.next;
        self.next += 1;
        let batch = self.ends_alone().unwrap_or_else(|| self.all());
        match self.orders.try_send(Order::Write(number, Box::new(batch))) {
            Ok(()) => self.writing_since = Some(Instant::now()),
            Err(_) => self.take(Written::Gone),
        }
    }

    /// The records of jobs that are over, if there are others: a disk that takes not all may take these. What jobs have done cannot
    /// be done again, and new ones can wait.
    fn ends_alone(&mut self) -> Option<Batch> {
        let records = self.unwritten.values().map(|(_, record)| record);
        let ends: Vec<_> = records.filter(|record| is_over(record)).map(Arc::clone).collect();
        self.only_ends = self.failed && !ends.is_empty() && ends.len() < self.unwritten.len();
        // Who knows of an end knows how much output there was.
        let written = || self.written.iter().map(|(&job, &(_, written))| (job, written)).collect();
        self.only_ends.then(|| Batch { records: ends, written: written(), ..Batch::default() })
    }

    /// All that waits.
    fn all(&self) -> Batch {
        let records = self.unwritten.values().map(|(_, record)| Arc::clone(record)).collect();
        let revoked = self.revoked.as_ref().map(|(_, list)| list.clone());
        let written = self.written.iter().map(|(&job, &(_, written))| (job, written)).collect();
        let settings = self.settings.1.clone();
        let in_sync = self.in_sync.as_ref().map(|(_, heads)| heads.clone());
        let tokens = self.tokens.as_ref().map(|(_, changes)| changes.clone());
        Batch { records, revoked, written, settings, in_sync, tokens }
    }

    /// What the writer does next; to be handed to [`JobRecords::take`].
    pub(super) async fn written(&mut self) -> Written {
        if self.gone {
            return std::future::pending().await;
        }
        self.done.recv().await.unwrap_or(Written::Gone)
    }

    /// Whether a write failed because its disk is full.
    fn is_full(&self, error: &TableError) -> bool {
        error.is_full() || error.is_io() && self.reserve.has_little_beside_it()
    }

    /// Takes note of what the writer has done, and begins the next write.
    pub(super) fn take(&mut self, written: Written) {
        match written {
            // What waits for the write stays undone.
            Written::Records(_, Err(TableError::Deposed)) => self.deposed = true,
            // The disk is full, and there is room for the table now.
            Written::Records(_, Err(error)) if self.is_full(&error) && self.reserve.release() => {
                tracing::warn!(%error, "the records are written again");
                self.writing_since = None;
                self.begin_write();
            }
            Written::Records(number, Ok(())) if self.only_ends => {
                (self.settled, self.writing_since) = (number, None);
                self.unwritten.retain(|_, (write, record)| *write > number || !is_over(record));
                self.counts.unwritten.set(self.unwritten.len());
                self.begin_write();
            }
            Written::Records(number, result) => {
                self.settled = number;
                self.writing_since = None;
                self.failed = result.is_err();
                match result {
                    Ok(()) => {
                        self.unwritten.retain(|_, (write, _)| *write > number);
                        self.revoked.take_if(|(write, _)| *write <= number);
                        self.in_sync.take_if(|(write, _)| *write <= number);
                        if self.settings.0 <= number {
                            self.settings.1 = SharedSettings::default();
                        }
                        self.tokens.take_if(|(write, _)| *write <= number);
                        self.written.retain(|_, (write, _)| *write > number);
                    }
                    Err(error) => {
                        tracing::error!(%error, jobs = self.unwritten.len(), "records are kept in memory");
                    }
                }
                let unwritten = if self.failed { self.unwritten.len() } else { 0 };
                self.counts.unwritten.set(unwritten);
                if !self.failed {
                    // Also what nobody waits for, such as how much jobs have written.
                    self.begin_write();
                } else {
                    self.write();
                }
            }
            Written::Gone => {
                tracing::error!("the writer of the job table is gone: records are kept in memory");
                // As after a write that failed.
                (self.gone, self.failed, self.writing_since) = (true, true, None);
                self.settled = self.next;
                self.counts.unwritten.set(self.unwritten.len());
            }
            Written::Removed(jobs, result) => {
                self.cleaning = false;
                if let Err(error) = result {
                    tracing::error!(%error, jobs = jobs.len(), "records of old jobs are not removed yet");
                    self.discarded.extend(jobs);
                }
            }
        }
    }

    /// The record of the job is to be removed, soon: several at once cost one write.
    pub(super) fn discard(&mut self, job: JobId) {
        self.unwritten.remove(&job);
        self.written.remove(&job);
        self.discarded.insert(job);
    }

    /// Removes what is to go of ended jobs from the disk: records, keys and environments. What fails is tried again at the next call.
    pub(super) fn clean_up(&mut self) {
        if self.all_written() {
            self.reserve.renew();
        }
        if self.cleaning || self.gone || self.deposed {
            return;
        }
        let jobs = std::mem::take(&mut self.discarded);
        match self.orders.try_send(Order::CleanUp(jobs)) {
            Ok(()) => self.cleaning = true,
            Err(_) => self.take(Written::Gone),
        }
    }
}

#[cfg(test)]
mod tests;
