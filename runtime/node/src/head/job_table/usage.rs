//! Accounts of jobs that are over, beside their records: a row for each job, by its number.
//!
//! The row is written in the same step as the record that says that the job is over. So each job is accounted for once, however
//! often the head is restarted. Rows stay when records go.

use std::borrow::Borrow;
use std::path::Path;
use std::time::{Duration, Instant};

use kumi_control::message::{JobRecord, JobState, JobUsage, JobUse, PartUse, UsageBy, UsageQuery};
use kumi_control::shares::SpentBefore;
use kumi_control::usage::UsageTally;
use kumi_sched::JobId;
use rusqlite::{Connection, OpenFlags, Row, Transaction, TransactionBehavior, params};

use super::{BUSY, JobTable, TableError, damaged, number};

/// Which accounts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageRetention {
    /// For so many milliseconds after the end of their jobs.
    pub(crate) age_ms: u64,
    /// Most of them.
    pub(crate) jobs: u64,
}

/// How many half-lives back something spent counts: a millionth is left then.
const HALF_LIVES: u64 = 20;
/// Spans of a half-life in which what was spent is taken together.
const SPANS_OF_HALF_LIFE: u64 = 64;
/// Between looks for accounts that are too old or too many.
const TRIM: Duration = Duration::from_secs(3_600);

/// When accounts were looked through last.
#[derive(Debug, Default)]
pub(super) struct UsageTrim(Option<Instant>);

const CREATE: &str = "CREATE TABLE usage (
         job INTEGER PRIMARY KEY,
         uid INTEGER NOT NULL,
         user TEXT NOT NULL,
         name TEXT NOT NULL,
         ranks INTEGER NOT NULL,
         nodes INTEGER NOT NULL,
         processors INTEGER NOT NULL,
         submitted_ms INTEGER NOT NULL,
         started_ms INTEGER,
         ended_ms INTEGER NOT NULL,
         turns_us INTEGER NOT NULL,
         used_us INTEGER NOT NULL,
         memory INTEGER,
         measured_nodes INTEGER NOT NULL,
         outcome TEXT NOT NULL,
         held_before_us INTEGER NOT NULL DEFAULT 0,
         spent_us INTEGER NOT NULL DEFAULT 0
     ) STRICT;
     CREATE INDEX usage_ended ON usage (ended_ms);";

const COLUMNS: &str = "job, uid, user, name, ranks, nodes, processors, submitted_ms, started_ms, ended_ms, turns_us, used_us, memory, measured_nodes, outcome, held_before_us, spent_us";

