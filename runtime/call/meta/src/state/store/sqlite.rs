//! Store in a file of SQLite. Each note is written through. A power failure may lose the last moment; the end
//! of the process loses nothing.

#[cfg(test)]
mod tests;

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kumi_rpc::Ticket;
use rusqlite::{Connection, Row, params};

use super::{MOST_WINDOWS, PlacedCall, Store, StoreError, WINDOW};
use crate::paths::Estimate;

/// Version of the tables.
pub const SCHEMA: i64 = 2;
/// How long to wait for another process that has locked the file.
const BUSY: Duration = Duration::from_secs(5);

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS placed (call INTEGER PRIMARY KEY, key0 INTEGER, key1 INTEGER, attempt INTEGER,
    identity TEXT, address TEXT, server TEXT, routine TEXT, hash INTEGER, user TEXT, site TEXT, bytes_out INTEGER,
    bytes_back INTEGER, operations REAL, idempotent INTEGER, priority INTEGER, until INTEGER,
    bound INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS times (identity TEXT, routine TEXT, turn INTEGER, size REAL, seconds REAL,
    PRIMARY KEY (identity, routine, turn));
CREATE TABLE IF NOT EXISTS paths (site_from TEXT, site_to TEXT, out REAL, back REAL, latency REAL, calls INTEGER,
    PRIMARY KEY (site_from, site_to));
CREATE TABLE IF NOT EXISTS owners (identity TEXT PRIMARY KEY, user TEXT);
";

/// From tables of version 1, whose calls are bound to no server.
const FROM_1: &str = "ALTER TABLE placed ADD COLUMN bound INTEGER NOT NULL DEFAULT 0";

/// The open file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    noted: u64,
    /// The last write failed, and that was told.
    failing: bool,
}

fn signed(number: u64) -> i64 {
    number.cast_signed()
}

fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(at)?.cast_unsigned())
}

