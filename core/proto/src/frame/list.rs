//! Frames of puts and gets that list several pieces of a window.

use super::{
    Frame, FrameError, GET_LIST, LAST, PUT_LIST, Payload, Reader, WindowKey, Writer, count, flags,
    zero,
};

/// Bytes before the pieces and the data of a [`PutList`].
pub const PUT_LIST_BYTES: usize = 32;
/// Bytes before the pieces of a [`GetList`].
pub const GET_LIST_BYTES: usize = 28;
/// Bytes that tell of one piece.
pub const PIECE_BYTES: usize = 8;
/// Most pieces of a [`GetList`]: its target keeps them until it has answered.
pub const MOST_GET_PIECES: usize = 1024;

/// Write pieces of any lengths at any places, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutList<'l, D> {
    /// As for [`Frame::PutStrided`].
    pub token: u64,
    /// As for [`Frame::PutCounted`].
    pub last: bool,
    /// The window's name there.
    pub window: WindowKey,
    /// From where in the window the places of the pieces are counted, in bytes.
    pub offset: u64,
    /// The notify counter to raise by one afterwards.
    pub notify: Option<u32>,
    /// The places and lengths of the pieces (see [`pieces`]), [`PIECE_BYTES`] each; at least one.
    pub pieces: &'l [u8],
    /// The bytes to write: as many as the pieces have together.
    pub data: D,
}

/// Ask for pieces of any lengths at any places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetList<'l> {
    /// Chosen by the asking rank; comes back with the reply.
    pub token: u64,
    /// The window's name there.
    pub window: WindowKey,
    /// From where in the window the places of the pieces are counted, in bytes.
    pub offset: u64,
    /// The places and lengths of 1 to [`MOST_GET_PIECES`] pieces (see [`pieces`]), [`PIECE_BYTES`]
    /// each; all together have less than 2^32 bytes.
    pub pieces: &'l [u8],
}

/// The pieces that these bytes tell of: how far behind the frame's offset each begins, and its
/// length, in bytes.
pub fn pieces(list: &[u8]) -> impl Iterator<Item = (u32, u32)> + Clone {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    list.chunks_exact(PIECE_BYTES).map(move |piece| (number(&piece[..4]), number(&piece[4..])))
}

impl<D> PutList<'_, D> {
    pub(super) fn write<'b>(&self, to: Writer<'b>) -> Writer<'b> {
        let [low, high] = count(self.pieces, PIECE_BYTES);
        to.start([PUT_LIST, flags(self.notify, self.last), low, high])
            .at(self.window, self.offset)
            .notify(self.notify)
            .u64(self.token)
    }
}

impl GetList<'_> {
    pub(super) fn write<'b>(&self, to: Writer<'b>) -> Writer<'b> {
        let [low, high] = count(self.pieces, PIECE_BYTES);
        to.start([GET_LIST, 0, low, high]).at(self.window, self.offset).u64(self.token)
    }
}

/// Checks a list; the bytes of all its pieces together.
fn check_list<D: Payload>(reader: &Reader<'_, D>, list: &[u8]) -> Result<u64, FrameError> {
    if list.is_empty() {
        return Err(reader.bad("pieces"));
    }
    // At most 2^16 pieces of less than 2^32 bytes: no overflow.
    pieces(list).try_fold(0, |sum, (_, length)| match length {
        0 => Err(reader.bad("length")),
        length => Ok(sum + u64::from(length)),
    })
}

impl<'l, D: Payload> Frame<'l, D> {
    pub(super) fn decode_put_list(
        mut r: Reader<'_, D>,
        flags: u8,
        count: usize,
        private: impl FnOnce(D) -> &'l [u8],
    ) -> Result<Self, FrameError> {
        let (window, offset) = r.place()?;
        let (notify, token) = (r.u32()?, r.u64()?);
        let (notify, last) = (r.notify(flags & !LAST, notify)?, flags & LAST != 0);
        if token == 0 && last {
            return Err(r.bad("last"));
        }
        let (pieces, data) = r.split_list(count * PIECE_BYTES)?;
        let pieces = private(pieces);
        if check_list(&r, pieces)? != data.len() as u64 {
            return Err(r.bad_length());
        }
        Ok(Self::PutList(PutList { token, last, window, offset, notify, pieces, data }))
    }

    pub(super) fn decode_get_list(
        mut r: Reader<'_, D>,
        reserved: u8,
        count: usize,
        private: impl FnOnce(D) -> &'l [u8],
    ) -> Result<Self, FrameError> {
        zero(&r, &[reserved])?;
        let ((window, offset), token) = (r.place()?, r.u64()?);
        let pieces = r.whole_list(count * PIECE_BYTES)?;
        if count > MOST_GET_PIECES {
            return Err(r.bad("pieces"));
        }
        let pieces = private(pieces);
        if check_list(&r, pieces)? > u64::from(u32::MAX) {
            return Err(r.bad("length"));
        }
        Ok(Self::GetList(GetList { token, window, offset, pieces }))
    }
}
