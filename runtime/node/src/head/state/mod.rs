//! The head's state: one interface, and what is behind it.
//!
//! A [`StateStore`] keeps records of jobs. SQLite keeps them in a file (`job_table`), etcd for several heads ([`etcd`]). Which
//! head may write, and act, is the matter of [`term`].

mod deflate;
mod etcd;
mod own_address;
mod settings;
mod term;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use kumi_control::join::{JoinTokens, TokenChanges};
use kumi_control::message::{JobRecord, Revocation};
use kumi_control::shares::SpentBefore;
use kumi_sched::JobId;

use super::job_table::{JobTable, TableError, UsageRetention};
use super::spool::WrittenOutput;
pub(super) use etcd::{EtcdTable, Guard, WaitingAccounts, read_in_sync};
pub(super) use own_address::{OwnAddress, lock_folder};
pub(super) use settings::{NodeChanges, SharedSettings, SharingKeys, write_nodes};
pub(super) use term::{LeaderTerm, Wait, begin_again, lead};

/// What is written in one step.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The latest record of each job.
    pub(super) records: Vec<Arc<JobRecord>>,
    /// All certificates that are revoked, if there are new ones.
    pub(super) revoked: Option<Vec<Revocation>>,
    /// How much jobs have written.
    pub(super) written: Vec<(JobId, WrittenOutput)>,
    /// Settings that all heads are to know, as far as they have changed.
    pub(super) settings: SharedSettings,
    /// The heads that have all output that is acknowledged, if that has changed.
    pub(super) in_sync: Option<BTreeSet<SocketAddr>>,
    /// Tokens of machines that join, as far as they have changed.
    pub(super) tokens: Option<TokenChanges>,
}

/// What a head finds when it begins to lead.
#[derive(Debug, Default)]
pub(super) struct KnownState {
    /// All jobs, ascending.
    pub(super) records: Vec<JobRecord>,
    /// Certificates that are revoked, beside those in the head's own list.
    pub(super) revoked: Vec<Revocation>,
    /// Which term of all heads this one is; none if there is only one head.
    pub(super) term: Option<TermOutput>,
    /// What users spent of their shares, if they have any.
    pub(super) spent: Vec<SpentBefore>,
    /// Settings that heads have changed, if they share them.
    pub(super) settings: SharedSettings,
    /// The heads that have all output that is acknowledged.
    pub(super) in_sync: BTreeSet<SocketAddr>,
    /// Tokens of machines that join, if heads share them and one has written them.
    pub(super) tokens: Option<JoinTokens>,
}

/// What a head has to know of the output of jobs in earlier terms.
#[derive(Debug, Default)]
pub(super) struct TermOutput {
    /// The number of the term: 1, 2 and so on.
    pub(super) number: u64,
    /// How much jobs had written.
    pub(super) written: BTreeMap<JobId, WrittenOutput>,
}

/// Keeps the head's state. It may take any time over each step, so it has a thread of its own.
pub(super) trait StateStore {
    /// Reads everything.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&mut self) -> Result<KnownState, TableError>;

    /// What users spent of their shares before now, as far as it counts yet with this half-life.
    ///
    /// # Errors
    /// It cannot be read.
    fn spent(&self, half_life_ms: u64, now_ms: u64) -> Result<Vec<SpentBefore>, TableError>;

    /// Makes a batch durable, in one step.
    ///
    /// # Errors
    /// It cannot be written; then nothing of it is. [`TableError::Deposed`]: another head leads.
    fn persist(&mut self, batch: &Batch) -> Result<(), TableError>;

    /// Removes the records of these jobs.
    ///
    /// # Errors
    /// As [`StateStore::persist`].
    fn remove(&mut self, jobs: &BTreeSet<JobId>) -> Result<(), TableError>;

    /// Takes what is secret of jobs that are over from wherever it is still to be found.
    ///
    /// # Errors
    /// As [`StateStore::persist`].
    fn forget_secrets(&mut self) -> Result<(), TableError>;

    /// Removes accounts of jobs that are not to be kept, now and then.
    ///
    /// # Errors
    /// As [`StateStore::persist`].
    fn trim_usage(&mut self, keep: UsageRetention, now_ms: u64) -> Result<(), TableError>;
}

/// Why the state refuses what is written, as long as it does. The writer's thread says so, the main loop tells clients.
#[derive(Clone, Debug, Default)]
pub(super) struct StateRefusal(Arc<Mutex<Option<String>>>);

impl StateRefusal {
    /// The reason, if the state refuses now.
    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets it. Returns whether that is news.
    pub(super) fn set(&self, reason: Option<String>) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *known != reason;
        *known = reason;
        is_news
    }
}

/// What the thread of the state shares with the main loop.
#[derive(Clone, Debug, Default)]
pub(super) struct StateNews {
    pub(super) refusal: StateRefusal,
    /// Accounts that the state has taken, and that are not on this machine's disk yet.
    pub(super) accounts: WaitingAccounts,
}

/// Where the state is.
#[derive(Debug)]
pub(super) enum StatePlace {
    /// In this file, made if there is none.
    File(PathBuf),
    /// In etcd, as long as this head leads. Accounts of jobs are in this file.
    Etcd(Box<kumi_etcd::Etcd>, Guard, PathBuf),
}

impl StatePlace {
    /// Opens it, on the thread that will use it.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) fn open(self, news: StateNews) -> Result<Box<dyn StateStore>, TableError> {
        Ok(match self {
            Self::File(path) => Box::new(JobTable::open(&path)?),
            Self::Etcd(settings, guard, accounts) => {
                Box::new(EtcdTable::open(*settings, guard, (&accounts, news))?)
            }
        })
    }

    /// Whether settings that change while heads run are there. They are in files otherwise.
    pub(super) fn shares_settings(&self) -> bool {
        matches!(self, Self::Etcd(..))
    }

    /// What a user reads whose job is refused, since the state does not answer.
    pub(super) fn silent(&self) -> &'static str {
        match self {
            Self::File(_) => {
                "the disk with the job table does not answer the head; jobs that run go on, try again when it does"
            }
            Self::Etcd(..) => {
                "etcd, which has the job table, does not answer the head; jobs that run go on, try again when it does"
            }
        }
    }
}

impl StateStore for JobTable {
    fn load(&mut self) -> Result<KnownState, TableError> {
        Ok(KnownState { records: JobTable::load(self)?, ..KnownState::default() })
    }

    fn spent(&self, half_life_ms: u64, now_ms: u64) -> Result<Vec<SpentBefore>, TableError> {
        JobTable::spent(self, half_life_ms, now_ms)
    }

    /// The list of revoked certificates is in a file of its own, and so are settings, and the output of all jobs on the same disk.
    fn persist(&mut self, batch: &Batch) -> Result<(), TableError> {
        JobTable::persist(self, batch.records.iter().map(AsRef::as_ref))
    }

    fn remove(&mut self, jobs: &BTreeSet<JobId>) -> Result<(), TableError> {
        JobTable::remove(self, jobs)
    }

    fn forget_secrets(&mut self) -> Result<(), TableError> {
        JobTable::forget_secrets(self)
    }

    fn trim_usage(&mut self, keep: UsageRetention, now_ms: u64) -> Result<(), TableError> {
        JobTable::trim_usage(self, keep, now_ms)
    }
}
