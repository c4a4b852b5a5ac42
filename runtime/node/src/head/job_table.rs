//! Durable job table of the head: SQLite, one row for each job, and accounts of those that are over.
//!
//! A table of one of the eight versions before is brought up to date when it is opened.

pub(super) mod earlier;
mod usage;

use std::collections::BTreeSet;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use kumi_control::message::{CONTROL_VERSION, JobRecord, JobState};
use kumi_control::shares::SpentBefore;
use kumi_etcd::EtcdError;
use kumi_sched::JobId;
use rusqlite::{Connection, TransactionBehavior, params};

use crate::exit::{ExitCode, Failure};
use earlier::{READERS, RecordReader};
use usage::UsageTrim;
pub(in crate::head) use usage::account_of;
pub(crate) use usage::{UsageRetention, read as read_usage};

/// Layout of the table. Rows hold records as postcard, of the `CONTROL_VERSION` that the table has.
const SCHEMA: u32 = 1;
/// Most jobs that are over and are read, beyond what any head keeps. Earlier versions removed none while they ran.
const ENDED_READ: u32 = 1 << 17;
/// How long to wait for somebody else who has the table open.
const BUSY: Duration = Duration::from_secs(5);

/// Why the table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// SQLite says no.
    #[error(
        "the job table cannot be used: {0}; check space and permissions of the cluster directory"
    )]
    Sqlite(#[from] rusqlite::Error),
    /// Its file cannot be made.
    #[error(
        "the job table cannot be made: {0}; check space and permissions of the cluster directory"
    )]
    File(#[from] std::io::Error),
    /// Made by another version of Kumi.
    #[error(
        "the job table was made by another version ({found}, this is {SCHEMA}.{CONTROL_VERSION}, which takes over those from {SCHEMA}.{} on); start the head with that version, or put back the copy of head.db from before the upgrade", READERS[0].0
    )]
    Version {
        /// Its version.
        found: String,
    },
    /// A row does not decode.
    #[error("job {job} in the job table is damaged: {reason}; restore head.db or remove it")]
    Damaged {
        /// The job.
        job: i64,
        /// The error.
        reason: String,
    },
    /// A record in etcd was written by another version of Kumi.
    #[error(
        "the job table in etcd was written by another version ({found}, this is {CONTROL_VERSION}); let heads of that version lead, or remove its keys"
    )]
    EtcdVersion {
        /// Its version.
        found: u32,
    },
    /// etcd says no, or cannot be used.
    #[error("the job table in etcd cannot be used: {0}")]
    Etcd(#[from] kumi_etcd::EtcdError),
    /// etcd knows nothing of this cluster, and this host does.
    #[error(
        "etcd has no state of this cluster under {prefix}, but {} of this host has jobs, whose output and accounts would go; check `state` and `prefix` in cluster.toml and tls/ca.pem, or move head.db and spool away to begin anew", .here.display()
    )]
    StateElsewhere {
        /// What all keys begin with.
        prefix: String,
        /// The file or folder.
        here: std::path::PathBuf,
    },
    /// Another head leads.
    #[error("another head leads")]
    Deposed,
    /// A record does not encode.
    #[error("a record cannot be encoded: {0}")]
    Encode(#[from] postcard::Error),
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        let code = match error {
            TableError::Version { .. } | TableError::EtcdVersion { .. } => ExitCode::Version,
            TableError::Etcd(EtcdError::Address(_) | EtcdError::Tls(_))
            | TableError::StateElsewhere { .. } => ExitCode::BadConfig,
            TableError::Etcd(EtcdError::NoAnswer { .. }) => ExitCode::Unavailable,
            _ => ExitCode::Io,
        };
        Self::new(code, error.to_string())
    }
}

/// The open table.
#[derive(Debug)]
pub struct JobTable {
    connection: Connection,
    /// Keys and environments of jobs that are over may still be in the log of changes.
    secrets_left: bool,
    trimmed: UsageTrim,
}

