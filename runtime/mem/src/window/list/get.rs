//! Gets of lists, by as many requests as needed, several of them in flight.

use kumi_net::counters::Counter;
use kumi_net::{Guard, SharedBytesMut};
use kumi_proto::frame::{GET_LIST_BYTES, GetList, MOST_GET_PIECES, PIECE_BYTES};

use super::{FramePieces, NOTHING, PieceCursor, same_bytes};
use crate::context::RequestCleanup;
use crate::engine::{Engine, PendingRequest, PlainFrame};
use crate::error::{Error, Refusal};
use crate::window::pieces::{LentBuffers, Piece};
use crate::window::table::{Access, check};
use crate::window::{GET_PIECE, Window};

/// Requests of one get in flight at the same time. A target keeps little for them: places, no bytes.
const AT_ONCE: usize = 16;

/// A get by frames.
struct ListGet<'l> {
    from: u32,
    list: PieceCursor<'l>,
    /// Bytes of the list that have not been taken for a request.
    left: usize,
    /// Where they go.
    into: LentBuffers,
    /// Most pieces of a request.
    count: usize,
    /// A request for which there was no room.
    unsent: Option<(FramePieces, LentBuffers)>,
    /// Requests in flight: token, lowest place, bytes.
    under_way: Vec<(u64, u64, usize)>,
    /// The first in the list that was refused: as above, and why.
    refused: Option<((u64, u64, usize), Refusal)>,
}

impl Window<'_> {
    /// Reads the bytes of any number of pieces of the window at a rank, one piece after the other: the
    /// reverse of [`Window::put_list`]. If one request is not enough, up to 16 are in flight at a time:
    /// a long list costs hardly more round trips than a short one.
    ///
    /// # Errors
    /// After an error the contents of `into` are undefined.
    ///
    /// - [`Error::BadRank`], [`Error::NoRight`], [`Error::BadWindow`].
    /// - [`Error::OutOfBounds`] for any of the pieces.
    /// - [`Error::BadLength`] if the pieces together do not have as many bytes as `into`.
    pub fn get_list(&self, from: u32, pieces: &[Piece], into: &mut [u8]) -> Result<(), Error> {
        self.get_lists(from, pieces, &mut [into])
    }

    /// As [`Window::get_list`] into any number of buffers, which are filled one after the other.
    /// Their ends and those of the pieces need not fall together.
    ///
    /// # Errors
    /// As [`Window::get_list`].
    pub fn get_lists(
        &self,
        from: u32,
        pieces: &[Piece],
        into: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let into: Vec<SharedBytesMut<'_>> =
            into.iter_mut().map(|buffer| SharedBytesMut::from(&mut **buffer)).collect();
        self.get_lists_shared(from, pieces, &into)
    }

    /// As [`Window::get_lists`], into bytes that others may use meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Window::get_list`].
    pub fn get_lists_shared(
        &self,
        from: u32,
        pieces: &[Piece],
        into: &[SharedBytesMut<'_>],
    ) -> Result<(), Error> {
        let bytes = same_bytes(pieces, into.iter().map(|buffer| buffer.len()))?;
        self.context.check_rank(from)?;
        // SAFETY: `into` is borrowed until this returns. Requests that have not ended then are
        // withdrawn, and the buffers with them.
        let mut lent = unsafe { LentBuffers::new(into.iter().copied()) };
        if let Some((_, mapped)) = self.mapped(from) {
            let mapped = mapped?;
            for piece in pieces.iter().chain(&[NOTHING]) {
                let (at, length) = (piece.offset as u64, piece.length as u64);
                check(mapped.rights, mapped.size, at, length, Access::Read)
                    .map_err(|reason| self.refused(from, piece.offset, piece.length, reason))?;
            }
            for piece in pieces {
                lent.write(mapped.bytes().slice(piece.offset, piece.length));
            }
            self.context.attachment().count(Counter::DirectGets, 1);
            return Ok(());
        }
        self.check_pieces(from, pieces)?;
        if bytes == 0 {
            return self.get(from, 0, &mut []);
        }
        self.get_by_frames(from, PieceCursor { pieces, inside: 0 }, bytes, lent)
    }

    fn get_by_frames(
        &self,
        from: u32,
        list: PieceCursor<'_>,
        bytes: usize,
        into: LentBuffers,
    ) -> Result<(), Error> {
        let most = self.context.channel.lock()?.max_frame(from);
        let count = ((most - GET_LIST_BYTES) / PIECE_BYTES).min(MOST_GET_PIECES);
        let (unsent, under_way, refused) = (None, Vec::new(), None);
        let mut asking =
            ListGet { from, list, left: bytes, into, count, unsent, under_way, refused };
        // Dropped first, however this ends: lent buffers go back.
        let over = RequestCleanup(self.context);
        let result = self.context.drive(self.context.wait_for(&[from]), |guard| {
            asking.look(guard.handler());
            if self.ask(guard, &mut asking)? {
                guard.transmit()?;
            }
            guard.handler().mailbox.awaited = Some(from);
            let all = asking.unsent.is_none() && asking.left == 0;
            let over = (all || asking.refused.is_some()) && asking.under_way.is_empty();
            Ok(over.then_some(()))
        });
        drop(over);
        result?;
        match asking.refused {
            None => Ok(()),
            Some(((_, at, bytes), reason)) => Err(self.refused(from, at as usize, bytes, reason)),
        }
    }

    /// Sends requests as long as some may be under way and there is room; true if it has sent any.
    fn ask(&self, guard: &mut Guard<'_, Engine>, asking: &mut ListGet<'_>) -> Result<bool, Error> {
        let before = asking.under_way.len();
        while asking.under_way.len() < AT_ONCE
            && let Some((taken, into)) = asking.next()
        {
            let token = guard.handler().token();
            let (window, offset) = (self.keys[asking.from as usize], taken.offset);
            let frame = PlainFrame::GetList(GetList { token, window, offset, pieces: &taken.list });
            if !guard.send(asking.from, &[&frame.header(), frame.list()])? {
                asking.unsent = Some((taken, into));
                break;
            }
            let pending = PendingRequest::Pieces { into, length: taken.bytes as u32, received: 0 };
            guard.handler().begin_with(asking.from, token, pending);
            asking.under_way.push((token, offset, taken.bytes));
        }
        Ok(asking.under_way.len() > before)
    }
}

impl ListGet<'_> {
    /// The next request, unless one was refused.
    fn next(&mut self) -> Option<(FramePieces, LentBuffers)> {
        if self.refused.is_some() {
            self.unsent = None;
            return None;
        }
        if self.unsent.is_some() || self.left == 0 {
            return self.unsent.take();
        }
        let taken = self.list.take(|taken, bytes| {
            if taken == self.count { 0 } else { GET_PIECE.min(u32::MAX as usize - bytes) }
        });
        self.left -= taken.bytes;
        let into = self.into.split(taken.bytes);
        Some((taken, into))
    }

    /// Takes note of the requests that have ended, in whatever order.
    fn look(&mut self, engine: &mut Engine) {
        for (token, refusal) in engine.ended() {
            let Some(at) = self.under_way.iter().position(|one| one.0 == token) else { continue };
            let one = self.under_way.swap_remove(at);
            let earlier = self.refused.is_none_or(|(first, _)| one.0 < first.0);
            if let Some(reason) = refusal.filter(|_| earlier) {
                self.refused = Some((one, reason));
            }
        }
    }
}
