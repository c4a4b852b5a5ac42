//! Frames of multicasts to FIFOs: records for many ranks, and lists of members.

use super::{APPEND_SIGNAL, Frame, FrameError, MULTICAST_APPEND, MULTICAST_APPEND_DONE};
use super::{Reader, WindowKey, Writer};

/// Bytes before the members and the record of a [`MulticastAppend`].
pub const MULTICAST_APPEND_BYTES: usize = 32;
/// Bytes before the ranks of a [`MulticastAppendDone`].
pub const MULTICAST_APPEND_DONE_BYTES: usize = 16;

/// Append a record to FIFOs at the same place of the same window at several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastAppend<'d> {
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
    /// Number of other ranks that the receiver forwards it to.
    pub members: u16,
    /// Their numbers, then the record: see [`members`].
    pub tail: &'d [u8],
}

/// A rank and all its members have a record, or could not take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastAppendDone<'d> {
    /// The request's.
    pub token: u64,
    /// The first rank that refused it, and the reason: one of the `REFUSED_` constants, not 0.
    pub refused: Option<(u32, u8)>,
    /// The numbers of ranks whose FIFO had no room, 4 bytes each (see [`members`]).
    pub full: &'d [u8],
}

/// Splits the tail of a [`Frame::Multicast`] or a [`MulticastAppend`] into its members and its data.
///
/// # Panics
/// If the tail is shorter than the members.
pub fn members(count: u16, tail: &[u8]) -> (impl Iterator<Item = u32>, &[u8]) {
    let (members, data) = tail.split_at(usize::from(count) * 4);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    (members.chunks_exact(4).map(number), data)
}

impl MulticastAppend<'_> {
    pub(super) fn write<'b>(&self, to: Writer<'b>) -> Writer<'b> {
        let ([low, high], flags) =
            (self.members.to_le_bytes(), if self.signal { APPEND_SIGNAL } else { 0 });
        to.start([MULTICAST_APPEND, flags, low, high])
            .at(self.window, self.offset)
            .u64(self.token)
            .u32(self.source)
    }
}

impl MulticastAppendDone<'_> {
    pub(super) fn write<'b>(&self, to: Writer<'b>) -> Writer<'b> {
        let (rank, code) = self.refused.unwrap_or((0, 0));
        // Of a list that is too long, the lower bits: the decoder then finds another length.
        let [low, high, ..] = (self.full.len() / 4).to_le_bytes();
        to.start([MULTICAST_APPEND_DONE, code, low, high]).u64(self.token).u32(rank)
    }
}

impl<'d> Frame<'d> {
    pub(super) fn decode_multicast_append(
        mut r: Reader<'d>,
        flags: u8,
        members: [u8; 2],
    ) -> Result<Self, FrameError> {
        if flags & !APPEND_SIGNAL != 0 {
            return Err(r.bad("flags"));
        }
        let (window, offset) = r.place()?;
        let (token, source) = (r.u64()?, r.u32()?);
        if token == 0 {
            return Err(r.bad("token"));
        }
        let (members, tail) = (u16::from_le_bytes(members), r.rest());
        if tail.len() < usize::from(members) * 4 {
            return Err(r.bad_length());
        }
        let signal = flags & APPEND_SIGNAL != 0;
        let append = MulticastAppend { token, window, offset, signal, source, members, tail };
        Ok(Self::MulticastAppend(append))
    }

    pub(super) fn decode_append_done(
        mut r: Reader<'d>,
        code: u8,
        count: [u8; 2],
    ) -> Result<Self, FrameError> {
        let (token, rank, full) = (r.u64()?, r.u32()?, r.rest());
        if full.len() != usize::from(u16::from_le_bytes(count)) * 4 {
            return Err(r.bad_length());
        }
        let refused = match (code, rank) {
            (0, 0) => None,
            (0, _) => return Err(r.bad("rank")),
            (code, rank) => Some((rank, code)),
        };
        Ok(Self::MulticastAppendDone(MulticastAppendDone { token, refused, full }))
    }
}