/// Makes the file, readable by its owner only: records hold environments and keys. What SQLite puts
/// beside it gets the same permissions.
fn private(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

fn version(control: u32) -> u32 {
    SCHEMA << 16 | (control & 0xffff)
}

pub(super) fn damaged(job: i64, reason: &dyn std::fmt::Display) -> TableError {
    TableError::Damaged { job, reason: reason.to_string() }
}

impl JobTable {
    /// Opens the table at `path`, or makes it.
    ///
    /// # Errors
    /// When it cannot be opened or is of another version.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        private(path)?;
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // Every commit reaches the disk: a job that was accepted survives a power cut.
        connection.pragma_update(None, "synchronous", "FULL")?;
        // What was replaced is overwritten: records hold keys and environments until their job is over.
        connection.pragma_update(None, "secure_delete", "ON")?;
        let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if found == 0 {
            connection.execute_batch(&format!(
                "BEGIN;
                 CREATE TABLE jobs (
                     job INTEGER PRIMARY KEY,
                     name TEXT NOT NULL,
                     uid INTEGER NOT NULL,
                     state TEXT NOT NULL,
                     record BLOB NOT NULL
                 ) STRICT;
                 PRAGMA user_version = {};
                 COMMIT;",
                version(CONTROL_VERSION)
            ))?;
        } else if let Some(read) = reader_of(found) {
            upgrade(&mut connection, read)?;
        } else if found != version(CONTROL_VERSION) {
            return Err(TableError::Version {
                found: format!("{}.{}", found >> 16, found & 0xffff),
            });
        }
        usage::open(&mut connection)?;
        // An earlier head may have been killed before it forgot.
        Ok(Self { connection, secrets_left: true, trimmed: UsageTrim::default() })
    }

    /// All jobs, ascending. The oldest of very many that are over are dropped first.
    ///
    /// # Errors
    /// When a row cannot be read.
    pub fn load(&mut self) -> Result<Vec<JobRecord>, TableError> {
        self.connection.execute(
            "DELETE FROM jobs WHERE state = 'ended' AND job NOT IN
                 (SELECT job FROM jobs WHERE state = 'ended' ORDER BY job DESC LIMIT ?1)",
            params![ENDED_READ],
        )?;
        let mut statement = self.connection.prepare("SELECT job, record FROM jobs ORDER BY job")?;
        let rows = statement
            .query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        let mut records = Vec::new();
        for row in rows {
            let (job, bytes) = row?;
            let record: JobRecord =
                postcard::from_bytes(&bytes).map_err(|error| damaged(job, &error))?;
            if i64::try_from(record.spec.job.0) != Ok(job) {
                return Err(damaged(job, &"another job's record"));
            }
            records.push(record);
        }
        Ok(records)
    }

    /// Makes records durable, in one step.
    ///
    /// # Errors
    /// When they cannot be written; then none is.
    pub fn persist<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a JobRecord>,
    ) -> Result<(), TableError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut ended = false;
        {
            let mut statement = transaction.prepare_cached(
                "INSERT OR REPLACE INTO jobs (job, name, uid, state, record) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            for record in records {
                let spec = &record.spec;
                ended |= matches!(record.state, JobState::Ended(_));
                statement.execute(params![
                    number(spec.job),
                    spec.request.name,
                    spec.user.uid,
                    state_name(&record.state),
                    postcard::to_allocvec(record)?,
                ])?;
                if let Some(account) = account_of(record) {
                    usage::insert(&transaction, &account)?;
                }
            }
        }
        transaction.commit()?;
        self.secrets_left |= ended;
        Ok(())
    }

    /// Removes the records of these jobs, in one step.
    ///
    /// # Errors
    /// When that cannot be written; then none is removed.
    pub fn remove(&mut self, jobs: &BTreeSet<JobId>) -> Result<(), TableError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut statement = transaction.prepare_cached("DELETE FROM jobs WHERE job = ?1")?;
            for &job in jobs {
                statement.execute(params![number(job)])?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// What users spent of their shares before now, as far as it counts yet with this half-life.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn spent(
        &self,
        half_life_ms: u64,
        now_ms: u64,
    ) -> Result<Vec<SpentBefore>, TableError> {
        usage::spent(&self.connection, half_life_ms, now_ms)
    }

    /// Whether it has neither a job nor an account.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn is_empty(&self) -> Result<bool, TableError> {
        let some = "SELECT EXISTS (SELECT 1 FROM jobs) OR EXISTS (SELECT 1 FROM usage)";
        let has_some: bool = self.connection.query_row(some, [], |row| row.get(0))?;
        Ok(!has_some)
    }

    /// Removes accounts that are not to be kept, once an hour.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(crate) fn trim_usage(
        &mut self,
        keep: UsageRetention,
        now_ms: u64,
    ) -> Result<(), TableError> {
        usage::trim(&mut self.connection, (&mut self.trimmed, keep), now_ms)
    }

    /// Takes keys and environments of jobs that are over out of the log of changes, in which older versions of records stand:
    /// moves it into the table and cuts it to nothing. Several writes to the disk, hence not for each job; nothing if no job
    /// has ended since.
    ///
    /// # Errors
    /// When it cannot be written. That somebody else reads the table is none: the next call tries again.
    pub fn forget_secrets(&mut self) -> Result<(), TableError> {
        if !self.secrets_left {
            return Ok(());
        }
        // A reader may take its time.
        self.connection.busy_timeout(Duration::ZERO)?;
        let busy =
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        self.connection.busy_timeout(BUSY)?;
        self.secrets_left = busy?;
        Ok(())
    }
}

