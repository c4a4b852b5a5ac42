//! Datagrams that an endpoint hands out for the wire.

use crate::Rank;

/// One or more datagrams for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// The rank addressed.
    pub to: Rank,
    /// Datagrams laid end to end: at most 64, and at most 65,507 bytes. If [`Self::pieces`] is not
    /// empty, these are the bytes that the pieces point into.
    pub bytes: &'a [u8],
    /// The datagrams, if parts of them lie elsewhere ([`Endpoint::send_lent`](crate::Endpoint::send_lent)); otherwise none. As many and as long at most.
    pub pieces: &'a [Piece],
    /// Length of each datagram in bytes; the last may be shorter.
    pub segment: usize,
    /// They are data that was sent before.
    pub resent: bool,
    /// They are too long for the path to this rank: let the network fragment them (no "don't fragment").
    pub fragment: bool,
}

impl<'a> Transmit<'a> {
    /// Bytes of all datagrams together.
    pub fn length(&self) -> usize {
        match self.pieces {
            [] => self.bytes.len(),
            [others @ .., last] => others.len() * self.segment + last.head + last.rest,
        }
    }

    /// The datagrams one by one, if they lie end to end: those without [`Self::pieces`].
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment)
    }
}

/// A packet of a [`Transmit`] of which a part lies with the caller: `head` bytes, then `rest` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the packet begins in [`Transmit::bytes`].
    pub at: usize,
    /// Bytes of it that lie there.
    pub head: usize,
    /// Where the others lie: a place that the caller of [`Endpoint::send_lent`](crate::Endpoint::send_lent) named, or one behind it.
    pub place: u64,
    /// How many those are; may be 0.
    pub rest: usize,
}
