//! What a metaserver keeps for the next: calls that are placed and not over, what calls took, and paths. SQLite, written
//! through; what the last moment wrote may be lost with the machine's power, but not with the process.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kumi_rpc::Ticket;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::paths::Estimate;

/// Layout of the tables.
const SCHEMA: i64 = 1;
/// Calls of a routine on a server that are remembered.
const WINDOW: i64 = 24;
/// Routines on servers that are remembered.
const MOST_TIMES: i64 = 16_384 * WINDOW;
/// How long to wait for another who has the file open.
const BUSY: Duration = Duration::from_secs(5);

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS placed (call INTEGER PRIMARY KEY, key0 INTEGER, key1 INTEGER, attempt INTEGER,
    identity TEXT, address TEXT, server TEXT, routine TEXT, hash INTEGER, user TEXT, site TEXT, bytes_out INTEGER,
    bytes_back INTEGER, operations REAL, idempotent INTEGER, priority INTEGER, until INTEGER);
CREATE TABLE IF NOT EXISTS times (identity TEXT, routine TEXT, turn INTEGER, size REAL, seconds REAL,
    PRIMARY KEY (identity, routine, turn));
CREATE TABLE IF NOT EXISTS paths (site_from TEXT, site_to TEXT, out REAL, back REAL, latency REAL, calls INTEGER,
    PRIMARY KEY (site_from, site_to));
";

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite says no.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// Its file cannot be made.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Another version of Kumi made it.
    #[error(
        "it was made by another version (layout {0}, this is {SCHEMA}); remove it, or use that version"
    )]
    Version(i64),
}

/// A call that is placed and not over.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedCall {
    pub ticket: Ticket,
    pub key: (u64, u64),
    /// Name and address of the server, by which it is known again.
    pub identity: String,
    pub address: String,
    pub server: String,
    pub routine: String,
    pub hash: u64,
    pub user: String,
    pub site: String,
    pub bytes_out: u64,
    pub bytes_back: u64,
    pub operations: Option<f64>,
    pub idempotent: bool,
    pub priority: u8,
    /// When it must be over, milliseconds since 1970.
    pub until: Option<u64>,
}

/// The open file.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

fn signed(number: u64) -> i64 {
    number.cast_signed()
}

fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(at)?.cast_unsigned())
}

