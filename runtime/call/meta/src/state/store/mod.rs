//! Store of a metaserver for its successor: placed calls, times of calls, and paths. One metaserver uses a
//! file (`sqlite`), several use etcd (`super::etcd`).

#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(all(test, any(feature = "sqlite", feature = "etcd")))]
pub mod tests;

use std::fmt;
#[cfg(feature = "sqlite")]
use std::io;

use kumi_rpc::Ticket;
use serde::{Deserialize, Serialize};

use super::super::paths::Estimate;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;

/// Remembered calls of a routine on a server.
pub const WINDOW: usize = 24;
/// Remembered routines on servers.
pub const MOST_WINDOWS: usize = 16_384;

/// Why the stored state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite reports an error.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The file cannot be created.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    File(#[from] io::Error),
    /// Another version of Kumi made the file.
    #[cfg(feature = "sqlite")]
    #[error(
        "it was made by another version of Kumi (layout {0}, expected {expected}); remove it, or use that version",
        expected = sqlite::SCHEMA
    )]
    Version(i64),
}

/// A call that is placed and not over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacedCall {
    #[serde(with = "ticket")]
    pub ticket: Ticket,
    pub key: (u64, u64),
    /// Name and address of the server, which identify it.
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
    /// It runs at this server or nowhere. Earlier metaservers did not say it.
    #[serde(default)]
    pub bound: bool,
    pub priority: u8,
    /// Its deadline, in milliseconds since 1970.
    pub until: Option<u64>,
}

/// A ticket as its two numbers.
mod ticket {
    use kumi_rpc::Ticket;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(ticket: &Ticket, to: S) -> Result<S::Ok, S::Error> {
        (ticket.call, ticket.attempt).serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Ticket, D::Error> {
        let (call, attempt) = Deserialize::deserialize(from)?;
        Ok(Ticket { call, attempt })
    }
}

/// A store. Notes return at once and are numbered from 1. A client is told its place when the note of that is
/// [`Store::kept`].
pub trait Store: fmt::Debug {
    /// A call is placed, perhaps again.
    fn placed(&mut self, call: &PlacedCall);

    /// A call is over.
    fn over(&mut self, call: u64);

    /// A call of a routine (by the broker's name) of this size took this many seconds. The last [`WINDOW`]
    /// are kept.
    fn took(&mut self, identity: &str, routine: &str, size: f64, seconds: f64);

    /// A path was measured. `None`: it was forgotten.
    fn path(&mut self, from: &str, to: &str, estimate: Option<&Estimate>);

    /// The owner of this server. `None`: it has none any more.
    fn owner(&mut self, identity: &str, user: Option<&str>);

    /// The number of the last note.
    fn noted(&self) -> u64;

    /// Notes up to this number are safe, even if this process ends now.
    fn kept(&self) -> u64;

    /// Why notes are overdue.
    fn trouble(&self) -> Option<String>;

    /// Calls that were placed and not over when this was opened, by number.
    ///
    /// # Errors
    /// [`StoreError`].
    fn calls(&self) -> Result<Vec<PlacedCall>, StoreError>;

    /// Servers and their owners, in any order.
    ///
    /// # Errors
    /// [`StoreError`].
    fn owners(&self) -> Result<Vec<(String, String)>, StoreError>;

    /// Times of calls on a server: routine, size and seconds. The latest of each routine is the last.
    ///
    /// # Errors
    /// [`StoreError`].
    fn times(&self, identity: &str) -> Result<Vec<(String, f64, f64)>, StoreError>;

    /// All paths. The latest are the last, except among those written together.
    ///
    /// # Errors
    /// [`StoreError`].
    fn paths(&self) -> Result<Vec<(String, String, Estimate)>, StoreError>;
}