/// What SQLite has of a count; more than it can hold is as much as it can hold.
fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Makes the table if there is none, with the jobs that are over already. Nobody has measured what those used.
pub(super) fn open(connection: &mut Connection) -> Result<(), TableError> {
    if connection.table_exists(None, "usage")? {
        return add_columns(connection);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(CREATE)?;
    {
        let mut over = transaction.prepare("SELECT job, record FROM jobs WHERE state = 'ended'")?;
        let rows = over.query_map([], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        for row in rows {
            let (job, bytes) = row?;
            let record = postcard::from_bytes(&bytes).map_err(|error| damaged(job, &error))?;
            if let Some(account) = account_of(&record) {
                insert(&transaction, &account)?;
            }
        }
    }
    Ok(transaction.commit()?)
}

/// Adds columns to a table that was made by an earlier build, which did not know of them.
fn add_columns(connection: &Connection) -> Result<(), TableError> {
    for column in ["held_before_us", "spent_us"] {
        if !connection.column_exists(None, "usage", column)? {
            connection.execute_batch(&format!(
                "ALTER TABLE usage ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0"
            ))?;
        }
    }
    Ok(())
}

/// What users spent of their shares before now, as far as it counts yet. What ended about the same time is taken together, so
/// that there are few however many jobs there were.
pub(super) fn spent(
    connection: &Connection,
    half_life_ms: u64,
    now_ms: u64,
) -> Result<Vec<SpentBefore>, TableError> {
    let together = (half_life_ms / SPANS_OF_HALF_LIFE).max(1);
    let since = now_ms.saturating_sub(half_life_ms.saturating_mul(HALF_LIVES));
    let mut select = connection.prepare(
        "SELECT uid, max(user), max(ended_ms), CAST(total(spent_us) AS INTEGER) FROM usage
             WHERE ended_ms >= ?1 AND spent_us > 0 GROUP BY uid, ended_ms / ?2",
    )?;
    let mut rows = select.query(params![stored(since), stored(together)])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        all.push(SpentBefore {
            uid: row.get(0)?,
            user: row.get(1)?,
            at_ms: count(row.get(2)?),
            spent_us: count(row.get(3)?),
        });
    }
    Ok(all)
}

/// The account of a job, if it is over.
pub(in crate::head) fn account_of(record: &JobRecord) -> Option<JobUsage> {
    let is_over = matches!(record.state, JobState::Ended(_));
    is_over.then(|| JobUsage::of(record, record.used))
}

/// Writes an account, if the time is known when its job ended.
pub(super) fn insert(transaction: &Transaction<'_>, usage: &JobUsage) -> Result<(), TableError> {
    let Some(ended) = usage.ended_ms else { return Ok(()) };
    let JobUse { processors, measured, nodes, held_before_us, spent_us } = usage.used;
    let mut insert = transaction.prepare_cached(&format!(
        "INSERT OR REPLACE INTO usage ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)"
    ))?;
    insert.execute(params![
        number(usage.job),
        usage.uid,
        usage.user,
        usage.name,
        usage.ranks,
        usage.nodes,
        processors,
        stored(usage.submitted_ms),
        usage.started_ms.map(stored),
        stored(ended),
        stored(measured.turns_us),
        stored(measured.used_us),
        measured.memory.map(stored),
        nodes,
        usage.outcome,
        stored(held_before_us),
        stored(spent_us),
    ])?;
    Ok(())
}

impl JobTable {
    /// Writes these accounts, in one step.
    ///
    /// # Errors
    /// When they cannot be written; then none of them is.
    pub(in crate::head) fn add_accounts(
        &mut self,
        accounts: impl IntoIterator<Item = impl Borrow<JobUsage>>,
    ) -> Result<(), TableError> {
        let mut accounts = accounts.into_iter().peekable();
        if accounts.peek().is_none() {
            return Ok(());
        }
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for account in accounts {
            insert(&transaction, account.borrow())?;
        }
        Ok(transaction.commit()?)
    }

    /// How many accounts there are.
    #[cfg(test)]
    pub(in crate::head) fn count_accounts(&self) -> i64 {
        let count = "SELECT count(*) FROM usage";
        self.connection.query_row(count, [], |row| row.get(0)).unwrap()
    }
}

/// Removes accounts that are too old or too many, now and then.
pub(super) fn trim(
    connection: &mut Connection,
    (last, keep): (&mut UsageTrim, UsageRetention),
    now_ms: u64,
) -> Result<(), TableError> {
    if last.0.is_some_and(|last| last.elapsed() < TRIM) {
        return Ok(());
    }
    last.0 = Some(Instant::now());
    let oldest = now_ms.saturating_sub(keep.age_ms);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("DELETE FROM usage WHERE ended_ms < ?1", params![stored(oldest)])?;
    transaction.execute(
        "DELETE FROM usage WHERE job IN (SELECT job FROM usage ORDER BY ended_ms DESC, job DESC LIMIT -1 OFFSET ?1)",
        params![stored(keep.jobs)],
    )?;
    Ok(transaction.commit()?)
}

/// Adds the accounts that a query may concern, but those of jobs that `counted` says. The table may be written meanwhile.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read(
    path: &Path,
    query: &UsageQuery,
    tally: &mut UsageTally,
    counted: impl Fn(JobId) -> bool,
) -> Result<(), TableError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // Pages of jobs are read from their ends, which for large tables is all that makes them quick.
    let by_job = query.by == UsageBy::Job;
    let before = query.before.filter(|_| by_job).map_or(i64::MAX, stored);
    let order = if by_job { "ORDER BY job DESC" } else { "" };
    let mut select = connection.prepare(&format!(
        "SELECT {COLUMNS} FROM usage WHERE max(ended_ms, ifnull(started_ms, 0)) >= ?1 AND submitted_ms < ?2 AND job < ?3 {order}"
    ))?;
    let period = params![stored(query.since_ms), stored(query.until_ms), before];
    let mut rows = select.query(period)?;
    while let Some(row) = rows.next()? {
        let usage = usage_of(row)?;
        if by_job && tally.has_passed(usage.job.0) {
            break;
        }
        if !counted(usage.job) {
            tally.add(&usage);
        }
    }
    Ok(())
}