impl Store {
    /// Opens it, or makes it, readable by its owner only.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version != 0 && version != SCHEMA {
            return Err(StoreError::Version(version));
        }
        connection.execute_batch(TABLES)?;
        connection.pragma_update(None, "user_version", SCHEMA)?;
        Ok(Store { connection, path: path.to_owned() })
    }

    /// Tells of what could not be written: the metaserver goes on, and its successor knows less.
    fn written(&self, result: rusqlite::Result<usize>) {
        if let Err(error) = result {
            tracing::error!(path = %self.path.display(), %error, "the state could not be written");
        }
    }

    fn run(&self, sql: &str, values: impl rusqlite::Params) {
        let statement = self.connection.prepare_cached(sql);
        self.written(statement.and_then(|mut statement| statement.execute(values)));
    }

    /// A call is placed, perhaps again.
    pub fn placed(&self, call: &PlacedCall) {
        self.run(
            "INSERT OR REPLACE INTO placed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            ],
        );
    }

    /// A call is over.
    pub fn over(&self, call: u64) {
        self.run("DELETE FROM placed WHERE call = ?", params![signed(call)]);
    }

    /// A call of a routine (as the broker names it) of this size took so long.
    pub fn took(&self, identity: &str, routine: &str, turn: u64, size: f64, seconds: f64) {
        let turn = signed(turn) % WINDOW;
        let sql = "INSERT OR REPLACE INTO times VALUES (?, ?, ?, ?, ?)";
        self.run(sql, params![identity, routine, turn, size, seconds]);
    }

    /// A path was measured.
    pub fn path(&self, from: &str, to: &str, estimate: &Estimate) {
        let Estimate { out, back, latency, calls } = *estimate;
        let sql = "INSERT OR REPLACE INTO paths VALUES (?, ?, ?, ?, ?, ?)";
        self.run(sql, params![from, to, out, back, latency, signed(calls)]);
    }

    /// Forgets the oldest times if there are too many.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn tidy(&self) -> Result<(), StoreError> {
        let sql = "DELETE FROM times WHERE rowid IN
            (SELECT rowid FROM times ORDER BY rowid DESC LIMIT -1 OFFSET ?)";
        self.connection.execute(sql, params![MOST_TIMES])?;
        Ok(())
    }

    /// Calls that were placed and not over, in the order of their numbers.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn calls(&self) -> Result<Vec<PlacedCall>, StoreError> {
        let mut statement = self.connection.prepare("SELECT * FROM placed ORDER BY call")?;
        let calls = statement.query_map([], |row| {
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
            })
        })?;
        Ok(calls.collect::<Result<_, _>>()?)
    }

    /// What calls took on a server: routine, size and seconds.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn times(&self, identity: &str) -> Result<Vec<(String, f64, f64)>, StoreError> {
        let sql = "SELECT routine, size, seconds FROM times WHERE identity = ? ORDER BY rowid";
        let mut statement = self.connection.prepare(sql)?;
        let times =
            statement.query_map([identity], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(times.collect::<Result<_, _>>()?)
    }

    /// All paths.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn paths(&self) -> Result<Vec<(String, String, Estimate)>, StoreError> {
        let mut statement = self.connection.prepare("SELECT * FROM paths")?;
        let paths = statement.query_map([], |row| {
            let calls = row.get::<_, i64>(5)?.cast_unsigned();
            let (out, back, latency) = (row.get(2)?, row.get(3)?, row.get(4)?);
            Ok((row.get(0)?, row.get(1)?, Estimate { out, back, latency, calls }))
        })?;
        Ok(paths.collect::<Result<_, _>>()?)
    }

    /// The highest number of a call that was ever noted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn highest(&self) -> Result<u64, StoreError> {
        let sql = "SELECT call FROM placed ORDER BY call DESC LIMIT 1";
        let highest: Option<i64> =
            self.connection.query_row(sql, [], |row| row.get(0)).optional()?;
        Ok(highest.map_or(0, i64::cast_unsigned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_there_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("meta.db");
        let call = PlacedCall {
            ticket: Ticket { call: 7 << 32, attempt: 2 },
            key: (u64::MAX, 1),
            identity: "a h:1".into(),
            address: "h:1".into(),
            server: "a".into(),
            routine: "f".into(),
            hash: u64::MAX - 1,
            user: "u".into(),
            site: "s".into(),
            bytes_out: 1,
            bytes_back: 2,
            operations: Some(3.0),
            idempotent: true,
            priority: 4,
            until: None,
        };
        {
            let store = Store::open(&path).expect("a file");
            store.placed(&call);
            store.placed(&PlacedCall { ticket: Ticket { call: 1, attempt: 1 }, ..call.clone() });
            store.over(1);
            (0..30).for_each(|turn| store.took("a h:1", "f 0", turn, turn as f64, 1.0));
            let estimate = Estimate { out: 1.0, back: 2.0, latency: 3.0, calls: 4 };
            store.path("s", "t", &estimate);
            store.tidy().expect("tidy");
        }
        let store = Store::open(&path).expect("the file");
        assert_eq!(store.calls().expect("calls"), [call]);
        assert_eq!(store.highest().expect("a number"), 7 << 32);
        let times = store.times("a h:1").expect("times");
        assert_eq!(times.len(), 24);
        assert_eq!(times.last(), Some(&("f 0".to_owned(), 29.0, 1.0)));
        assert_eq!(store.paths().expect("paths").len(), 1);
        store.connection.pragma_update(None, "user_version", 9).expect("set");
        drop(store);
        assert!(matches!(Store::open(&path), Err(StoreError::Version(9))));
    }
}
