//! Puts that report their arrival, and strided puts and gets.

use kumi_net::counters::Counter;
use kumi_net::{CopySource, SharedBytes, SharedBytesMut};
use kumi_proto::frame::{Frame, PUT_BYTES, PUT_COUNTED_BYTES, PUT_STRIDED_BYTES};

use crate::engine::PlainFrame;
use crate::error::Error;
use crate::request::table::PendingRequest;
use crate::window::completion::{CountedPut, OnPlacement};
use crate::window::strided::Strided;
use crate::window::table::{Access, check};
use crate::window::{GET_PIECE, Window, check_notify};

impl Window<'_> {
    /// As [`Window::put`], and what is to happen when all is in place.
    ///
    /// # Errors
    /// As [`Window::put`], [`Error::BadNotify`], [`Error::ForeignCompletion`]. The completion, if there
    /// is one, reports refusals by frames (see [`Window`]).
    pub fn put_with(
        &self,
        to: u32,
        offset: usize,
        data: &[u8],
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        let shape = Strided { offset, stride: data.len(), block: data.len(), count: 1 };
        self.put_strided(to, shape, data, after)
    }

    /// Writes blocks of `data`, which follow each other there, to the places of `shape` in the piece of
    /// a rank. Returns when the data may change.
    ///
    /// # Errors
    /// As [`Window::put_with`]; [`Error::BadLength`] if `data` is not what the shape takes, or its
    /// blocks overlap.
    pub fn put_strided(
        &self,
        to: u32,
        shape: Strided,
        data: &[u8],
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        shape.check(data.len())?;
        // SAFETY: nothing is lent for longer than the call.
        unsafe { self.put_blocks(to, shape, data, after, false) }
    }

    /// As [`Window::put_strided`], of bytes that others may write meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Window::put_strided`].
    pub fn put_strided_shared(
        &self,
        to: u32,
        shape: Strided,
        data: SharedBytes<'_>,
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        shape.check(data.len())?;
        // SAFETY: nothing is lent for longer than the call.
        unsafe { self.put_blocks(to, shape, data, after, false) }
    }

    /// The same of a shape that is right; if `stays`, what goes to another node may be sent from where it is.
    ///
    /// # Safety
    /// If `stays`, the memory of `data` stays until `Channel::take_back` was called for it.
    pub(crate) unsafe fn put_blocks(
        &self,
        to: u32,
        shape: Strided,
        data: impl CopySource,
        after: OnPlacement<'_>,
        stays: bool,
    ) -> Result<(), Error> {
        if let Some(notify) = after.notify {
            check_notify(notify)?;
        }
        self.context.check_rank(to)?;
        let Some((local, mapped)) = self.mapped(to) else {
            // SAFETY: promised by the caller.
            return unsafe { self.put_blocks_by_frames(to, shape, data, after, stays) };
        };
        let (mapped, blocks) = (mapped?, shape.shape());
        if let Some(completion) = after.completion {
            completion.check(self.context)?;
        }
        let span = if data.is_empty() { 0 } else { blocks.span() };
        check(mapped.rights, mapped.size, blocks.offset, span, Access::Write)
            .map_err(|reason| self.refused(to, shape.offset, span as usize, reason))?;
        blocks.scatter(mapped.writable().slice(shape.offset, span as usize), data);
        self.finish_mapped(mapped, (to, local), after)
    }

    /// # Safety
    /// As [`Window::put_blocks`].
    unsafe fn put_blocks_by_frames(
        &self,
        to: u32,
        shape: Strided,
        data: impl CopySource,
        after: OnPlacement<'_>,
        stays: bool,
    ) -> Result<(), Error> {
        let span = if data.is_empty() { 0 } else { shape.shape().span() };
        self.check_long(to, shape.offset, span, data.len())?;
        let Some(completion) = after.completion else {
            // SAFETY: promised by the caller.
            return unsafe { self.send_blocks(to, shape, data, (after.notify, None), stays) };
        };
        let put = completion.counted(self.context)?;
        // SAFETY: promised by the caller.
        let sent = unsafe { self.send_blocks(to, shape, data, (after.notify, Some(put)), stays) };
        sent.inspect_err(|_| completion.abandon(to, put))
    }

    /// Sends the frames of a put, with its notification, counted or not. As many blocks as fit go
    /// into one frame, and a block that does not fit goes into several.
    ///
    /// # Safety
    /// As [`Window::put_blocks`].
    unsafe fn send_blocks(
        &self,
        to: u32,
        shape: Strided,
        data: impl CopySource,
        (notify, counted): (Option<u32>, Option<CountedPut>),
        stays: bool,
    ) -> Result<(), Error> {
        let token = counted.map_or(0, |put| put.token);
        let (window, Strided { offset, stride, block, count }) = (self.keys[to as usize], shape);
        self.context.puts_to(to);
        let frame = |most: usize, done: usize| {
            let rest = data.len() - done;
            let fit = (most - PUT_STRIDED_BYTES).checked_div(block).unwrap_or(0);
            let several = count > 1 && fit > 0;
            // Without bytes there is one frame, from the start.
            let (index, inside) = (done / block.max(1), done % block.max(1));
            let piece = if several {
                rest.min(fit * block)
            } else {
                let header = if token == 0 { PUT_BYTES } else { PUT_COUNTED_BYTES };
                (block - inside).min(most - header).min(rest)
            };
            let last = piece == rest;
            let notify = notify.filter(|_| last);
            let start = (index as u64).wrapping_mul(stride as u64);
            let offset = (offset as u64).wrapping_add(start).wrapping_add(inside as u64);
            let data = data.slice(done, piece);
            let last = last && token != 0;
            if several {
                let (stride, block) = (stride as u64, block as u32);
                Frame::PutStrided { token, last, window, offset, stride, block, notify, data }
            } else if token == 0 {
                Frame::Put { window, offset, notify, data }
            } else {
                Frame::PutCounted { token, last, window, offset, notify, data }
            }
        };
        if stays && self.context.lends {
            // SAFETY: promised by the caller.
            unsafe { self.context.send_frames_lent(to, data, true, true, counted, frame) }?;
        } else {
            self.context.send_frames(to, data, true, counted, frame)?;
        }
        self.context.puts_to(to);
        Ok(())
    }

    /// Reads blocks from the places of `shape` in the piece of a rank, one after the other.
    ///
    /// # Errors
    /// As [`Window::get`]; [`Error::BadLength`] if `into` is not what the shape gives, or its
    /// blocks overlap.
    pub fn get_strided(&self, from: u32, shape: Strided, into: &mut [u8]) -> Result<(), Error> {
        self.get_strided_shared(from, shape, into.into())
    }

    /// As [`Window::get_strided`], into bytes that others may use meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Window::get_strided`].
    pub fn get_strided_shared(
        &self,
        from: u32,
        shape: Strided,
        into: SharedBytesMut<'_>,
    ) -> Result<(), Error> {
        shape.check(into.len())?;
        if into.is_empty() {
            return self.get_shared(from, shape.offset, into);
        }
        let blocks = shape.shape();
        if let Some((_, mapped)) = self.mapped(from) {
            let mapped = mapped?;
            check(mapped.rights, mapped.size, blocks.offset, blocks.span(), Access::Read)
                .map_err(|r| self.refused(from, shape.offset, blocks.span() as usize, r))?;
            let span = mapped.bytes().slice(shape.offset, blocks.span() as usize);
            blocks.gather(span, 0, into);
            self.context.attachment().count(Counter::DirectGets, 1);
            return Ok(());
        }
        self.context.check_rank(from)?;
        let Strided { offset, stride, block, .. } = shape;
        let together = (GET_PIECE / block).max(1);
        let (mut rest, mut index) = (into, 0usize);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(together * block));
            let offset = offset.wrapping_add(index.wrapping_mul(together).wrapping_mul(stride));
            (rest, index) = (behind, index + 1);
            if block > GET_PIECE {
                self.get_shared(from, offset, piece)?;
            } else {
                self.get_blocks(
                    from,
                    Strided { offset, count: piece.len() / block, ..shape },
                    piece,
                )?;
            }
        }
        Ok(())
    }

    /// One request for blocks of less than 2^32 bytes.
    fn get_blocks(&self, from: u32, shape: Strided, into: SharedBytesMut<'_>) -> Result<(), Error> {
        let (window, blocks) = (self.keys[from as usize], shape.shape());
        let (block, count) = (shape.block as u32, shape.count as u32);
        let (offset, stride) = (blocks.offset, blocks.stride);
        let frame = |token| PlainFrame::GetStrided { token, window, offset, stride, block, count };
        // SAFETY: borrowed until this returns; `request` has the engine forget it before.
        let pending = PendingRequest::Bytes { into: unsafe { into.lend() }, received: 0 };
        self.context
            .request(from, pending, frame)?
            .map_err(|reason| self.refused(from, shape.offset, blocks.span() as usize, reason))
            .map(drop)
    }
}
