//! Disclosure pages: a node's daemon publishes in them what ranks may know of the machine (SSS-CORE
//! paper, §3.2: information disclosure mechanism).
//!
//! There are two kinds of sealed memory files, which the daemon writes and ranks map for reading only:
//!
//! - the node's page, with its jobs and with every node of the cluster;
//! - a job's page for each job on the node, with the job's ranks.
//!
//! Every value is an atomic word, or guarded by a sequence number; reading makes no system call. The
//! layout is here and in docs/reference/channel-protocol.md. Numbers are in the machine's byte order: a
//! page never leaves it.

mod publish;
mod read;
mod turn_table;

use std::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) use publish::page;
pub use publish::{JobPage, JobSlot, NodePage};
pub(crate) use read::PollingAdvice;
pub(crate) use read::map;
pub use read::{DisclosedPages, JobLoad, NodeLoad, RankReport};

/// First eight bytes of a node's page.
pub const NODE_MAGIC: u64 = u64::from_le_bytes(*b"KUMINOD\x01");
/// First eight bytes of a job's page.
pub const JOB_MAGIC: u64 = u64::from_le_bytes(*b"KUMIJOB\x01");
/// Version of both layouts; a rank refuses pages of another one.
pub const PAGES_VERSION: u32 = 2;
/// Most nodes of a cluster and ranks of a job that have a place in a page.
pub const MOST_NODES: u32 = 1 << 16;
/// See [`MOST_NODES`].
pub const MOST_RANKS: u32 = 1 << 20;
/// Jobs of the node that have a slot of their own; the last slot is for all that found none.
pub const JOB_SLOTS: usize = 64;
/// Processors that have a bit in a job's slot.
pub const MOST_PROCESSORS: usize = 1024;

/// Jobs that can have their turns at the same time, each on processors of its own.
pub const MOST_TURNS: usize = MOST_PROCESSORS;
/// [`JobEntry::job`] of the slot of all jobs that have none of their own.
pub const OTHERS: u64 = u64::MAX;

/// Start of a node's page.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct NodeHeader {
    /// [`NODE_MAGIC`].
    pub magic: AtomicU64,
    /// [`PAGES_VERSION`].
    pub version: AtomicU32,
    /// This node.
    pub own: AtomicU32,
    /// Nodes of the cluster.
    pub nodes: AtomicU32,
    /// Processors that ranks may use here.
    pub processors: AtomicU32,
    /// Job slots in use are before this one.
    pub slots: AtomicU32,
    /// Places in use of [`TurnTable`] are before this one. This word and the next are the switching thread's.
    pub turns: AtomicU32,
    /// 1 while the operating system shares the processors among all jobs.
    pub shared: AtomicU32,
    /// 0.
    pub reserved: [AtomicU32; 7],
}

/// Jobs that have their turns now: the number of each plus one, or 0. A job keeps its place as long as it has its turn. Written
/// by the switching thread.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct TurnTable {
    /// The words.
    pub jobs: [AtomicU64; MOST_TURNS],
}

/// A job of the node.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct JobEntry {
    /// The job plus one, [`OTHERS`], or 0 if the slot is free.
    pub job: AtomicU64,
    /// Its ranks here.
    pub ranks: AtomicU32,
    /// Threads that compute, or could if they had the processors.
    pub runnable: AtomicU32,
    /// Bit `p`: one of those is to run on the node's processor number `p`.
    pub runnable_on: [AtomicU64; MOST_PROCESSORS / 64],
}

/// A node of the cluster. Odd `sequence`: being written.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct NodeEntry {
    /// Raised by one before and after each change.
    pub sequence: AtomicU64,
    /// When this was so: microseconds on this machine's monotonic clock; 0: nothing is known.
    pub stamp: AtomicU64,
    /// Processors in the upper half, ranks that compute or could in the lower.
    pub processors_runnable: AtomicU64,
    /// Jobs in the upper half, share of the processors' time that was used (0 to 1000) in the lower.
    pub jobs_busy: AtomicU64,
    /// Memory in use, bytes.
    pub memory_used: AtomicU64,
    /// Memory in all, bytes.
    pub memory_total: AtomicU64,
    /// Bytes that its network interfaces sent and received in a second.
    pub network: AtomicU64,
    /// 0.
    pub reserved: AtomicU64,
}

/// Start of a job's page. A word for each rank follows:
///
/// - upper 40 bits: when the rank was in this state, in milliseconds of this machine's monotonic clock;
///   0 as long as nothing is known;
/// - next 20 bits: the rank's node;
/// - lowest 4 bits: a [`RankState`].
#[repr(C, align(64))]
#[derive(Debug)]
pub struct JobHeader {
    /// [`JOB_MAGIC`].
    pub magic: AtomicU64,
    /// [`PAGES_VERSION`].
    pub version: AtomicU32,
    /// Ranks of the job.
    pub ranks: AtomicU32,
    /// The job.
    pub job: AtomicU64,
    /// 1 while the job is outside the rotation: no slot is its, and it is not stopped.
    pub idle: AtomicU64,
    /// A [`Turn`]. Written by the switching thread.
    pub turn: AtomicU64,
    /// 0.
    pub reserved: [AtomicU64; 3],
}

const _: () = assert!(size_of::<NodeHeader>() == 64 && size_of::<NodeEntry>() == 64);
const _: () = assert!(size_of::<JobEntry>() == 192 && size_of::<JobHeader>() == 64);
const _: () = assert!(size_of::<TurnTable>() == 8_192);
const _: () = assert!(std::mem::offset_of!(NodeHeader, shared) == 32);
const _: () = assert!(std::mem::offset_of!(JobHeader, turn) == 32);
const _: () = assert!(std::mem::offset_of!(JobEntry, runnable_on) == 16);

/// What a job has of its node's processors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Turn {
    /// It is not its turn. It is stopped, or has what others leave idle.
    #[default]
    None = 0,
    /// It is its turn, and nobody else is on its processors.
    Own = 1,
    /// The operating system shares the processors among all jobs.
    Shared = 2,
    /// It is its turn, and others have what it leaves idle.
    Filled = 3,
}

impl Turn {
    fn from_word(word: u64) -> Turn {
        match word {
            1 => Turn::Own,
            2 => Turn::Shared,
            3 => Turn::Filled,
            _ => Turn::None,
        }
    }
}

/// Activity of a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RankState {
    /// Nothing is known; perhaps it has not joined its job yet.
    #[default]
    Unknown = 0,
    /// It computes, or could.
    Running = 1,
    /// It waits for its peers.
    Idle = 2,
    /// It is stopped: another job had its processor, and did not share what it left.
    Stopped = 3,
    /// It has left its job, for good.
    Over = 4,
}

impl RankState {
    fn from_word(word: u64) -> RankState {
        match word & 0xf {
            1 => RankState::Running,
            2 => RankState::Idle,
            3 => RankState::Stopped,
            4 => RankState::Over,
            _ => RankState::Unknown,
        }
    }
}

/// Bytes of a node's page: header, turns, job slots, nodes.
const fn node_page_bytes(nodes: u32) -> usize {
    node_offset(nodes)
}

const fn slot_offset(slot: usize) -> usize {
    size_of::<NodeHeader>() + size_of::<TurnTable>() + slot * size_of::<JobEntry>()
}

const fn node_offset(node: u32) -> usize {
    slot_offset(JOB_SLOTS) + node as usize * size_of::<NodeEntry>()
}

const fn rank_offset(rank: u32) -> usize {
    size_of::<JobHeader>() + rank as usize * 8
}

#[cfg(test)]
mod tests;
