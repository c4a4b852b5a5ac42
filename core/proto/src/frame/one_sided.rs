//! Decoding of one-sided operations whose fields depend on each other.

use super::{APPEND_SIGNAL, APPEND_WAIT, Frame, FrameError, LAST, MEMBER_BYTES, Payload, Reader};

/// Blocks have bytes and do not overlap.
fn check_blocks<D: Payload>(
    reader: &Reader<'_, D>,
    stride: u64,
    block: u32,
) -> Result<(), FrameError> {
    match block {
        0 => Err(reader.bad("block")),
        _ if stride < u64::from(block) => Err(reader.bad("stride")),
        _ => Ok(()),
    }
}

impl<'l, D: Payload> Frame<'l, D> {
    pub(super) fn decode_put_counted(mut r: Reader<'_, D>, flags: u8) -> Result<Self, FrameError> {
        let (window, offset) = r.place()?;
        let (notify, token) = (r.u32()?, r.u64()?);
        let notify = r.notify(flags & !LAST, notify)?;
        if token == 0 {
            return Err(r.bad("token"));
        }
        let (last, data) = (flags & LAST != 0, r.rest());
        Ok(Self::PutCounted { token, last, window, offset, notify, data })
    }

    pub(super) fn decode_put_done(mut r: Reader<'_, D>) -> Result<Self, FrameError> {
        let token = r.u64()?;
        r.end()?;
        Ok(Self::PutDone { token })
    }

    pub(super) fn decode_put_strided(mut r: Reader<'_, D>, flags: u8) -> Result<Self, FrameError> {
        let ((window, offset), stride, block) = (r.place()?, r.u64()?, r.u32()?);
        let (notify, token) = (r.u32()?, r.u64()?);
        let (notify, last, data) = (r.notify(flags & !LAST, notify)?, flags & LAST != 0, r.rest());
        if token == 0 && last {
            return Err(r.bad("last"));
        }
        check_blocks(&r, stride, block)?;
        if data.is_empty() || !data.len().is_multiple_of(block as usize) {
            return Err(r.bad_length());
        }
        Ok(Self::PutStrided { token, last, window, offset, stride, block, notify, data })
    }

    pub(super) fn decode_get_strided(mut r: Reader<'_, D>) -> Result<Self, FrameError> {
        let ((window, offset), token) = (r.place()?, r.u64()?);
        let (stride, block, count) = (r.u64()?, r.u32()?, r.u32()?);
        r.end()?;
        check_blocks(&r, stride, block)?;
        if count == 0 || block.checked_mul(count).is_none() {
            return Err(r.bad("count"));
        }
        Ok(Self::GetStrided { token, window, offset, stride, block, count })
    }

    pub(super) fn decode_multicast(
        mut r: Reader<'_, D>,
        has_notify: u8,
        members: usize,
        private: impl FnOnce(D) -> &'l [u8],
    ) -> Result<Self, FrameError> {
        let (window, offset) = r.place()?;
        let (notify, token) = (r.u32()?, r.u64()?);
        let notify = r.notify(has_notify, notify)?;
        let (members, data) = r.split_list(members * MEMBER_BYTES)?;
        let members = private(members);
        Ok(Self::Multicast { token, window, offset, notify, members, data })
    }

    pub(super) fn decode_multicast_done(
        mut r: Reader<'_, D>,
        code: u8,
    ) -> Result<Self, FrameError> {
        let (token, rank) = (r.u64()?, r.u32()?);
        r.end()?;
        match (code, rank) {
            (0, 0) => Ok(Self::MulticastDone { token, refused: None }),
            (0, _) => Err(r.bad("rank")),
            (code, rank) => Ok(Self::MulticastDone { token, refused: Some((rank, code)) }),
        }
    }

    pub(super) fn decode_append(mut r: Reader<'_, D>, flags: u8) -> Result<Self, FrameError> {
        if flags & !(APPEND_WAIT | APPEND_SIGNAL) != 0 {
            return Err(r.bad("flags"));
        }
        let ((window, offset), token) = (r.place()?, r.u64()?);
        let (wait, signal) = (flags & APPEND_WAIT != 0, flags & APPEND_SIGNAL != 0);
        Ok(Self::Append { token, window, offset, wait, signal, data: r.rest() })
    }

    pub(super) fn decode_append_reply(
        mut r: Reader<'_, D>,
        outcome: u8,
    ) -> Result<Self, FrameError> {
        let token = r.u64()?;
        r.end()?;
        if outcome > 1 {
            return Err(r.bad("outcome"));
        }
        Ok(Self::AppendReply { token, again: outcome == 1 })
    }
}