/// What reads records of a table of this version, if it is an earlier one that is still known.
fn reader_of(found: u32) -> Option<RecordReader> {
    READERS.into_iter().find(|&(control, _)| found == version(control)).map(|(_, read)| read)
}

/// Writes all records of a table of an earlier version anew, in one step.
fn upgrade(connection: &mut Connection, read: RecordReader) -> Result<(), TableError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let mut statement = transaction.prepare("SELECT job, record FROM jobs")?;
        let rows = statement
            .query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))?
            .collect::<Result<Vec<_>, _>>()?;
        let mut update = transaction.prepare("UPDATE jobs SET record = ?2 WHERE job = ?1")?;
        for (job, bytes) in rows {
            let mut record = read(&bytes).map_err(|error| damaged(job, &error))?;
            if matches!(record.state, JobState::Ended(_)) {
                record.spec.request.env = Vec::new();
            }
            update.execute(params![job, postcard::to_allocvec(&record)?])?;
        }
    }
    transaction.pragma_update(None, "user_version", version(CONTROL_VERSION))?;
    Ok(transaction.commit()?)
}

/// Job numbers count from 1 and stay far below what SQLite's integers hold.
fn number(job: JobId) -> i64 {
    i64::try_from(job.0).unwrap_or(i64::MAX)
}

