//! What the monitor gets of a node, several times a second: counts that only rise, and the slices since the last time.

use alloc::vec::Vec;

use kumi_sched::{ClusterTime, JobId};
use serde::{Deserialize, Serialize};

/// Most slices in a sample. Of more only the last are told.
pub const MOST_SLICES: usize = 256;

/// Load of a node's ranks. All counts begin with the daemon, or with the job, and any number of readers take differences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadSample {
    /// Jobs with ranks here.
    pub jobs: Vec<JobLoad>,
    /// Switches made.
    pub switches: u64,
    /// Nanoseconds that they took.
    pub switch_ns: u64,
    /// The machine, as its kernel tells of it; measured each second.
    pub machine: MachineSample,
    /// The last slices that began, ascending, if they were asked for.
    pub slices: Vec<SliceBegin>,
}

/// Use of a node's machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSample {
    /// Share of the node's processors' time that was used, by whatever: 0 to 1000.
    pub busy_permille: u16,
    /// Memory in use, and in all, in KiB; 0 in all if it is not known.
    pub memory_kib: [u64; 2],
    /// Bytes that its network interfaces sent and received in a second.
    pub network_bytes: u64,
}

/// A job's looks on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLoad {
    /// The job.
    pub job: JobId,
    /// Its lowest rank here.
    pub first: u32,
    /// Looks in which its ranks could run.
    pub turns: u64,
    /// Of these, for each rank, those in which it had something to do.
    pub busy: Vec<u64>,
}

/// When the jobs of a slot had their turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceBegin {
    /// When it began, by the node's estimate.
    pub at: ClusterTime,
    /// Whose turn it was, on all processors of the node together.
    pub jobs: Vec<JobId>,
}
