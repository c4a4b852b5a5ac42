//! Events of traced ranks, as the daemon of their node reads them out of the ranks' rings.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Most events in one answer: it has to fit a frame whatever the ranks wrote.
pub const MOST_TRACE_EVENTS: usize = 4_096;

/// A part of a rank's trace. The rank can have written anything there: the values are well-formed, not necessarily true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSample {
    /// The rank.
    pub rank: u32,
    /// Number of the first event that was looked at: larger than asked for if older ones are overwritten.
    pub first: u64,
    /// Number to ask for next.
    pub next: u64,
    /// Events that the rank has begun so far.
    pub begun: u64,
    /// Those from `first` to `next` that are incomplete, overwritten meanwhile or of no known kind.
    pub unreadable: u64,
    /// The others, in the order in which they were recorded.
    pub events: Vec<TraceEvent>,
    /// Cluster time minus the node's monotonic clock, in nanoseconds, as the node estimates it.
    pub clock_offset: i64,
    /// Bytes of a page of shared memory; 0 if the rank has none.
    pub page_bytes: u32,
    /// Allocations of shared memory; only in the answer to a question from number 0 on.
    pub allocations: Vec<TraceAllocation>,
    /// Allocations that were not recorded.
    pub allocations_left_out: u32,
}

/// An allocation of shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceAllocation {
    /// First page.
    pub first: u32,
    /// How many.
    pub pages: u32,
    /// Where it was made, as the rank says.
    pub name: String,
}

/// An event of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// When it began, in nanoseconds on the node's monotonic clock.
    pub time: u64,
    /// How long it took, in nanoseconds.
    pub duration: u64,
    /// What it is.
    pub kind: TraceKind,
    /// The thread of the rank.
    pub thread: u8,
    /// The other rank, if there is one.
    pub peer: Option<u32>,
    /// Number of the page, lock, condition, barrier or message.
    pub object: u32,
    /// Pages, bytes or diffs, as the kind says.
    pub amount: u32,
}

/// What happened: as the kinds of `kumi_net::trace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TraceKind {
    /// Pages came from another node.
    Fetch,
    /// A page was touched of which the node had a new enough copy.
    Found,
    /// Pages that the rank has written since it last released something.
    Written,
    /// Changes of a page were sent home.
    Diff,
    /// The rank waited until its diffs were in place.
    Flush,
    /// A lock was taken.
    Lock,
    /// A lock was given back.
    Unlock,
    /// A barrier with effect on memory.
    Barrier,
    /// A barrier without effect on memory.
    Wait,
    /// A condition was set.
    SetCondition,
    /// A condition was waited for.
    WaitCondition,
    /// Pages became stale at an acquire.
    Stale,
    /// A message of shared memory left.
    Send,
    /// A message of shared memory came.
    Receive,
    /// The program sent a message.
    ProgramSend,
    /// The program received a message.
    ProgramReceive,
}