impl SqliteStore {
    /// Opens the file, or creates it readable only by its owner.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        match version {
            0 | SCHEMA => {}
            1 => connection.execute_batch(&format!(
                "BEGIN; {FROM_1}; PRAGMA user_version = {SCHEMA}; COMMIT"
            ))?,
            other => return Err(StoreError::Version(other)),
        }
        connection.execute_batch(TABLES)?;
        connection.pragma_update(None, "user_version", SCHEMA)?;
        let file = SqliteStore { connection, path: path.to_owned(), noted: 0, failing: false };
        file.tidy()?;
        Ok(file)
    }

    /// Logs that writes fail, and that they do no more. The metaserver goes on, and its successor knows less.
    fn written(&mut self, result: &rusqlite::Result<usize>) {
        let path = self.path.display();
        match result {
            Err(error) if !self.failing => {
                tracing::error!(%path, %error, "the state cannot be written: make room there, or look at the disk; a metaserver that is started again does not know of calls from now on");
            }
            Ok(_) if self.failing => tracing::info!(%path, "the state is written again"),
            _ => {}
        }
        self.failing = result.is_err();
    }

    fn run(&mut self, sql: &str, values: impl rusqlite::Params) {
        let statement = self.connection.prepare_cached(sql);
        let written = statement.and_then(|mut statement| statement.execute(values));
        self.written(&written);
    }

    fn rows<T>(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map(values, read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Forgets the oldest times beyond the limit.
    fn tidy(&self) -> Result<(), StoreError> {
        let sql = "DELETE FROM times WHERE rowid IN
            (SELECT rowid FROM times ORDER BY rowid DESC LIMIT -1 OFFSET ?)";
        self.connection.execute(sql, params![(MOST_WINDOWS * WINDOW) as i64])?;
        Ok(())
    }
}

impl Store for SqliteStore {
    fn placed(&mut self, call: &PlacedCall) {
        self.noted += 1;
        self.run(
            "INSERT OR REPLACE INTO placed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                signed(call.ticket.call),
                signed(call.key.0),
                signed(call.key.1),
                call.ticket.attempt,
                call.identity,
                call.address,
                call.server,
                call.routine,
                signed(call.hash),
                call.user,
                call.site,
                signed(call.bytes_out),
                signed(call.bytes_back),
                call.operations,
                call.idempotent,
                call.priority,
                call.until.map(signed),
                call.bound,
            ],
        );
    }

    fn over(&mut self, call: u64) {
        self.noted += 1;
        self.run("DELETE FROM placed WHERE call = ?", params![signed(call)]);
    }

    fn took(&mut self, identity: &str, routine: &str, size: f64, seconds: f64) {
        self.noted += 1;
        let sql = "INSERT INTO times VALUES (?1, ?2, (SELECT coalesce(max(turn), 0) + 1 FROM times
            WHERE identity = ?1 AND routine = ?2), ?3, ?4)";
        self.run(sql, params![identity, routine, size, seconds]);
        let sql = "DELETE FROM times WHERE identity = ?1 AND routine = ?2 AND turn <=
            (SELECT max(turn) FROM times WHERE identity = ?1 AND routine = ?2) - ?3";
        self.run(sql, params![identity, routine, WINDOW as i64]);
    }

    fn path(&mut self, from: &str, to: &str, estimate: Option<&Estimate>) {
        self.noted += 1;
        let Some(&Estimate { out, back, latency, calls }) = estimate else {
            let sql = "DELETE FROM paths WHERE site_from = ? AND site_to = ?";
            return self.run(sql, params![from, to]);
        };
        let sql = "INSERT OR REPLACE INTO paths VALUES (?, ?, ?, ?, ?, ?)";
        self.run(sql, params![from, to, out, back, latency, signed(calls)]);
    }

    fn owner(&mut self, identity: &str, user: Option<&str>) {
        self.noted += 1;
        if let Some(user) = user {
            self.run("INSERT OR REPLACE INTO owners VALUES (?, ?)", params![identity, user]);
        } else {
            self.run("DELETE FROM owners WHERE identity = ?", params![identity]);
        }
    }

    fn noted(&self) -> u64 {
        self.noted
    }

    /// All notes count as kept: a failed write is logged, and the metaserver goes on.
    fn kept(&self) -> u64 {
        self.noted
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    fn calls(&self) -> Result<Vec<PlacedCall>, StoreError> {
        self.rows("SELECT * FROM placed ORDER BY call", [], |row| {
            Ok(PlacedCall {
                ticket: Ticket { call: number(row, 0)?, attempt: row.get(3)? },
                key: (number(row, 1)?, number(row, 2)?),
                identity: row.get(4)?,
                address: row.get(5)?,
                server: row.get(6)?,
                routine: row.get(7)?,
                hash: number(row, 8)?,
                user: row.get(9)?,
                site: row.get(10)?,
                bytes_out: number(row, 11)?,
                bytes_back: number(row, 12)?,
                operations: row.get(13)?,
                idempotent: row.get(14)?,
                priority: row.get(15)?,
                until: row.get::<_, Option<i64>>(16)?.map(i64::cast_unsigned),
                bound: row.get(17)?,
            })
        })
    }

    fn owners(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.rows("SELECT identity, user FROM owners", [], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn times(&self, identity: &str) -> Result<Vec<(String, f64, f64)>, StoreError> {
        let sql =
            "SELECT routine, size, seconds FROM times WHERE identity = ? ORDER BY routine, turn";
        self.rows(sql, [identity], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }

    fn paths(&self) -> Result<Vec<(String, String, Estimate)>, StoreError> {
        self.rows("SELECT * FROM paths ORDER BY rowid", [], |row| {
            let (out, back, latency, calls) =
                (row.get(2)?, row.get(3)?, row.get(4)?, number(row, 5)?);
            Ok((row.get(0)?, row.get(1)?, Estimate { out, back, latency, calls }))
        })
    }
}
