//! What a metaserver keeps for the next: calls that are placed and not over, what calls took, and paths. One metaserver
//! keeps it in a file (`sqlite`), several in etcd (`super::etcd`).

mod sqlite;
#[cfg(test)]
pub mod tests;

use std::fmt;
use std::io;

use kumi_rpc::Ticket;
use serde::{Deserialize, Serialize};

use super::etcd::EtcdError;
use super::paths::Estimate;
pub use sqlite::SqliteStore;

/// Calls of a routine on a server that are remembered.
pub const WINDOW: usize = 24;
/// Routines on servers that are remembered.
pub const MOST_WINDOWS: usize = 16_384;

/// Why a state cannot be used.
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
        "it was made by another version (layout {0}, this is {expected}); remove it, or use that version",
        expected = sqlite::SCHEMA
    )]
    Version(i64),
    /// etcd says no, or does not answer.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

/// A call that is placed and not over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacedCall {
    #[serde(with = "ticket")]
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

/// Where it is kept. Notes are taken without waiting, and are numbered from 1: a call's client is told of its place when
/// the note of that is [`Store::kept`].
pub trait Store: fmt::Debug {
    /// A call is placed, perhaps again.
    fn placed(&mut self, call: &PlacedCall);

    /// A call is over.
    fn over(&mut self, call: u64);

    /// A call of a routine (as the broker names it) of this size took so many seconds. The last [`WINDOW`] are kept.
    fn took(&mut self, identity: &str, routine: &str, size: f64, seconds: f64);

    /// A path was measured; `None`: it was forgotten.
    fn path(&mut self, from: &str, to: &str, estimate: Option<&Estimate>);

    /// Whose server this is; `None`: nobody's any more.
    fn owner(&mut self, identity: &str, user: Option<&str>);

    /// The number of the last note.
    fn noted(&self) -> u64;

    /// Notes up to this number are kept, even if this process ends now.
    fn kept(&self) -> u64;

    /// Why notes are not kept though they should have been by now.
    fn trouble(&self) -> Option<String>;

    /// Calls that were placed and not over when this was opened, in the order of their numbers.
    ///
    /// # Errors
    /// [`StoreError`].
    fn calls(&self) -> Result<Vec<PlacedCall>, StoreError>;

    /// Servers and whose they are, in any order.
    ///
    /// # Errors
    /// [`StoreError`].
    fn owners(&self) -> Result<Vec<(String, String)>, StoreError>;

    /// What calls took on a server: routine, size and seconds; of each routine the latest is the last.
    ///
    /// # Errors
    /// [`StoreError`].
    fn times(&self, identity: &str) -> Result<Vec<(String, f64, f64)>, StoreError>;

    /// All paths; those that were measured last are the last, but for those that were written together.
    ///
    /// # Errors
    /// [`StoreError`].
    fn paths(&self) -> Result<Vec<(String, String, Estimate)>, StoreError>;
}