fn state_name(state: &JobState) -> &'static str {
    match state {
        JobState::Queued => "queued",
        JobState::Preparing => "preparing",
        JobState::Running => "running",
        JobState::Ending(_) => "ending",
        JobState::Ended(_) => "ended",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kumi_control::message::{
        ContentHash, JobRequest, JobSpec, NodeRanks, Outcome, Program, User,
    };
    use kumi_sched::NodeId;

    pub(crate) fn record(job: u64, state: JobState) -> JobRecord {
        let program = Program { path: "/bin/true".into(), hash: ContentHash([7; 32]), size: 9 };
        let token = u128::MAX - u128::from(job);
        let env = vec![("A".into(), "b".into())];
        let request = JobRequest { env, ..JobRequest::new(token, "true", program, 2) };
        JobRecord {
            spec: JobSpec {
                job: JobId(job),
                user: User { uid: 1, gid: 2, name: "u".into() },
                request,
                layout: Vec::new(),
                channel_key: u64::MAX,
                seal_key: None,
            },
            state,
            submitted_ms: 5,
            started_ms: None,
            ended_ms: None,
            output_not_kept: 0,
            restarts: 0,
            end_request: None,
            used: Default::default(),
        }
    }

    #[test]
    fn records_survive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let mut table = JobTable::open(&path).unwrap();
        assert_eq!(table.load().unwrap(), []);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let first = record(1, JobState::Queued);
        let second = record(2, JobState::Running);
        table.persist([&first, &second]).unwrap();
        let first = record(1, JobState::Ended(Outcome::Success));
        table.persist([&first]).unwrap();
        drop(table);
        let mut table = JobTable::open(&path).unwrap();
        assert_eq!(table.load().unwrap(), [first, second]);
    }

    /// Neither the table nor what SQLite keeps beside it.
    #[test]
    fn keys_and_environments_of_jobs_that_are_over_are_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let mut table = JobTable::open(&path).unwrap();
        let key = *b"a key of a job..";
        let word = *b"a password of it";
        let found = || {
            let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
            let has = |file: &std::path::PathBuf| {
                let bytes = std::fs::read(file).unwrap();
                bytes.windows(key.len()).any(|bytes| bytes == key || bytes == word)
            };
            files.filter(has).count()
        };
        // Several pages of records, and one that takes more than a page by itself.
        let encrypted = |job, state, seal_key| {
            let mut record = record(job, state);
            // One without a key, too.
            record.spec.request.encrypt = Some(job != 2);
            record.spec.request.args = vec!["x".repeat(100 * job as usize)];
            let secret = String::from_utf8(word.to_vec()).unwrap();
            record.spec.request.env = vec![("PASSWORD".into(), secret)];
            record.spec.seal_key = seal_key;
            record
        };
        let jobs = [1, 2, 3, 50, 100];
        let seal = || Some(kumi_control::message::SealKey(key));
        table.persist(&jobs.map(|job| encrypted(job, JobState::Running, seal()))).unwrap();
        // In the table itself too, as when the log has grown long.
        table.forget_secrets().unwrap();
        assert!(found() > 0, "jobs that run have theirs");
        table.persist(&[encrypted(1, JobState::Running, seal())]).unwrap();
        let over = |job| {
            let mut record = encrypted(job, JobState::Ended(Outcome::Success), None);
            record.spec.request.env.clear();
            record
        };
        table.persist(&jobs.map(over)).unwrap();
        // Somebody who reads it is not waited for.
        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM jobs").unwrap();
        table.forget_secrets().unwrap();
        reader.execute_batch("COMMIT").unwrap();
        drop(reader);
        table.forget_secrets().unwrap();
        assert_eq!(found(), 0);
        assert!(!table.secrets_left && table.load().unwrap().len() == jobs.len());
    }

    /// Job 5 of a table of version 8: queued, with 4 ranks, encrypted, priority 3 and an estimate of ten minutes.
    const VERSION_8: &str = "05e80764ef9bafcdf8acd19181deb7de9af1d9a2a302026367072f62696e2f6367\
         07070707070707070707070707070707070707070707070707070707070707070902026367022d76\
         0101410162042f746d700401020101030180e0a596bb1101010004ffffffffffffffffff01000080\
         d095ffbc310000";

    /// Where the fields begin that version 9 added: how long it waits, and limits; it has neither.
    const ADDED_IN_9: usize = VERSION_8.len() - 48;

    #[test]
    fn jobs_of_earlier_versions_are_taken_over() {
        let (before, after) = VERSION_8.split_at(ADDED_IN_9);
        taken_over(8, VERSION_8);
        taken_over(9, &format!("{before}0000{after}"));
    }

    #[test]
    fn jobs_of_versions_10_to_14_have_no_terminal_no_limits_of_time_or_no_restarts() {
        let record = record(5, JobState::Queued);
        let now = postcard::to_allocvec(&record).unwrap();
        let mut terminal = record.clone();
        terminal.spec.request.terminal = Some(Default::default());
        // Where the byte stands that says whether it has a terminal.
        let other = postcard::to_allocvec(&terminal).unwrap();
        let at = now.iter().zip(&other).position(|(one, other)| one != other).unwrap();
        // Behind it begin the options that version 14 added, none of five, and that of version 15. It added the last seven
        // bytes, too.
        assert_eq!(now[at..at + 7], [0; 7]);
        let end = now.len() - 7;
        assert_eq!(now[end..], [0; 7]);
        for (control, kept) in [(10, 0), (11, 0), (12, 1), (13, 1), (14, 6)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("head.db");
            let mut table = JobTable::open(&path).unwrap();
            table.persist([&record]).unwrap();
            let old = [&now[..at + kept], &now[at + 7..end]].concat();
            table.connection.execute("UPDATE jobs SET record = ?1", params![old]).unwrap();
            table.connection.pragma_update(None, "user_version", version(control)).unwrap();
            drop(table);
            assert_eq!(
                JobTable::open(&path).unwrap().load().unwrap(),
                std::slice::from_ref(&record)
            );
        }
    }

    #[test]
    fn jobs_of_version_14_hold_the_processors_of_their_places() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let mut record = record(5, JobState::Running);
        record.output_not_kept = 7;
        let part = |node, processors: &[u32]| NodeRanks {
            node: NodeId(node),
            first: node,
            count: 3,
            processors: processors.to_vec(),
        };
        record.spec.layout = vec![part(0, &[4, 5]), part(3, &[])];
        let mut table = JobTable::open(&path).unwrap();
        table.persist([&record]).unwrap();
        let mut terminal = record.clone();
        terminal.spec.request.terminal = Some(Default::default());
        let now = postcard::to_allocvec(&record).unwrap();
        let other = postcard::to_allocvec(&terminal).unwrap();
        // Version 15 added an option behind five others, and seven bytes at the end.
        let option = 6 + now.iter().zip(&other).position(|(one, other)| one != other).unwrap();
        let (before, added) = now.split_at(now.len() - 7);
        assert_eq!(added, [0; 7]);
        let old = [&before[..option], &before[option + 1..]].concat();
        table.connection.execute("UPDATE jobs SET record = ?1", params![old]).unwrap();
        table.connection.pragma_update(None, "user_version", version(14)).unwrap();
        drop(table);
        record.used.processors = 5;
        assert_eq!(JobTable::open(&path).unwrap().load().unwrap(), [record]);
    }

    fn taken_over(control: u32, record: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let table = JobTable::open(&path).unwrap();
        let bytes: Vec<u8> = (0..record.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&record[at..at + 2], 16).unwrap())
            .collect();
        let insert = "INSERT INTO jobs VALUES (5, 'cg', 1000, 'queued', ?1)";
        table.connection.execute(insert, params![bytes]).unwrap();
        table.connection.pragma_update(None, "user_version", version(control)).unwrap();
        drop(table);
        for _ in 0..2 {
            let [job] = &JobTable::open(&path).unwrap().load().unwrap()[..] else { panic!() };
            let request = &job.spec.request;
            assert_eq!(
                (job.spec.job, job.spec.user.uid, &job.state),
                (JobId(5), 1000, &JobState::Queued)
            );
            assert_eq!((&*request.name, request.ranks, request.priority), ("cg", 4, 3));
            assert_eq!((request.encrypt, request.estimate_ns), (Some(true), Some(600_000_000_000)));
            assert_eq!((job.spec.channel_key, job.submitted_ms), (u64::MAX, 1_700_000_000_000));
            assert_eq!((request.limits, job.ended_ms), (None, None));
            assert!(request.resources.exclusive, "it had its nodes to itself in its turns");
        }
    }

    #[test]
    fn other_versions_and_damage_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let mut table = JobTable::open(&path).unwrap();
        table.persist([&record(3, JobState::Queued)]).unwrap();
        table.connection.execute("UPDATE jobs SET record = x'00'", []).unwrap();
        assert!(matches!(table.load(), Err(TableError::Damaged { job: 3, .. })));
        table.connection.pragma_update(None, "user_version", 99 << 16 | 1).unwrap();
        drop(table);
        let error = JobTable::open(&path).unwrap_err();
        assert!(error.to_string().contains("99.1"));
        assert_eq!(Failure::from(error).code, ExitCode::Version);
    }

    #[test]
    fn records_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = JobTable::open(&dir.path().join("head.db")).unwrap();
        let records: Vec<_> =
            (1..5).map(|job| record(job, JobState::Ended(Outcome::Killed))).collect();
        table.persist(&records).unwrap();
        table.remove(&BTreeSet::from([JobId(1), JobId(3), JobId(9)])).unwrap();
        let left: Vec<_> = table.load().unwrap().iter().map(|record| record.spec.job).collect();
        assert_eq!(left, [JobId(2), JobId(4)]);
    }
}
