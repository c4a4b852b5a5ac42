//! What the state machine asks of the program that drives it.

use alloc::vec::Vec;

use crate::header::{AtomicHeader, Exposure};

/// An endpoint of a rank of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The rank.
    pub rank: u32,
    /// Number of the endpoint at that rank, from 0.
    pub endpoint: u16,
}

/// Memory of the program, as the driver names it: some bytes in an order.
pub trait Memory: Clone {
    /// Bytes.
    fn length(&self) -> u64;
    /// The part from byte `from` on, of at most `length` bytes.
    #[must_use]
    fn part(&self, from: u64, length: u64) -> Self;
}

/// A message that has arrived and lies where others may write.
pub trait Arrived<M> {
    /// Bytes.
    fn length(&self) -> usize;
    /// Copies the first bytes out.
    fn copy_prefix(&self, into: &mut [u8]);
    /// Copies bytes from `offset` on into the program's memory, as many as that has.
    fn copy_to(&self, offset: usize, into: &M);
    /// Copies bytes from `offset` on to where they are kept.
    fn to_vec(&self, offset: usize) -> Vec<u8>;
}

/// Which way data goes, seen from the rank that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the other rank.
    Read,
    /// To the other rank.
    Write,
}

/// What is told of an operation that succeeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageInfo {
    /// Bytes that a receive has got.
    pub length: u64,
    /// Where they begin in a buffer for several messages.
    pub offset: u64,
    /// Tag of the message.
    pub tag: u64,
    /// The sender's word beside the message.
    pub immediate: Option<u64>,
    /// The sender.
    pub source: Option<Address>,
    /// A buffer for several messages is used up.
    pub last_of_buffer: bool,
}

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The message was longer than its receive by so many bytes.
    TooLong(u64),
    /// It was cancelled.
    Cancelled,
    /// No such message waits.
    NoMessage,
    /// The other rank has no such endpoint, or not any more.
    NoEndpoint,
    /// The other rank has no such key, or it does not allow this, or not for these bytes.
    NoAccess,
    /// The other rank cannot do this operation on elements of this type.
    NotSupported,
    /// Data could not be moved.
    Broken,
}

/// What others did to memory of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteEvent {
    /// The endpoint here that was asked.
    pub endpoint: u16,
    /// Who asked.
    pub source: Address,
    /// The key of the memory.
    pub key: u64,
    /// Which way data went.
    pub direction: Direction,
    /// How much.
    pub length: u64,
    /// Its word for this rank's program.
    pub immediate: Option<u64>,
}

/// How a transfer has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferStart {
    /// It is over: the data has been moved.
    Done,
    /// It failed.
    Failed,
    /// So many ends of it will be told by [`crate::Messenger::transferred`].
    Pending(u32),
    /// As many ends will be told, but other parts could not begin: it will fail.
    Partly(u32),
}

/// What the state machine has done by its driver, at once and in this order.
pub trait Port {
    /// Memory of the program.
    type Memory: Memory;
    /// What the program has begun; its end is told once.
    type Operation;

    /// Sends a message: `header`, then the bytes of `data`, which are read before the call returns.
    fn send(&mut self, to: u32, header: &[u8], data: &Self::Memory);
    /// Sends a message of bytes that the state machine has kept.
    fn send_bytes(&mut self, to: u32, header: &[u8], data: &[u8]);
    /// Bytes of the longest message that is sent before its receive is known.
    fn eager_bytes(&self, to: u32) -> u64;
    /// Whether there is room for another message to a rank; otherwise the program is to try again later.
    fn has_room(&self, to: u32) -> bool;
    /// Copies the program's memory.
    fn copy_out(&mut self, from: &Self::Memory) -> Vec<u8>;
    /// Copies into the program's memory, as many bytes as both have.
    fn copy_in(&mut self, bytes: &[u8], into: &Self::Memory);
    /// Lets other ranks read memory, or write it.
    fn expose(&mut self, memory: &Self::Memory, direction: Direction) -> Exposure;
    /// Ends that.
    fn conceal(&mut self, exposure: &Exposure);
    /// Moves data between exposed memory of another rank, from its beginning on, and memory here, as many bytes as that has.
    fn transfer(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        direction: Direction,
        memory: &Self::Memory,
        token: u64,
    ) -> TransferStart;
    /// Ends the transfers of a token: nothing touches their memory any more, and no end of them is told.
    fn release(&mut self, token: u64);
    /// More waits for room on its way to a rank than a rank asks for that takes what it gets.
    fn is_flooded(&self, to: u32) -> bool;
    /// Memory that the program has registered under this key, if all these bytes of it may be used so.
    fn registered(
        &mut self,
        key: u64,
        address: u64,
        length: u64,
        direction: Direction,
    ) -> Option<Self::Memory>;
    /// Applies an atomic operation to registered memory: what was there before, if the operation exists for these lengths.
    fn atomic(
        &mut self,
        operation: &AtomicHeader,
        memory: &Self::Memory,
        operands: &[u8],
    ) -> Option<Vec<u8>>;
    /// An operation is over.
    fn ended(
        &mut self,
        operation: Self::Operation,
        result: Result<MessageInfo, (Failure, MessageInfo)>,
    );
    /// A message has used a part of a buffer for several messages, which stays posted.
    fn received_part(
        &mut self,
        operation: &Self::Operation,
        result: Result<MessageInfo, (Failure, MessageInfo)>,
    );
    /// A message has come for which no receive is posted. Who looks for one may find it now.
    fn unexpected(&mut self);
    /// Another rank has used memory of this one.
    fn remote_event(&mut self, event: &RemoteEvent);
}
