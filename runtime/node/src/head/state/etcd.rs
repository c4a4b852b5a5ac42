//! The job table in etcd: a key for each job.
//!
//! Every write is a transaction on the condition that this head still leads, and comes once and in order. What does not fit into one transaction goes to
//! a log of changes first: the whole of it, then the word that it is whole. A head that begins to lead finishes such a log, or
//! removes it if the word is missing. So each batch is written in one step, however large it is.
//!
//! While etcd does not answer, a write waits, as for a disk that hangs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kumi_control::message::{CONTROL_VERSION, JobRecord, Revocation};
use kumi_control::shares::SpentBefore;
use kumi_etcd::api::{self, Change, Pair};
use kumi_etcd::{Etcd, EtcdError, Gateway, Leadership, OrderedWrites};
use kumi_sched::JobId;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::deflate;
use super::{Batch, KnownState, SharedSettings, StateNews, StateRefusal, StateStore, TermOutput};
use crate::config::IN_SYNC;
use crate::event_loop;
use crate::head::job_table::{JobTable, TableError, UsageRetention, account_of, damaged, earlier};
use crate::head::spool::WrittenOutput;

mod accounts;
mod elsewhere;
mod shared_accounts;
mod tokens;

pub(in crate::head) use accounts::WaitingAccounts;
use accounts::{AccountsWriter, Removals};
use shared_accounts::SharedAccounts;

/// The leader's key, and the revision that created it.
pub(in crate::head) type Guard = (String, i64);

/// Most changes in a transaction; etcd's own limit is 128.
const MOST_CHANGES: usize = 100;
/// Most bytes of a transaction, if it has more than one change; etcd's own limit is 1.5 MiB.
const MOST_BYTES: usize = 1 << 20;
/// Longer records are compressed: environments and places of ranks repeat themselves.
const LONG: usize = 16 << 10;
/// Pause before a failed request is made again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The same after one that etcd refuses. That lasts until somebody has changed etcd.
const AFTER_REFUSAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The table, for the thread that uses it.
pub(in crate::head) struct EtcdTable {
    runtime: Runtime,
    tasks: LocalSet,
    records: Records,
    /// Has the accounts of jobs that are over, on this machine. It is read and written before this head leads.
    accounts: JobTable,
    accounts_path: PathBuf,
    writer: AccountsWriter,
    removals: Removals,
}

/// The keys of one cluster.
struct Records {
    gateway: Gateway,
    prefix: String,
    writes: OrderedWrites,
    refusal: StateRefusal,
    /// Of jobs that are over.
    shared_accounts: SharedAccounts,
}

fn unusable(failure: &crate::exit::Failure) -> TableError {
    TableError::File(std::io::Error::other(failure.message.clone()))
}

/// A record as it is kept: the version from which on heads can read it, whether it is compressed, and its bytes.
fn encode(record: &JobRecord) -> Result<Vec<u8>, TableError> {
    let bytes = postcard::to_allocvec(record)?;
    let is_long = bytes.len() > LONG;
    let mut value = postcard::to_allocvec(&(record.since(), is_long))?;
    if is_long {
        return Ok(deflate::compress(value, &bytes)?);
    }
    value.extend(bytes);
    Ok(value)
}

fn decode(pair: &Pair, job: JobId) -> Result<JobRecord, TableError> {
    let number = i64::try_from(job.0).unwrap_or(i64::MAX);
    let wrong = |error: &dyn std::fmt::Display| damaged(number, error);
    let ((version, is_long), mut rest): ((u32, bool), &[u8]) =
        postcard::take_from_bytes(&pair.value).map_err(|error| wrong(&error))?;
    let whole;
    if is_long {
        whole = deflate::expand(rest).map_err(|error| wrong(&error))?;
        rest = &whole;
    }
    let record: JobRecord = if version == CONTROL_VERSION {
        postcard::from_bytes(rest).map_err(|error| wrong(&error))?
    } else {
        let Some(read) = earlier::reader(version) else {
            return Err(TableError::EtcdVersion { found: version });
        };
        read(rest).map_err(|error| wrong(&error))?
    };
    if record.spec.job == job { Ok(record) } else { Err(wrong(&"another job's record")) }
}

