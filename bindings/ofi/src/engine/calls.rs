//! What the engine is asked to do.

use std::sync::Arc;

use crate::completion_queue::CompletionQueue;
use crate::counter::Counter;
use crate::operation::{Address, Operation, Pieces};

/// A receive that is posted.
#[derive(Debug)]
pub struct Receive {
    /// Told when it is over.
    pub operation: Operation,
    /// Where the message goes.
    pub buffer: Pieces,
    /// From this endpoint only.
    pub source: Option<Address>,
    /// The tag and the bits of it that do not count; none: a message without a tag (`FI_MSG`).
    pub tag: Option<(u64, u64)>,
    /// The buffer takes messages until less than so many bytes are left (`FI_MULTI_RECV`).
    pub several: Option<usize>,
}

/// When a send or write is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its memory may be used again (`FI_INJECT_COMPLETE`, `FI_TRANSMIT_COMPLETE`).
    Sent,
    /// The other side has it, in the memory of a receive (`FI_DELIVERY_COMPLETE`, `FI_MATCH_COMPLETE`).
    Delivered,
}

/// A message that is to be sent.
#[derive(Debug)]
pub struct Send {
    /// Told when it is over.
    pub operation: Operation,
    /// Where it goes.
    pub to: Address,
    /// Its data.
    pub data: Pieces,
    /// The memory is the program's again when the call returns (`FI_INJECT`).
    pub inject: bool,
    /// Its tag; none: a message without one (`FI_MSG`).
    pub tag: Option<u64>,
    /// A word beside it (`FI_REMOTE_CQ_DATA`).
    pub immediate: Option<u64>,
    /// When it is over.
    pub end: End,
}

/// Memory of another rank: the key of a registration there, and pieces of it by offset (or address, for keys that were
/// registered so).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Where it begins, as its registration counts.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Key of the registration.
    pub key: u64,
}

/// Which way data goes, seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the other rank.
    Read,
    /// To the other rank.
    Write,
}

/// A read or write of another rank's memory.
#[derive(Debug)]
pub struct Transfer {
    /// Told when it is over.
    pub operation: Operation,
    /// Which way.
    pub direction: Direction,
    /// Whose memory.
    pub peer: Address,
    /// Memory here.
    pub local: Pieces,
    /// Together as long as `local`.
    pub remote: Vec<Remote>,
    /// The memory is the program's again when the call returns (`FI_INJECT`).
    pub inject: bool,
    /// Told to the target's queue (`FI_REMOTE_CQ_DATA`).
    pub immediate: Option<u64>,
}

/// What an atomic operation gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicKind {
    /// Nothing.
    Update,
    /// What was there.
    Fetch,
    /// What was there, which it has compared.
    CompareAndSwap,
}

/// Atomic operations on elements of another rank's memory.
#[derive(Debug)]
pub struct Atomic {
    /// Told when it is over.
    pub operation: Operation,
    /// What it gives back.
    pub kind: AtomicKind,
    /// Whose memory.
    pub peer: Address,
    /// `enum fi_datatype`, checked by the engine.
    pub datatype: u32,
    /// `enum fi_op`, checked by the engine.
    pub op: u32,
    /// An operand for each element; none for reads.
    pub operand: Pieces,
    /// What each element is compared with.
    pub compare: Pieces,
    /// Where what was there goes.
    pub result: Pieces,
    /// Lengths in bytes. Together as long as `operand` (or `result` of an atomic read).
    pub remote: Vec<Remote>,
}

/// Memory that others may use.
#[derive(Debug)]
pub struct Registration {
    /// The memory.
    pub pieces: Pieces,
    /// Others may read it.
    pub remote_read: bool,
    /// Others may write it, and apply atomic operations.
    pub remote_write: bool,
    /// The key that the program chose; none: the engine draws one.
    pub key: Option<u64>,
    /// Others name bytes by their address here, not from the beginning of the memory.
    pub by_address: bool,
    /// Counts what others write there (`FI_RMA_EVENT`).
    pub counter: Option<Arc<Counter>>,
}

/// Where an endpoint tells what it was not asked for: immediate data of writes, and writes and reads by others that count.
#[derive(Debug, Clone, Default)]
pub struct EndpointEvents {
    /// Gets the words beside writes.
    pub receive_queue: Option<Arc<CompletionQueue>>,
    /// Counts writes.
    pub remote_write: Option<Arc<Counter>>,
    /// Counts reads.
    pub remote_read: Option<Arc<Counter>>,
}

/// What PEEK found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeekAction {
    /// Look only.
    Peek,
    /// The message is taken out and waits for a receive with the same `context` (`FI_PEEK | FI_CLAIM`).
    Claim,
    /// The message is dropped (`FI_PEEK | FI_DISCARD`).
    Discard,
}

/// Errors are positive, of `rdma/fi_errno.h`.
pub type Errno = i32;
