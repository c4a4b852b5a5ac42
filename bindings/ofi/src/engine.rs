//! The part below libfabric's objects: endpoints of this rank, over a channel's service.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use crate::counter::Counter;
use crate::completion_queue::CompletionQueue;
use crate::operation::{Address, Operation, Pieces};

/// A receive that is posted.
#[derive(Debug)]
pub struct Receive {
    pub operation: Operation,
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
    pub operation: Operation,
    pub to: Address,
    pub data: Pieces,
    /// The memory is the program's again when the call returns (`FI_INJECT`).
    pub inject: bool,
    pub tag: Option<u64>,
    pub immediate: Option<u64>,
    pub end: End,
}

/// Memory of another rank: the key of a registration there, and pieces of it by offset (or address, for keys that were
/// registered so).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    pub address: u64,
    pub length: u64,
    pub key: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

/// A read or write of another rank's memory.
#[derive(Debug)]
pub struct Transfer {
    pub operation: Operation,
    pub direction: Direction,
    pub peer: Address,
    pub local: Pieces,
    /// Together as long as `local`.
    pub remote: Vec<Remote>,
    pub inject: bool,
    /// Told to the target's queue (`FI_REMOTE_CQ_DATA`).
    pub immediate: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicKind {
    Update,
    Fetch,
    CompareAndSwap,
}

/// Atomic operations on elements of another rank's memory.
#[derive(Debug)]
pub struct Atomic {
    pub operation: Operation,
    pub kind: AtomicKind,
    pub peer: Address,
    /// `enum fi_datatype`, checked by the engine.
    pub datatype: u32,
    /// `enum fi_op`, checked by the engine.
    pub op: u32,
    pub operand: Pieces,
    pub compare: Pieces,
    pub result: Pieces,
    /// Lengths in bytes. Together as long as `operand` (or `result` of an atomic read).
    pub remote: Vec<Remote>,
}

/// Memory that others may use.
#[derive(Debug)]
pub struct Registration {
    pub pieces: Pieces,
    pub remote_read: bool,
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
    pub receive_queue: Option<Arc<CompletionQueue>>,
    pub remote_write: Option<Arc<Counter>>,
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

/// One for a process.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// The process's engine; made by the first call. `FI_ENODEV` if this process is no rank of a job.
    pub fn get() -> Result<Arc<Engine>, Errno> {
        todo!()
    }
    pub fn rank(&self) -> u32 {
        todo!()
    }
    pub fn ranks(&self) -> u32 {
        todo!()
    }
    /// A number that is the same at all ranks of the job, and different in others.
    pub fn job(&self) -> u64 {
        todo!()
    }
    pub fn open_endpoint(&self, _events: EndpointEvents) -> Result<u16, Errno> {
        todo!()
    }
    /// Receives that are posted end with `FI_ECANCELED`. Sends go on.
    pub fn close_endpoint(&self, _endpoint: u16) {
        todo!()
    }
    /// `FI_EAGAIN`: too many.
    pub fn receive(&self, _endpoint: u16, _receive: Receive) -> Result<(), Errno> {
        todo!()
    }
    /// Looks for an unexpected message. Success or `FI_ENOMSG` is told through `receive.operation`.
    pub fn peek(&self, _endpoint: u16, _receive: Receive, _action: PeekAction) -> Result<(), Errno> {
        todo!()
    }
    /// Receives, or discards, the message that was claimed with this context.
    pub fn receive_claimed(&self, _endpoint: u16, _receive: Receive, _discard: bool) -> Result<(), Errno> {
        todo!()
    }
    /// Cancels a posted receive (or the newest one, or send) with this context: whether it was there. Its end is `FI_ECANCELED`.
    pub fn cancel(&self, _endpoint: u16, _context: usize) -> bool {
        todo!()
    }
    pub fn send(&self, _endpoint: u16, _send: Send) -> Result<(), Errno> {
        todo!()
    }
    pub fn transfer(&self, _endpoint: u16, _transfer: Transfer) -> Result<(), Errno> {
        todo!()
    }
    pub fn atomic(&self, _endpoint: u16, _atomic: Atomic) -> Result<(), Errno> {
        todo!()
    }
    /// Bytes of a type, if this operation on it is there, and how many elements one call may have.
    pub fn atomic_count(_datatype: u32, _op: u32, _kind: AtomicKind) -> Option<(usize, usize)> {
        todo!()
    }
    /// The key. `FI_ENOKEY` if the one that was asked for is in use.
    pub fn register(&self, _registration: Registration) -> Result<u64, Errno> {
        todo!()
    }
    /// Waits for nobody: what is under way there fails or is over.
    pub fn deregister(&self, _key: u64) {
        todo!()
    }
    /// Drives the channel once, without waiting.
    pub fn poll(&self) -> Result<(), Errno> {
        todo!()
    }
    /// Drives the channel until `ready`, at most so long; whether it was ready. The rank counts as waiting meanwhile. `ready` must
    /// not call the engine.
    pub fn wait(&self, _timeout: Duration, _ready: &mut dyn FnMut() -> bool) -> Result<bool, Errno> {
        todo!()
    }
    /// Bytes of a message that is copied when the call returns.
    pub const INJECT_BYTES: usize = 4096;
}

/// Writes into an eventfd.
pub fn ring(_fd: RawFd) {}
