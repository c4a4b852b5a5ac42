//! What a job is submitted with beside its program and resources: limits of time, what it waits for, and arrays of jobs.

use alloc::vec::Vec;

use kumi_sched::JobId;
use serde::{Deserialize, Serialize};

use crate::message::Nanos;

/// How long ranks have to end by themselves, in nanoseconds, unless who ends their job says otherwise.
pub const USUAL_GRACE: Nanos = 10_000_000_000;

/// The longest such time: an hour.
pub const LONGEST_GRACE: Nanos = 3_600_000_000_000;

/// Largest program that a request may carry, in bytes.
pub const MOST_CONTENT: usize = 256 << 10;

/// Most jobs after which a job may run.
pub const MOST_AFTER: usize = 1_000;

/// Most tasks of an array.
pub const MOST_TASKS: u32 = 10_000;

/// Most times that a job asks to be started again.
pub const MOST_REQUEUES: u32 = 1_000;

/// Environment variable that says how often a job was started again.
pub const RESTARTS: &str = "KUMI_RESTARTS";

/// Environment variable with the index of a task of an array.
pub const ARRAY_INDEX: &str = "KUMI_ARRAY_INDEX";

/// When a job may start, and how long it may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchOptions {
    /// Nanoseconds from its start to its end, at most [`crate::message::LONGEST_ESTIMATE`].
    pub time_limit_ns: Option<Nanos>,
    /// Jobs that have to be over before. Of a job that waits these are the ones that are not.
    pub after: Vec<After>,
    /// Its place in an array. The head sets it.
    pub task: Option<ArrayTask>,
    /// Nobody gives it input: it finds its standard input at its end. The head says so of jobs that clients do not follow.
    pub detached: bool,
    /// The program itself, at most [`MOST_CONTENT`] bytes, for clients that do not stay to send it.
    pub content: Option<Vec<u8>>,
    /// How often it is started again at most, if a node is lost or the head is away. At most [`MOST_REQUEUES`].
    pub requeues: u32,
}

/// A job after which another one may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// That job.
    pub job: JobId,
    /// However it ends. Otherwise it has to succeed.
    pub however: bool,
}

/// A job's place in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayTask {
    /// The first job of the array.
    pub array: JobId,
    /// Its index, which it finds in [`ARRAY_INDEX`].
    pub index: u32,
    /// Most tasks at a time.
    pub most: Option<u32>,
}

/// An array of jobs that differ in an index only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayRange {
    /// First index.
    pub first: u32,
    /// Last index.
    pub last: u32,
    /// Most tasks at a time, at least 1; none: as many as there is room for.
    pub most: Option<u32>,
}

/// An array of jobs with any indices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayIndices {
    /// The indices, ascending: 1 to [`MOST_TASKS`].
    pub indices: Vec<u32>,
    /// Most tasks at a time, at least 1; none: as many as there is room for.
    pub most: Option<u32>,
}

impl ArrayIndices {
    /// The same as a range, if the indices follow one another.
    #[must_use]
    pub fn as_range(&self) -> Option<ArrayRange> {
        let (&first, &last) = (self.indices.first()?, self.indices.last()?);
        let follow = self.indices.iter().copied().eq(first..=last);
        follow.then_some(ArrayRange { first, last, most: self.most })
    }
}

impl From<ArrayRange> for ArrayIndices {
    fn from(range: ArrayRange) -> Self {
        // One too many is enough to refuse it.
        let indices = (range.first..=range.last).take(MOST_TASKS as usize + 1).collect();
        Self { indices, most: range.most }
    }
}

impl ArrayRange {
    /// The number of tasks; 0 if the range is empty.
    pub fn count(&self) -> u32 {
        if self.first > self.last { 0 } else { (self.last - self.first).saturating_add(1) }
    }
}