/// The number in the value of a key.
fn count(key: &str, value: &[u8]) -> Result<u64, EtcdError> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| EtcdError::Content(key.to_owned()))
}

/// The heads that are named here, one a line.
fn heads_in(value: Option<Vec<u8>>, key: String) -> Result<BTreeSet<SocketAddr>, EtcdError> {
    let Some(value) = value else { return Ok(BTreeSet::new()) };
    let text = std::str::from_utf8(&value).ok();
    let heads = text.and_then(|text| text.lines().map(|head| head.parse().ok()).collect());
    heads.ok_or(EtcdError::Content(key))
}

/// The heads that have all output that was acknowledged, as etcd has them now.
///
/// # Errors
/// The settings cannot be used, etcd does not answer, or what is there is no list.
pub(in crate::head) async fn read_in_sync(
    settings: Etcd,
) -> Result<BTreeSet<SocketAddr>, EtcdError> {
    let key = format!("{}/{IN_SYNC}", settings.prefix);
    let mut gateway = Gateway::new(&settings.into(), &Leadership::default().into())?;
    heads_in(api::get(&mut gateway, &key).await?.map(|pair| pair.value), key)
}

/// Changes in as many steps as etcd takes at once, in order.
fn steps(changes: Vec<Change>) -> Vec<Vec<Change>> {
    let mut steps = Vec::new();
    let (mut step, mut bytes) = (Vec::new(), 0);
    for change in changes {
        let length = change.0.len() + change.1.as_ref().map_or(0, Vec::len);
        if !step.is_empty() && (step.len() == MOST_CHANGES || bytes + length > MOST_BYTES) {
            steps.push(std::mem::take(&mut step));
            bytes = 0;
        }
        bytes += length;
        step.push(change);
    }
    if !step.is_empty() {
        steps.push(step);
    }
    steps
}

/// Attempts to write the same.
#[derive(Debug, Default)]
struct Attempts {
    /// The last pauses, after no answer and after a refusal.
    pauses: (Duration, Duration),
    told: bool,
}

/// Twice as long as the last pause, within these.
fn longer(last: &mut Duration, (least, most): (Duration, Duration)) -> Duration {
    *last = (*last * 2).clamp(least, most);
    *last
}

impl Attempts {
    /// Takes note of the error, and tells it once. Returns how long to wait.
    fn failed(&mut self, error: &EtcdError, refusal: &StateRefusal) -> Duration {
        if error.is_refusal() {
            if refusal.set(Some(error.to_string())) {
                tracing::error!(%error, "etcd refuses records: no job is taken until that is mended");
            }
            return longer(&mut self.pauses.1, AFTER_REFUSAL);
        }
        if !std::mem::replace(&mut self.told, true) {
            tracing::error!(%error, "records are not in etcd yet");
        }
        longer(&mut self.pauses.0, AGAIN)
    }
}

impl Records {
    fn job_key(&self, job: JobId) -> String {
        format!("{}/jobs/{:016x}", self.prefix, job.0)
    }

    /// The job in such a key.
    fn job_of(&self, folder: &str, key: &str) -> Result<JobId, EtcdError> {
        let rest = key.strip_prefix(&self.prefix).and_then(|rest| rest.strip_prefix(folder));
        let number = rest.and_then(|number| u64::from_str_radix(number, 16).ok());
        number.map(JobId).ok_or_else(|| EtcdError::Content(key.to_owned()))
    }

    fn log_key(&self, step: usize) -> String {
        format!("{}/log/{step:08x}", self.prefix)
    }

