//! What a program has begun, and what is told when it is over.

use std::sync::Arc;

use crate::completion_queue::CompletionQueue;
use crate::counter::Counter;

/// Most pieces of memory of an operation.
pub const MOST_PIECES: usize = 4;

/// A piece of the program's memory. The program promises by its call that it stays until the operation is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub address: usize,
    /// Bytes.
    pub length: usize,
}

/// Memory of an operation: pieces in their order. No allocation, since each operation has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pieces {
    pieces: [Piece; MOST_PIECES],
    count: u8,
}

impl Pieces {
    /// One piece; none if it has no bytes.
    #[must_use]
    pub fn one(address: usize, length: usize) -> Pieces {
        let mut pieces = Pieces::default();
        if length > 0 {
            pieces.pieces[0] = Piece { address, length };
            pieces.count = 1;
        }
        pieces
    }

    /// Several pieces; empty ones are left out. None if there are more than [`MOST_PIECES`], or their bytes together are no number.
    #[must_use]
    pub fn from_pieces(all: impl IntoIterator<Item = Piece>) -> Option<Pieces> {
        let mut pieces = Pieces::default();
        let mut total = 0_usize;
        for piece in all.into_iter().filter(|piece| piece.length > 0) {
            *pieces.pieces.get_mut(usize::from(pieces.count))? = piece;
            pieces.count += 1;
            total = total.checked_add(piece.length)?;
        }
        Some(pieces)
    }

    /// The pieces.
    #[must_use]
    pub fn as_slice(&self) -> &[Piece] {
        &self.pieces[..usize::from(self.count)]
    }

    /// Bytes of all together.
    #[must_use]
    pub fn length(&self) -> usize {
        self.as_slice().iter().map(|piece| piece.length).sum()
    }

    /// The part from byte `from` on of at most `length` bytes.
    #[must_use]
    pub fn part(&self, mut from: usize, mut length: usize) -> Pieces {
        let mut part = Pieces::default();
        for piece in self.as_slice() {
            let skipped = from.min(piece.length);
            from -= skipped;
            let taken = length.min(piece.length - skipped);
            length -= taken;
            if taken > 0 {
                part.pieces[usize::from(part.count)] =
                    Piece { address: piece.address + skipped, length: taken };
                part.count += 1;
            }
        }
        part
    }
}

/// What is told about an operation that succeeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Success {
    /// Bytes that a receive has.
    pub length: usize,
    /// Where they begin, if they are in a buffer for several messages.
    pub buffer: usize,
    /// The sender's immediate data (`FI_REMOTE_CQ_DATA`).
    pub data: Option<u64>,
    /// The tag of the message.
    pub tag: u64,
    /// The sender.
    pub source: Option<Address>,
    /// A buffer for several messages is used up with this one (`FI_MULTI_RECV`).
    pub last_of_buffer: bool,
}

/// What is told about an operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Positive, of `rdma/fi_errno.h`: `FI_ETRUNC`, `FI_ECANCELED`, `FI_ENOMSG`, …
    pub error: i32,
    /// What else is known. `length` of a message that was too long is what arrived.
    pub known: Success,
    /// Bytes that did not fit.
    pub too_long_by: usize,
}

/// An endpoint of a rank of this job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The rank.
    pub rank: u32,
    /// Number of the endpoint at that rank, from 0.
    pub endpoint: u16,
}

/// An operation under way. Exactly one of [`Operation::succeed`] and [`Operation::fail`] is called, by any thread, with the
/// channel's lock held. So they must not call the engine.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The program's own word, `op_context`.
    pub context: usize,
    /// `FI_SEND | FI_TAGGED` and the like, for entries of the queue.
    pub flags: u64,
    /// Success is told to the queue, too, not only to the counter.
    pub completion: bool,
    /// Where its end is told.
    pub queue: Option<Arc<CompletionQueue>>,
    /// What it counts in.
    pub counter: Option<Arc<Counter>>,
}
