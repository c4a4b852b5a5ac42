//! Messages with 64-bit tags between endpoints, and access to memory of other ranks, as libfabric defines them. The design is in
//! `docs/design/messaging.md`, the bytes of messages are in `docs/reference/messaging-protocol.md`.
//!
//! The channel below delivers what a pair of ranks sends exactly once and in order. So matching needs no numbers.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod access;
mod credit;
mod endpoint;
pub mod header;
pub mod matching;
mod message;
mod messenger;
mod port;
mod requests;

pub use access::{AtomicAccess, MemoryAccess, RemoteRange};
pub use credit::{Limits, MESSAGE_OVERHEAD};
pub use endpoint::{Peek, Receive};
pub use message::{Send, SendEnd};
pub use messenger::{Messenger, Refused, Unfinished};
pub use port::{
    Address, Arrived, Direction, Failure, Memory, MessageInfo, Port, RemoteEvent, TransferStart,
};
