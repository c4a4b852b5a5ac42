//! What jobs use: as nodes measure it, as the head accounts for it, and as users ask for it.

mod tally;

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};
use serde::{Deserialize, Serialize};

use crate::message::{JobRecord, JobState, Outcome, User};
pub use tally::{UsageTally, UsageViewer};

/// Most rows of a page.
pub const MOST_USAGE_ROWS: usize = 1_000;
/// Milliseconds of a day.
pub const DAY_MS: u64 = 86_400_000;
/// Most bytes of a job's name that its account keeps.
const LONGEST_NAME: usize = 256;

/// What a job has used on one node since its start, as the node's daemon measures it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartUse {
    /// Processor time of the job's turns: how long they lasted, times its processors there. In microseconds.
    pub turns_us: u64,
    /// Processor time that its processes used, in microseconds.
    pub used_us: u64,
    /// The most memory that they had at a time, in bytes; none if nobody counts it.
    pub memory: Option<u64>,
}

impl PartUse {
    /// Both, one after the other.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        Self { memory: self.memory.max(later.memory), ..self.plus(later) }
    }

    /// What is known from two reports of the same processes, in whatever order they came: use only grows.
    #[must_use]
    pub fn latest(self, other: Self) -> Self {
        Self {
            turns_us: self.turns_us.max(other.turns_us),
            used_us: self.used_us.max(other.used_us),
            memory: self.memory.max(other.memory),
        }
    }

    /// Both together, at the same time.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let memory = match (self.memory, other.memory) {
            (None, None) => None,
            (one, another) => Some(one.unwrap_or(0).saturating_add(another.unwrap_or(0))),
        };
        Self {
            turns_us: self.turns_us.saturating_add(other.turns_us),
            used_us: self.used_us.saturating_add(other.used_us),
            memory,
        }
    }
}

/// What a job has used on nodes so far, or in all once it is over there. A later report replaces an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseReport {
    /// The job.
    pub job: JobId,
    /// By node.
    pub nodes: Vec<(NodeId, PartUse)>,
}

/// What a job has used in all, in its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUse {
    /// Processors that it holds while it has its nodes; 0 before.
    pub processors: u32,
    /// What its nodes have measured, together. The record has that of each start once the start is over.
    pub measured: PartUse,
    /// How many of the nodes of its last start have measured.
    pub nodes: u32,
    /// Processors that its earlier starts held, times how long, in microseconds.
    pub held_before_us: u64,
    /// What it spent of its user's share, less what was forgotten of that until its end: microseconds of a processor at a price
    /// of 1. The record has it once the job no longer has its nodes.
    pub spent_us: u64,
}

/// The account of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUsage {
    /// Its number.
    pub job: JobId,
    /// Its user's number.
    pub uid: u32,
    /// Its user's name; empty if it has none.
    pub user: String,
    /// Its name.
    pub name: String,
    /// Its ranks.
    pub ranks: u32,
    /// Its nodes; 0 if it never had any.
    pub nodes: u32,
    /// Milliseconds since the epoch: when submitted, started and over.
    pub submitted_ms: u64,
    /// When its ranks were started.
    pub started_ms: Option<u64>,
    /// When it was over; none if it is not.
    pub ended_ms: Option<u64>,
    /// Processors, and what was measured.
    pub used: JobUse,
    /// How it ended, as [`Outcome::kind`] says; empty if it has not.
    pub outcome: String,
}

impl JobUsage {
    /// The account of a job that has used so much.
    #[must_use]
    pub fn of(record: &JobRecord, used: JobUse) -> Self {
        let (spec, user) = (&record.spec, &record.spec.user);
        let outcome = match &record.state {
            JobState::Ended(outcome) => outcome.kind(),
            _ => "",
        };
        Self {
            job: spec.job,
            uid: user.uid,
            user: user.name.clone(),
            name: beginning(&spec.request.name, LONGEST_NAME).to_owned(),
            ranks: spec.request.ranks,
            nodes: u32::try_from(spec.layout.len()).unwrap_or(u32::MAX),
            submitted_ms: record.submitted_ms,
            started_ms: record.started_ms,
            ended_ms: record.ended_ms,
            used,
            outcome: outcome.to_owned(),
        }
    }

    /// Its user.
    fn owner(&self) -> User {
        User { uid: self.uid, gid: self.uid, name: self.user.clone() }
    }

    /// From when until when it had its ranks; the end of one that is not over is `now_ms`. A clock that was set back in between
    /// leaves no time. What earlier starts have used counts in that time, too, or if it was not started again, at the end.
    fn span(&self, now_ms: u64) -> Option<(u64, u64)> {
        let end = self.ended_ms.unwrap_or(now_ms);
        let begin = match self.started_ms {
            Some(begin) => begin,
            None if self.used.held_before_us > 0 => end,
            None => return None,
        };
        Some((begin, end.max(begin)))
    }

    /// Whether all of its nodes have measured what it used.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.started_ms.is_none() || self.used.nodes >= self.nodes
    }
}

/// The beginning of a text, of so many bytes at most.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

impl Outcome {
    /// How a job ended, as a word for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RankFailed { .. } => "rank_failed",
            Self::Refused(_) => "refused",
            Self::NodeLost(_) => "node_lost",
            Self::Killed => "killed",
            Self::Deadlocked => "deadlocked",
            Self::TimeLimit(_) => "time_limit",
            Self::HeadAway(_) => "head_away",
        }
    }
}

/// What the rows of a page stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UsageBy {
    /// One user each; the key is the user's number.
    #[default]
    User,
    /// One job each; the key is its number.
    Job,
    /// One day each, in UTC; the key is the number of days since the epoch.
    Day,
}

/// Which use somebody asks for. Of jobs that reach beyond the period only what lies in it is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageQuery {
    /// Only of this user: a name or a number.
    pub user: Option<String>,
    /// From this time on, in milliseconds since the epoch.
    pub since_ms: u64,
    /// Before this time.
    pub until_ms: u64,
    /// What the rows stand for.
    pub by: UsageBy,
    /// Only rows with smaller keys.
    pub before: Option<u64>,
    /// At most so many rows, and at most [`MOST_USAGE_ROWS`].
    pub limit: usize,
}

/// What jobs have used in a period. Sums of periods that follow one another are the sum of the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSums {
    /// Jobs that were over in the period.
    pub ended: u64,
    /// Of these, jobs that did not succeed.
    pub failed: u64,
    /// Jobs that are not over, if the period is not either.
    pub running: u64,
    /// Jobs of which not all nodes have measured: what they used is more than it says.
    pub unmeasured: u64,
    /// Processors that were held, times how long, in microseconds.
    pub held_us: u64,
    /// Processor time of the jobs' turns.
    pub turns_us: u64,
    /// Processor time that their processes used.
    pub used_us: u64,
    /// The most memory that one of the jobs had on all its nodes, in bytes.
    pub memory: u64,
    /// Jobs that were started in the period.
    pub started: u64,
    /// How long these had waited, together, in milliseconds.
    pub waited_ms: u64,
}

/// A row of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// What it stands for, see [`UsageBy`]. The jobs of users whom the asker may not know are together in the row of user
    /// `u32::MAX`.
    pub key: u64,
    /// The user's name, of a row of a user or a job.
    pub user: Option<String>,
    /// The job, of a row of a job.
    pub job: Option<JobUsage>,
    /// What was used.
    pub sums: UsageSums,
}

/// A page of rows, those with the largest keys first asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsagePage {
    /// The rows, by key, ascending.
    pub rows: Vec<UsageRow>,
    /// Whether there are more with smaller keys.
    pub more: bool,
}