fn usage_of(row: &Row<'_>) -> Result<JobUsage, TableError> {
    let job: i64 = row.get(0)?;
    let count = |value: i64| {
        u64::try_from(value).map_err(|_| damaged(job, &"its account has a negative number"))
    };
    let some = |value: Option<i64>| value.map(count).transpose();
    Ok(JobUsage {
        job: JobId(count(job)?),
        uid: row.get(1)?,
        user: row.get(2)?,
        name: row.get(3)?,
        ranks: row.get(4)?,
        nodes: row.get(5)?,
        submitted_ms: count(row.get(7)?)?,
        started_ms: some(row.get(8)?)?,
        ended_ms: Some(count(row.get(9)?)?),
        used: JobUse {
            processors: row.get(6)?,
            measured: PartUse {
                turns_us: count(row.get(10)?)?,
                used_us: count(row.get(11)?)?,
                memory: some(row.get(12)?)?,
            },
            nodes: row.get(13)?,
            held_before_us: count(row.get(15)?)?,
            spent_us: count(row.get(16)?)?,
        },
        outcome: row.get(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;
    use kumi_control::head::ShowOthers;
    use kumi_control::message::{Outcome, UsageRow, User};
    use kumi_control::usage::UsageViewer;
    use std::collections::BTreeSet;

    const DAY: u64 = 86_400_000;

    /// A job of user 1 that had two processors for a second, and ended at a time.
    fn over(job: u64, ended_ms: u64) -> JobRecord {
        let mut record = record(job, JobState::Ended(Outcome::Success));
        record.started_ms = Some(ended_ms - 1_000);
        record.ended_ms = Some(ended_ms);
        let measured = PartUse { turns_us: 7, used_us: job, memory: Some(9) };
        record.used = JobUse {
            processors: 2,
            measured,
            nodes: 0,
            held_before_us: 500_000,
            spent_us: 1_000 * job,
        };
        record
    }

    fn rows(path: &Path, by: UsageBy, counted: &[u64]) -> Vec<UsageRow> {
        let query = UsageQuery { by, until_ms: u64::MAX, limit: 3, ..UsageQuery::default() };
        let user = User { uid: 1, gid: 1, name: String::new() };
        let viewer = UsageViewer { user, owns_cluster: false, show: ShowOthers::Nothing };
        let mut tally = UsageTally::new(query.clone(), viewer, 0);
        read(path, &query, &mut tally, |job| counted.contains(&job.0)).unwrap();
        tally.finish().rows
    }

    #[test]
    fn a_job_is_accounted_for_once_and_stays_when_its_record_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let mut table = JobTable::open(&path).unwrap();
        table.persist(&[over(1, DAY), record(2, JobState::Running)]).unwrap();
        // The record is written again, as when less of its output is kept.
        table.persist(&[over(1, DAY), over(3, DAY)]).unwrap();
        table.remove(&BTreeSet::from([JobId(1), JobId(2)])).unwrap();
        drop(table);
        let table = JobTable::open(&path).unwrap();
        let [user] = &rows(&path, UsageBy::User, &[])[..] else { panic!() };
        assert_eq!((user.sums.ended, user.sums.used_us, user.sums.held_us), (2, 4, 5_000_000));
        let [job] = &rows(&path, UsageBy::Job, &[3])[..] else { panic!() };
        let expected = JobUsage::of(&over(1, DAY), over(1, DAY).used);
        assert_eq!(job.job.as_ref(), Some(&expected), "all of it comes back");
        drop(table);
    }

    #[test]
    fn what_users_spent_is_summed_up_and_a_table_without_it_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let mut table = JobTable::open(&path).unwrap();
        // Half-lives of 64 days: what ended on one day is taken together.
        table.persist(&[over(1, DAY), over(2, DAY + 1), over(3, 9 * DAY)]).unwrap();
        let spent = table.spent(64 * DAY, 10 * DAY).unwrap();
        let found: Vec<_> = spent.iter().map(|of| (of.uid, of.at_ms, of.spent_us)).collect();
        assert_eq!(found, [(1, DAY + 1, 3_000), (1, 9 * DAY, 3_000)]);
        assert_eq!(spent[0].user, "u");
        assert_eq!(table.spent(DAY / 20, 10 * DAY + 1).unwrap(), [], "long ago");
        table.connection.execute_batch("ALTER TABLE usage DROP COLUMN spent_us").unwrap();
        drop(table);
        let mut table = JobTable::open(&path).unwrap();
        assert_eq!(table.spent(DAY, 10 * DAY).unwrap(), []);
        table.persist(&[over(4, 9 * DAY)]).unwrap();
        assert_eq!(table.spent(DAY, 10 * DAY).unwrap().len(), 1);
    }

    #[test]
    fn the_newest_jobs_are_on_the_first_page() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let mut table = JobTable::open(&path).unwrap();
        let records: Vec<_> = (1..=9).map(|job| over(job, DAY)).collect();
        table.persist(&records).unwrap();
        let keys: Vec<u64> = rows(&path, UsageBy::Job, &[8]).iter().map(|row| row.key).collect();
        assert_eq!(keys, [6, 7, 9]);
    }

    #[test]
    fn old_accounts_go_and_those_that_are_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let mut table = JobTable::open(&path).unwrap();
        let records: Vec<_> = (1..=5).map(|job| over(job, job * DAY)).collect();
        table.persist(&records).unwrap();
        let left = |keep, table: &mut JobTable| -> Vec<u64> {
            trim(&mut table.connection, (&mut UsageTrim::default(), keep), 6 * DAY).unwrap();
            rows(&path, UsageBy::Job, &[]).iter().map(|row| row.key).collect()
        };
        let keep = UsageRetention { age_ms: 4 * DAY, jobs: 9 };
        assert_eq!(left(keep, &mut table), [3, 4, 5], "job 2 ended four days ago");
        assert_eq!(rows(&path, UsageBy::User, &[])[0].sums.ended, 4);
        assert_eq!(left(UsageRetention { jobs: 2, ..keep }, &mut table), [4, 5]);
    }

    #[test]
    fn jobs_of_a_table_without_accounts_get_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let mut table = JobTable::open(&path).unwrap();
        table.persist(&[over(1, DAY), record(2, JobState::Queued)]).unwrap();
        table.connection.execute_batch("DROP TABLE usage").unwrap();
        drop(table);
        let _table = JobTable::open(&path).unwrap();
        assert_eq!(rows(&path, UsageBy::User, &[])[0].sums.ended, 1);
    }
}
