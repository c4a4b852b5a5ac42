//! Frames of multicasts to FIFOs: records for many ranks, and lists of members.

use super::{
    APPEND_SIGNAL, Frame, FrameError, MEMBER_BYTES, MULTICAST_APPEND, MULTICAST_APPEND_DONE,
    Payload, Reader, WindowKey, Writer, count,
};

/// Bytes before the members and the record of a [`MulticastAppend`].
pub const MULTICAST_APPEND_BYTES: usize = 32;
/// Bytes before the ranks of a [`MulticastAppendDone`].
pub const MULTICAST_APPEND_DONE_BYTES: usize = 16;

/// Append a record to FIFOs at the same place of the same window at several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastAppend<'l, D> {
    /// Chosen by the rank that sends or forwards, not 0; comes back with the answer.
    pub token: u64,
    /// The window's name there.
    pub window: WindowKey,
    /// Where the FIFOs begin in the window, in bytes.
    pub offset: u64,
    /// They are signal ports, whose handlers are to run.
    pub signal: bool,
    /// The rank whose record it is, which need not be the one that this frame comes from.
    pub source: u32,
    /// The numbers of other ranks that the receiver forwards it to, [`MEMBER_BYTES`] each (see [`members`]).
    pub members: &'l [u8],
    /// The record.
    pub data: D,
}

/// A rank and all its members have a record, or could not take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastAppendDone<'l> {
    /// The request's.
    pub token: u64,
    /// The first rank that refused it, and the reason: one of the `REFUSED_` constants, not 0.
    pub refused: Option<(u32, u8)>,
    /// The numbers of ranks whose FIFO had no room, [`MEMBER_BYTES`] each (see [`members`]).
    pub full: &'l [u8],
}

/// The ranks that a list names.
pub fn members(list: &[u8]) -> impl Iterator<Item = u32> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    list.chunks_exact(MEMBER_BYTES).map(number)
}

impl<D> MulticastAppend<'_, D> {
    pub(super) fn write<'b>(&self, to: Writer<'b>) -> Writer<'b> {
        let ([low, high], flags) =
            (count(self.members, MEMBER_BYTES), if self.signal { APPEND_SIGNAL } else { 0 });
        to.start([MULTICAST_APPEND, flags, low, high])
            .at(self.window, self.offset)
            .u64(self.token)
            .u32(self.source)
    }
}

impl MulticastAppendDone<'_> {
    pub(super) fn write<'b>(&self, to: Writer<'b>) -> Writer<'b> {
        let (rank, code) = self.refused.unwrap_or((0, 0));
        let [low, high] = count(self.full, MEMBER_BYTES);
        to.start([MULTICAST_APPEND_DONE, code, low, high]).u64(self.token).u32(rank)
    }
}

impl<'l, D: Payload> Frame<'l, D> {
    pub(super) fn decode_multicast_append(
        mut r: Reader<'_, D>,
        flags: u8,
        members: usize,
        private: impl FnOnce(D) -> &'l [u8],
    ) -> Result<Self, FrameError> {
        if flags & !APPEND_SIGNAL != 0 {
            return Err(r.bad("flags"));
        }
        let (window, offset) = r.place()?;
        let (token, source) = (r.u64()?, r.u32()?);
        if token == 0 {
            return Err(r.bad("token"));
        }
        let (members, data) = r.split_list(members * MEMBER_BYTES)?;
        let (members, signal) = (private(members), flags & APPEND_SIGNAL != 0);
        let append = MulticastAppend { token, window, offset, signal, source, members, data };
        Ok(Self::MulticastAppend(append))
    }

    pub(super) fn decode_append_done(
        mut r: Reader<'_, D>,
        code: u8,
        count: usize,
        private: impl FnOnce(D) -> &'l [u8],
    ) -> Result<Self, FrameError> {
        let (token, rank) = (r.u64()?, r.u32()?);
        let full = private(r.whole_list(count * MEMBER_BYTES)?);
        let refused = match (code, rank) {
            (0, 0) => None,
            (0, _) => return Err(r.bad("rank")),
            (code, rank) => Some((rank, code)),
        };
        Ok(Self::MulticastAppendDone(MulticastAppendDone { token, refused, full }))
    }
}
