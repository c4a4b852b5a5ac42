//! What goes wrong.

use alloc::string::String;

use crate::Rank;

/// Bytes that are no message, or a diff of no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// The bytes end too early.
    #[error("a message of shared memory ends too early")]
    Short,
    /// Bytes are left behind the message.
    #[error("bytes are left behind a message of shared memory")]
    Long,
    /// A number outside of what it counts.
    #[error("a message of shared memory names something that is not there")]
    Range,
    /// No message has this number.
    #[error("no message of shared memory has the number {0}")]
    Kind(u8),
}

/// A mistake of the program in its use of shared memory, or a peer that breaks the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// A lock is given back that is not held.
    #[error("lock {lock} is unlocked, but this rank does not hold it; lock it first")]
    NotHeld {
        /// The lock.
        lock: u32,
    },
    /// A lock is taken twice by the same thread.
    #[error("lock {lock} is locked by the thread that holds it already; unlock it first")]
    HeldAlready {
        /// The lock.
        lock: u32,
    },
    /// Two threads of a rank are in a barrier at once.
    #[error("two threads of this rank are in a barrier at once; let one of them wait for all")]
    Busy,
    /// A thread releases what it wrote while another thread of its rank waits in a barrier, at which pages may get other homes.
    #[error(
        "a thread gives back what it wrote to shared memory while another thread of its rank is in a barrier; \
         let the threads meet before the barrier, or start the job with KUMI_DSM_HOMES=stay"
    )]
    InBarrier,
    /// Ranks are in different barriers.
    #[error(
        "barrier {number}: rank {rank} called {theirs}, rank {other} {ours}; all ranks make the same calls in the same order"
    )]
    Mismatch {
        /// Barriers that all ranks passed before.
        number: u64,
        /// The rank whose call differs.
        rank: Rank,
        /// What it called.
        theirs: &'static str,
        /// The rank it is compared with.
        other: Rank,
        /// What that called.
        ours: &'static str,
    },
    /// Ranks have allocated differently.
    #[error(
        "rank {rank} allocated other shared memory than rank {other} before barrier {number}; all ranks allocate the same in the same order"
    )]
    Allocations {
        /// Barriers that all ranks passed before.
        number: u64,
        /// The rank that differs.
        rank: Rank,
        /// The rank it is compared with.
        other: Rank,
    },
    /// The shared memory is used up.
    #[error(
        "shared memory is used up: {wanted} bytes were asked for, {free} are free; raise KUMI_DSM_BYTES"
    )]
    Full {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// An argument of an allocation that cannot be.
    #[error("allocation refused: {0}")]
    Allocation(String),
    /// A message that no rank sends at this point.
    #[error("rank {from} sent what no rank sends ({what}); end the job")]
    Peer {
        /// Its sender.
        from: Rank,
        /// Why.
        what: String,
    },
}