    /// The number of steps in the log, once all of them are there.
    fn whole_key(&self) -> String {
        format!("{}/log-whole", self.prefix)
    }

    fn written_key(&self, job: JobId) -> String {
        format!("{}/written/{:016x}", self.prefix, job.0)
    }

    fn revoked_key(&self) -> String {
        format!("{}/revoked", self.prefix)
    }

    /// The folder of settings that change while heads run.
    fn settings_key(&self, name: &str) -> String {
        format!("{}/settings/{name}", self.prefix)
    }

    async fn settings(&mut self) -> Result<SharedSettings, TableError> {
        let folder = self.settings_key("");
        let mut settings = SharedSettings::default();
        for Pair { key, value, .. } in self.all(&folder).await? {
            let name = key.strip_prefix(&folder).unwrap_or_default();
            settings.take_key(name, &value).map_err(|error| {
                tracing::error!(key, %error, "a setting in etcd cannot be read");
                EtcdError::Content(key.clone())
            })?;
        }
        Ok(settings)
    }

    /// Waits until etcd has done it, also if it refuses: an earlier attempt may yet be made, and the next write must not take its
    /// place. So what refuses is told, and an administrator mends it.
    ///
    /// # Errors
    /// [`TableError::Deposed`]: another head leads.
    async fn write(&mut self, changes: &[Change]) -> Result<(), TableError> {
        let mut attempts = Attempts::default();
        loop {
            match self.writes.write(&mut self.gateway, changes).await {
                Ok(()) => {
                    if self.refusal.set(None) {
                        tracing::info!("etcd takes records again");
                    }
                    return Ok(());
                }
                Err(EtcdError::Deposed) => return Err(TableError::Deposed),
                Err(error) => sleep(attempts.failed(&error, &self.refusal)).await,
            }
        }
    }

    /// All pairs with this prefix. Waits while etcd does not answer, as long as this head leads.
    async fn all(&mut self, prefix: &str) -> Result<Vec<Pair>, TableError> {
        let mut pause = AGAIN.0;
        loop {
            match api::all(&mut self.gateway, prefix).await {
                Err(error @ EtcdError::NoAnswer { .. }) => {
                    tracing::warn!(%error, "the job table cannot be read yet");
                    // Whoever leads by now would be asked by a write only.
                    self.write(&[]).await?;
                    sleep(pause).await;
                    pause = (pause * 2).min(AGAIN.1);
                }
                other => return Ok(other?),
            }
        }
    }

    /// Makes all changes, or none.
    async fn change(&mut self, changes: Vec<Change>) -> Result<(), TableError> {
        let steps = steps(changes);
        let Some((first, more)) = steps.split_first() else { return Ok(()) };
        if more.is_empty() {
            return self.write(first).await;
        }
        for (number, step) in steps.iter().enumerate() {
            let value = postcard::to_allocvec(step)?;
            let logged = (self.log_key(number), Some(value));
            self.write(&[logged]).await?;
        }
        let whole = (self.whole_key(), Some(steps.len().to_string().into_bytes()));
        self.write(&[whole]).await?;
        for step in &steps {
            self.write(step).await?;
        }
        self.remove_log((0..steps.len()).map(|number| self.log_key(number)).collect()).await
    }

    /// The word first, without which the rest means nothing.
    async fn remove_log(&mut self, keys: Vec<String>) -> Result<(), TableError> {
        let whole = (self.whole_key(), None);
        self.write(&[whole]).await?;
        let removals: Vec<Change> = keys.into_iter().map(|key| (key, None)).collect();
        for some in removals.chunks(MOST_CHANGES) {
            self.write(some).await?;
        }
        Ok(())
    }

