//! Gets of lists, by as many requests as needed, several of them in flight.

use kumi_net::counters::Counter;
use kumi_net::{Guard, SharedBytesMut};
use kumi_proto::frame::{GET_LIST_BYTES, GetList, MOST_GET_PIECES, PIECE_BYTES};

use super::{FramePieces, NOTHING, PieceCursor, same_bytes};
use crate::context::Context;
use crate::engine::{Engine, PlainFrame};
use crate::error::{Error, Refusal};
use crate::request::table::{PendingRequest, Request, RequestEnd};
use crate::window::pieces::{LentBuffers, Piece};
use crate::window::table::{Access, check};
use crate::window::{GET_PIECE, Window};

/// Requests of one get in flight at the same time. A target keeps little for them: places, no bytes.
const AT_ONCE: usize = 16;

/// A get by frames.
struct ListGet<'l> {
    context: &'l Context,
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
    /// Requests in flight: their order, place in the table, lowest place in the window, and bytes.
    under_way: Vec<(u64, u32, u64, usize)>,
    /// Requests begun.
    begun: u64,
    /// The first in the list that was refused: order, lowest place and bytes, and why.
    refused: Option<((u64, u64, usize), Refusal)>,
}

/// However the get ends, lent buffers go back.
impl Drop for ListGet<'_> {
    fn drop(&mut self) {
        // Without the lock the handler thread is dead and writes nowhere.
        if let Ok(mut guard) = self.context.channel.lock() {
            let engine = guard.handler();
            engine.release_all(self.under_way.iter().map(|one| one.1).collect());
            engine.mailbox.awaited = None;
        }
    }
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
        let (unsent, under_way, begun, refused) = (None, Vec::new(), 0, None);
        let (context, left) = (self.context, bytes);
        let mut asking =
            ListGet { context, from, list, left, into, count, unsent, under_way, begun, refused };
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
        result?;
        match asking.refused {
            None => Ok(()),
            Some(((_, at, bytes), reason)) => Err(self.refused(from, at as usize, bytes, reason)),
        }
    }

    /// Sends requests as long as some may be under way and there is room; true if it has sent any.
    fn ask(&self, guard: &mut Guard<'_, Engine>, asking: &mut ListGet<'_>) -> Result<bool, Error> {
        let before = asking.under_way.len();
        // What was begun before goes first.
        while asking.under_way.len() < AT_ONCE
            && guard.handler().outgoing.is_free(asking.from)
            && let Some((taken, into)) = asking.next()
        {
            let requests = &mut guard.handler().requests;
            let place = requests.add(Request::to(asking.from, PendingRequest::Nothing))?;
            let token = requests.token(place);
            let (window, offset) = (self.keys[asking.from as usize], taken.offset);
            let frame = PlainFrame::GetList(GetList { token, window, offset, pieces: &taken.list });
            let sent = guard.send(asking.from, &[&frame.header(), frame.list()])?;
            let requests = &mut guard.handler().requests;
            if !sent {
                requests.remove(place);
                asking.unsent = Some((taken, into));
                break;
            }
            if let Some(request) = requests.get_mut(place) {
                let length = taken.bytes as u32;
                request.pending = PendingRequest::Pieces { into, length, received: 0 };
            }
            asking.under_way.push((asking.begun, place, offset, taken.bytes));
            asking.begun += 1;
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
        for (order, place, low, bytes) in std::mem::take(&mut self.under_way) {
            let Some(over) = engine.take_over(place) else {
                self.under_way.push((order, place, low, bytes));
                continue;
            };
            let earlier = self.refused.is_none_or(|(first, _)| order < first.0);
            if let Some(RequestEnd::Refused(reason)) = over.end
                && earlier
            {
                self.refused = Some(((order, low, bytes), reason));
            }
        }
    }
}
