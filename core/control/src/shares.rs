//! Fair shares of users: how the head reckons them, and as clients see them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::ShareRules;
use serde::{Deserialize, Serialize};

/// How the head reckons fair shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareConfig {
    /// How what was spent is forgotten, and how long jobs may be overtaken.
    pub rules: ShareRules,
    /// Weights of users, in thousandths, by name or number; others have [`kumi_sched::ORDINARY_WEIGHT`].
    pub weights: BTreeMap<String, u32>,
    /// What users spent before this head began.
    pub spent: Vec<SpentBefore>,
}

/// What jobs of a user that were over at a time had spent, from their accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpentBefore {
    /// The user's number.
    pub uid: u32,
    /// The user's name; empty if there is none.
    pub user: String,
    /// Microseconds of a processor at a price of 1.
    pub spent_us: u64,
    /// When, in milliseconds since the epoch.
    pub at_ms: u64,
}

/// The shares of all users whom the asker may see, those first whose jobs come first. All whom the asker may not know are one
/// row, the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharesReport {
    /// Half of what was spent is forgotten in this time, in nanoseconds.
    pub half_life_ns: u64,
    /// Jobs that have waited for so long are overtaken by none, in nanoseconds.
    pub overtaken_ns: u64,
    /// Users who have spent anything or have jobs.
    pub users: Vec<SharesRow>,
}

/// One user, or all whom the asker may not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharesRow {
    /// The user's number; `u32::MAX` for those whom the asker may not know.
    pub uid: u32,
    /// The user's name; empty if it has none or may not be known.
    pub user: String,
    /// The weight in thousandths.
    pub weight: u32,
    /// What was spent and is not forgotten, in microseconds of a processor at a price of 1.
    pub spent_us: u64,
    /// Jobs that wait in the queue.
    pub waiting: u32,
    /// Jobs that have nodes.
    pub placed: u32,
}