    /// Finishes what an earlier head was about to write, or removes what is left of it.
    async fn finish_log(&mut self) -> Result<(), TableError> {
        let wrong = |key: &str| TableError::Etcd(EtcdError::Content(key.to_owned()));
        let key = self.whole_key();
        let whole = self.get(&key).await?;
        let steps = self.all(&format!("{}/log/", self.prefix)).await?;
        if let Some(whole) = whole {
            let count = count(&key, &whole)?;
            for number in (0..count).map(|number| usize::try_from(number).unwrap_or(usize::MAX)) {
                let key = self.log_key(number);
                let found = steps.iter().find(|pair| pair.key == key).ok_or_else(|| wrong(&key))?;
                let step: Vec<Change> =
                    postcard::from_bytes(&found.value).map_err(|_| wrong(&key))?;
                self.write(&step).await?;
            }
            tracing::info!(count, "finished what an earlier head was about to write");
        }
        if steps.is_empty() {
            return Ok(());
        }
        self.remove_log(steps.into_iter().map(|pair| pair.key).collect()).await
    }

    async fn load(&mut self) -> Result<KnownState, TableError> {
        self.finish_log().await?;
        let mut records = Vec::new();
        for pair in self.all(&format!("{}/jobs/", self.prefix)).await? {
            let job = self.job_of("/jobs/", &pair.key)?;
            records.push(decode(&pair, job)?);
        }
        let key = self.revoked_key();
        let revoked = match self.get(&key).await? {
            None => Vec::new(),
            Some(value) => postcard::from_bytes::<Vec<Revocation>>(&value)
                .map_err(|_| EtcdError::Content(key))?,
        };
        let settings = self.settings().await?;
        let in_sync = self.in_sync().await?;
        let tokens = self.tokens().await?;
        let term = Some(self.begin_term().await?);
        Ok(KnownState { records, revoked, term, settings, in_sync, tokens, spent: Vec::new() })
    }

    fn in_sync_key(&self) -> String {
        format!("{}/{IN_SYNC}", self.prefix)
    }

    /// The heads that have all output that was acknowledged, one a line.
    async fn in_sync(&mut self) -> Result<BTreeSet<SocketAddr>, TableError> {
        let key = self.in_sync_key();
        Ok(heads_in(self.get(&key).await?, key)?)
    }

    fn terms_key(&self) -> String {
        format!("{}/terms", self.prefix)
    }

    /// Whether a head has led with this state before.
    async fn has_terms(&mut self) -> Result<bool, TableError> {
        let key = self.terms_key();
        Ok(self.get(&key).await?.is_some())
    }

    /// Counts this term, and reads what jobs had written before.
    async fn begin_term(&mut self) -> Result<TermOutput, TableError> {
        let key = self.terms_key();
        let before = self.get(&key).await?.map_or(Ok(0), |value| count(&key, &value))?;
        let number = before.saturating_add(1);
        self.write(&[(key, Some(number.to_string().into_bytes()))]).await?;
        let mut written = BTreeMap::new();
        for pair in self.all(&format!("{}/written/", self.prefix)).await? {
            let job = self.job_of("/written/", &pair.key)?;
            let (bytes, end) = postcard::from_bytes(&pair.value)
                .map_err(|_| EtcdError::Content(pair.key.clone()))?;
            written.insert(job, WrittenOutput { end, bytes });
        }
        Ok(TermOutput { number, written })
    }

    async fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, TableError> {
        let found = self.all(key).await?.into_iter().find(|pair| pair.key == key);
        Ok(found.map(|pair| pair.value))
    }
}

impl EtcdTable {
    /// The table of a head that leads by this guard, with accounts in the file at `accounts`.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub(in crate::head) fn open(
        settings: Etcd,
        guard: Guard,
        (accounts, news): (&Path, StateNews),
    ) -> Result<Self, TableError> {
        let runtime = event_loop::make().map_err(|failure| unusable(&failure))?;
        let prefix = settings.prefix.clone();
        let gateway = Gateway::new(&settings.into(), &Leadership::default().into())?;
        let StateNews { refusal, accounts: waiting } = news;
        let (writes, shared_accounts) = (OrderedWrites::new(guard)?, SharedAccounts::default());
        let records = Records { gateway, prefix, writes, refusal, shared_accounts };
        let (accounts, accounts_path) = (JobTable::open(accounts)?, accounts.to_owned());
        let writer = AccountsWriter::start(&accounts_path, waiting)?;
        let (tasks, removals) = (LocalSet::new(), Removals::default());
        Ok(Self { runtime, tasks, records, accounts, accounts_path, writer, removals })
    }
}

