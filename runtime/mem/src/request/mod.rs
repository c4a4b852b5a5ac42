//! Requests: operations that a program starts and waits for later.
//!
//! The engine keeps them in one table (`table`). What finds no room on its way waits in a queue for its target
//! (`outgoing`), which whoever drives the channel empties.

pub(crate) mod outgoing;
pub(crate) mod progress;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod scope;
pub(crate) mod start;
pub(crate) mod table;
mod wait;
mod wait_some;

use std::num::NonZeroU64;

use kumi_proto::frame::{Operation, Width};

use crate::message::mailbox::MessageStatus;
use crate::request::queue::CompletionQueue;
use crate::window::atomic::AtomicOperation;
use crate::window::completion::Completion;

/// Bits of a handle that say which place of the table it names.
const PLACE_BITS: u32 = 24;
/// Bits that say whose request it was at that place.
const GENERATION_BITS: u32 = 32;

/// Names a request. A handle is good until the request's end has been told: a later use of it is an error, and so is one
/// with another context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestHandle(NonZeroU64);

impl RequestHandle {
    /// As a number, for other languages; never 0.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The handle of this number; none for 0. Any other number is safe to use: at worst it names no request.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<RequestHandle> {
        NonZeroU64::new(bits).map(RequestHandle)
    }

    /// Of a place in the table of a context, which has a number above 0.
    pub(crate) fn new(context: u8, generation: u32, place: u32) -> RequestHandle {
        let number = u64::from(context) << (GENERATION_BITS + PLACE_BITS);
        let bits = number | u64::from(generation) << PLACE_BITS | u64::from(place);
        RequestHandle(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MAX))
    }

    /// Context, generation and place.
    pub(crate) fn parts(self) -> (u8, u32, u32) {
        let bits = self.0.get();
        let place = bits & ((1 << PLACE_BITS) - 1);
        let context = bits >> (GENERATION_BITS + PLACE_BITS);
        (context as u8, (bits >> PLACE_BITS) as u32, place as u32)
    }
}

/// How a request ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// A put, a get or a send is done.
    Done,
    /// An atomic operation is done; the value before.
    Value(u64),
    /// A message was received.
    Received(MessageStatus),
    /// It was cancelled before it had begun.
    Cancelled,
}

/// Where the end of a request is told.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum Report<'r> {
    /// To whoever tests its handle or waits for it.
    #[default]
    Handle,
    /// This counter rises by one. The handle is spent when the request ends. A request that fails does not count; the
    /// counter's next call tells the error.
    Counter(&'r Completion<'r>),
    /// An entry with this word comes into this queue. The handle is spent when the request ends.
    Queue(&'r CompletionQueue<'r>, u64),
}

/// When a put has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PutEnd {
    /// When the caller's data may change. A refusal is told by [`crate::Context::flush`], as that of a plain put.
    Sent,
    /// When it is in place at its target, or was refused there.
    #[default]
    Placed,
}

/// Options of a put that is a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct PutOptions<'r> {
    /// This notification counter (0 to 63) of the window at the target rises by one.
    pub notify: Option<u32>,
    /// When it has ended.
    pub end: PutEnd,
    /// Where that is told.
    pub report: Report<'r>,
}

/// An atomic operation on eight or four aligned bytes, in the machine's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the operations and their operands are named")]
pub enum Atomic {
    Add64(u64),
    And64(u64),
    Or64(u64),
    Xor64(u64),
    Swap64(u64),
    CompareSwap64 { expected: u64, value: u64 },
    Add32(u32),
    And32(u32),
    Or32(u32),
    Xor32(u32),
    Swap32(u32),
    CompareSwap32 { expected: u32, value: u32 },
}

impl From<Atomic> for AtomicOperation {
    fn from(atomic: Atomic) -> AtomicOperation {
        let eight = |operation, operand, operand2| {
            let width = Width::Eight;
            AtomicOperation { operation, width, operand, operand2 }
        };
        let four = |operation, operand: u32, operand2: u32| {
            let (operand, operand2) = (operand.into(), operand2.into());
            AtomicOperation { operation, width: Width::Four, operand, operand2 }
        };
        match atomic {
            Atomic::Add64(operand) => eight(Operation::FetchAdd, operand, 0),
            Atomic::And64(operand) => eight(Operation::FetchAnd, operand, 0),
            Atomic::Or64(operand) => eight(Operation::FetchOr, operand, 0),
            Atomic::Xor64(operand) => eight(Operation::FetchXor, operand, 0),
            Atomic::Swap64(value) => eight(Operation::Swap, value, 0),
            Atomic::CompareSwap64 { expected, value } => {
                eight(Operation::CompareSwap, expected, value)
            }
            Atomic::Add32(operand) => four(Operation::FetchAdd, operand, 0),
            Atomic::And32(operand) => four(Operation::FetchAnd, operand, 0),
            Atomic::Or32(operand) => four(Operation::FetchOr, operand, 0),
            Atomic::Xor32(operand) => four(Operation::FetchXor, operand, 0),
            Atomic::Swap32(value) => four(Operation::Swap, value, 0),
            Atomic::CompareSwap32 { expected, value } => {
                four(Operation::CompareSwap, expected, value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_its_three_parts_apart() {
        for (context, generation, place) in
            [(1, 0, 0), (255, u32::MAX, (1 << PLACE_BITS) - 1), (7, 1, 2), (9, 1 << 31, 1 << 23)]
        {
            let handle = RequestHandle::new(context, generation, place);
            assert_eq!(handle.parts(), (context, generation, place));
            assert_eq!(RequestHandle::from_bits(handle.to_bits()), Some(handle));
        }
        assert_eq!(RequestHandle::from_bits(0), None);
    }
}