impl StateStore for EtcdTable {
    fn load(&mut self) -> Result<KnownState, TableError> {
        let here = elsewhere::jobs_here(&self.accounts, &self.accounts_path)?;
        if let Some(here) = here
            && !self.tasks.block_on(&self.runtime, self.records.has_terms())?
        {
            return Err(TableError::StateElsewhere { prefix: self.records.prefix.clone(), here });
        }
        let known = self.tasks.block_on(&self.runtime, self.records.load())?;
        // Jobs that ended while another head led.
        let others = self.tasks.block_on(&self.runtime, self.records.read_accounts())?;
        self.accounts.add_accounts(others)?;
        self.accounts.add_accounts(known.records.iter().filter_map(account_of))?;
        Ok(known)
    }

    /// The accounts of this machine have all jobs that ended here, and those whose records are kept.
    fn spent(&self, half_life_ms: u64, now_ms: u64) -> Result<Vec<SpentBefore>, TableError> {
        self.accounts.spent(half_life_ms, now_ms)
    }

    fn persist(&mut self, batch: &Batch) -> Result<(), TableError> {
        let records = &mut self.records;
        let mut changes = Vec::new();
        for record in &batch.records {
            changes.push((records.job_key(record.spec.job), Some(encode(record)?)));
        }
        changes.extend(records.account_changes(batch.records.iter().map(AsRef::as_ref))?);
        if let Some(revoked) = &batch.revoked {
            changes.push((records.revoked_key(), Some(postcard::to_allocvec(revoked)?)));
        }
        for (name, value) in batch.settings.to_keys()? {
            changes.push((records.settings_key(name), Some(value)));
        }
        if let Some(heads) = &batch.in_sync {
            let lines: Vec<String> = heads.iter().map(SocketAddr::to_string).collect();
            changes.push((records.in_sync_key(), Some(lines.join("\n").into_bytes())));
        }
        if let Some(tokens) = &batch.tokens {
            changes.extend(records.token_changes(tokens)?);
        }
        for (job, WrittenOutput { end, bytes }) in &batch.written {
            let value = postcard::to_allocvec(&(bytes, end))?;
            changes.push((records.written_key(*job), Some(value)));
        }
        self.tasks.block_on(&self.runtime, records.change(changes))?;
        self.writer.add(batch.records.iter().map(AsRef::as_ref));
        Ok(())
    }

    fn remove(&mut self, jobs: &BTreeSet<JobId>) -> Result<(), TableError> {
        let jobs = self.removals.take(jobs, &self.writer);
        let records = &mut self.records;
        let keys = jobs.iter().flat_map(|&job| [records.job_key(job), records.written_key(job)]);
        let removals: Vec<Change> = keys.map(|key| (key, None)).collect();
        self.tasks.block_on(&self.runtime, async {
            for some in removals.chunks(MOST_CHANGES) {
                records.write(some).await?;
            }
            Ok(())
        })
    }

    /// The record of a job that is over has replaced the earlier ones. etcd itself keeps those until it is compacted.
    fn forget_secrets(&mut self) -> Result<(), TableError> {
        Ok(())
    }

    fn trim_usage(&mut self, keep: UsageRetention, now_ms: u64) -> Result<(), TableError> {
        self.writer.trim(keep, now_ms);
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../tests/common/etcd.rs"]
mod members;
#[cfg(test)]
mod tests;
