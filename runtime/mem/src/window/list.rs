//! Puts and gets of lists of pieces.

mod get;

use kumi_net::{CopySource, Guard, SharedBytes, Wait};
use kumi_proto::frame::{Frame, PIECE_BYTES, PUT_LIST_BYTES, PutList};

use crate::context::ContextTurn;
use crate::engine::Engine;
use crate::error::Error;
use crate::message::parts::frames_to_queue;
use crate::window::completion::{CountedPut, OnPlacement};
use crate::window::pieces::Piece;
use crate::window::table::{Access, Rights, check};
use crate::window::{Window, check_notify};

/// A piece of at most so many bytes is not divided between frames.
const UNDIVIDED: usize = 64;

impl Window<'_> {
    /// Writes the bytes of `data`, from first to last, into any number of pieces of the window at a
    /// rank. Pieces have any length and order; each is filled before the next. Returns when the data
    /// may change.
    ///
    /// - If a piece is outside of the window, nothing is written.
    /// - Where pieces overlap, the last of the list remains; before that others may see the bytes of
    ///   the former.
    /// - A piece of eight aligned bytes is written at once, larger ones are not.
    /// - Notification and completion follow once, when all pieces are in place.
    ///
    /// ```
    /// # fn main() -> Result<(), kumi_mem::Error> {
    /// use kumi_mem::{OnPlacement, Piece};
    ///
    /// let context = kumi_mem::Context::init_singleton()?;
    /// let window = context.window(64)?;
    /// let pieces = [Piece { offset: 40, length: 2 }, Piece { offset: 3, length: 1 }];
    /// window.put_list(0, &pieces, b"abc", OnPlacement::default())?;
    /// let mut back = [0; 3];
    /// window.get_list(0, &pieces, &mut back)?;
    /// assert_eq!(&back, b"abc");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::BadRank`], [`Error::BadNotify`].
    /// - [`Error::OutOfBounds`] for any of the pieces.
    /// - [`Error::BadLength`] if the pieces together do not have as many bytes as the data.
    /// - For mapped memory (see [`Window`]): [`Error::NoRight`] and [`Error::BadWindow`].
    /// - By frames: [`Error::Refused`] for earlier puts. The completion, if there is one, reports
    ///   refusals of this put.
    pub fn put_list(
        &self,
        to: u32,
        pieces: &[Piece],
        data: &[u8],
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        self.put_lists(to, pieces, &[data], after)
    }

    /// As [`Window::put_list`] with data in any number of buffers, which are taken one after the
    /// other. Their ends and those of the pieces need not fall together. (A piece of eight aligned
    /// bytes is written at once if its bytes come from one buffer.)
    ///
    /// # Errors
    /// As [`Window::put_list`].
    pub fn put_lists(
        &self,
        to: u32,
        pieces: &[Piece],
        data: &[&[u8]],
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        self.put_buffers(to, pieces, data, after)
    }

    /// As [`Window::put_lists`], of bytes that others may write meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Window::put_list`].
    pub fn put_lists_shared(
        &self,
        to: u32,
        pieces: &[Piece],
        data: &[SharedBytes<'_>],
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        self.put_buffers(to, pieces, data, after)
    }

    fn put_buffers<S: CopySource>(
        &self,
        to: u32,
        pieces: &[Piece],
        data: &[S],
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        let bytes = same_bytes(pieces, data.iter().map(|buffer| buffer.len()))?;
        if let Some(notify) = after.notify {
            check_notify(notify)?;
        }
        self.context.check_rank(to)?;
        let Some((local, mapped)) = self.mapped(to) else {
            self.check_pieces(to, pieces)?;
            if bytes == 0 {
                return self.put_with(to, 0, &[], after);
            }
            let (list, source) =
                (PieceCursor { pieces, inside: 0 }, BufferCursor { buffers: data, inside: 0 });
            return self.put_list_by_frames(to, UnsentPut { list, source, bytes }, after);
        };
        let mapped = mapped?;
        if let Some(completion) = after.completion {
            completion.check(self.context)?;
        }
        for piece in pieces.iter().chain(&[NOTHING]) {
            let (at, length) = (piece.offset as u64, piece.length as u64);
            check(mapped.rights, mapped.size, at, length, Access::Write)
                .map_err(|reason| self.refused(to, piece.offset, piece.length, reason))?;
        }
        let mut source = BufferCursor { buffers: data, inside: 0 };
        for piece in pieces {
            let mut done = 0;
            while done < piece.length {
                let run = source.next(piece.length - done);
                mapped.writable().slice(piece.offset + done, run.len()).copy_from(run);
                done += run.len();
            }
        }
        self.finish_mapped(mapped, (to, local), after)
    }

    /// All pieces lie in the piece of the window at this rank, as it told when the window was made.
    fn check_pieces(&self, rank: u32, pieces: &[Piece]) -> Result<(), Error> {
        for piece in pieces {
            let (at, length) = (piece.offset as u64, piece.length as u64);
            check(Rights::ALL, self.sizes[rank as usize], at, length, Access::Write)
                .map_err(|_| self.out_of_bounds(rank, piece.offset, piece.length))?;
        }
        Ok(())
    }

    fn put_list_by_frames(
        &self,
        to: u32,
        rest: UnsentPut<'_, impl CopySource>,
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        let Some(completion) = after.completion else {
            return self.send_list(to, rest, after.notify, None);
        };
        let put = completion.counted(self.context)?;
        self.send_list(to, rest, after.notify, Some(put))
            .inspect_err(|_| completion.abandon(to, put))
    }

    /// Sends the frames of a put, counted or not.
    fn send_list(
        &self,
        to: u32,
        mut rest: UnsentPut<'_, impl CopySource>,
        notify: Option<u32>,
        mut counted: Option<CountedPut>,
    ) -> Result<(), Error> {
        let token = counted.map_or(0, |put| put.token);
        self.context.puts_to(to);
        let mut begun = false;
        let mut turn = ContextTurn::new(self.context, to);
        self.context.drive(Wait::Room, |guard| {
            if let Some(put) = counted.take() {
                put.begin(guard.handler(), to);
            }
            if !turn.has_come(guard) {
                return Ok(None);
            }
            // Not later: half a put is useless.
            if !begun {
                self.context.check_refused(guard, to)?;
            }
            // Frames until the next transmit.
            let mut batch = 0;
            while rest.bytes > 0 {
                if batch == 0 {
                    match frames_to_queue(guard, to, rest.on_the_wire(), guard.max_frame(to)) {
                        Some(frames) => batch = frames,
                        None => return turn.hold(guard),
                    }
                }
                let Some(left) = self.send_pieces(guard, to, rest, notify, token)? else {
                    guard.transmit()?;
                    return turn.hold(guard);
                };
                (rest, begun) = (left, true);
                batch -= 1;
                if batch == 0 {
                    guard.transmit_soon(to)?;
                }
            }
            guard.transmit_soon(to)?;
            turn.over(guard);
            self.context.puts_to(to);
            Ok(Some(()))
        })
    }

    /// Queues one frame. Returns the rest of the put, or nothing if there is no room.
    fn send_pieces<'l, S: CopySource>(
        &self,
        guard: &mut Guard<'_, Engine>,
        to: u32,
        mut rest: UnsentPut<'l, S>,
        notify: Option<u32>,
        token: u64,
    ) -> Result<Option<UnsentPut<'l, S>>, Error> {
        let most = guard.max_frame(to) - PUT_LIST_BYTES;
        let taken = rest.list.take(|count, bytes| {
            let used = (count + 1) * PIECE_BYTES + bytes;
            most.saturating_sub(used)
        });
        rest.bytes -= taken.bytes;
        let last = rest.bytes == 0;
        let frame = Frame::PutList(PutList {
            token,
            last: last && token != 0,
            window: self.keys[to as usize],
            offset: taken.offset,
            notify: notify.filter(|_| last),
            pieces: &taken.list,
            data: S::default(),
        });
        let mut parts = Vec::new();
        let mut left = taken.bytes;
        while left > 0 {
            let run = rest.source.next(left);
            parts.push(run);
            left -= run.len();
        }
        Ok(guard.send_parts(to, &[&frame.header(), &taken.list], &parts)?.then_some(rest))
    }
}

/// A piece that every window has: checked too, so that a list of nothing is.
const NOTHING: Piece = Piece { offset: 0, length: 0 };

/// The bytes of the pieces if the buffers have as many.
fn same_bytes(pieces: &[Piece], buffers: impl Iterator<Item = usize>) -> Result<usize, Error> {
    let sum = |sum: usize, length: usize| sum.checked_add(length);
    let needed = pieces.iter().map(|piece| piece.length).try_fold(0, sum);
    let given = buffers.fold(0, usize::saturating_add);
    match needed {
        Some(needed) if needed == given => Ok(given),
        needed => {
            let (what, needed) = ("the data in bytes", needed.unwrap_or(usize::MAX));
            Err(Error::BadLength { what, given, needed })
        }
    }
}

/// Position in a caller's buffers: the bytes not taken yet.
#[derive(Clone, Copy)]
struct BufferCursor<'d, S> {
    buffers: &'d [S],
    /// Bytes taken from the first of them.
    inside: usize,
}

impl<S: CopySource> BufferCursor<'_, S> {
    /// The next bytes that lie in one buffer, at most so many; not empty before the end.
    fn next(&mut self, most: usize) -> S {
        while let [first, behind @ ..] = self.buffers {
            let rest = first.len() - self.inside;
            if rest == 0 {
                *self = BufferCursor { buffers: behind, inside: 0 };
                continue;
            }
            let run = first.slice(self.inside, rest.min(most));
            self.inside += run.len();
            return run;
        }
        S::default()
    }
}

/// The part of a put that has not been sent.
#[derive(Clone, Copy)]
struct UnsentPut<'l, S> {
    list: PieceCursor<'l>,
    source: BufferCursor<'l, S>,
    bytes: usize,
}

impl<S> UnsentPut<'_, S> {
    /// About how many bytes it takes in frames.
    fn on_the_wire(&self) -> usize {
        self.bytes + self.list.pieces.len() * PIECE_BYTES
    }
}

/// Position in a list of pieces: the pieces not taken yet.
#[derive(Clone, Copy)]
struct PieceCursor<'l> {
    pieces: &'l [Piece],
    /// Bytes taken of the first of them.
    inside: usize,
}

/// Pieces for one frame.
struct FramePieces {
    /// The lowest place.
    offset: u64,
    /// Of all together.
    bytes: usize,
    /// As the frame tells of them.
    list: Vec<u8>,
}

impl PieceCursor<'_> {
    /// Takes pieces from the front, as many as fit. `room` gets their number and bytes so far and
    /// returns how many bytes the next one may have, 0 if none fits. Takes something if anything is
    /// left and a frame has room.
    fn take(&mut self, room: impl Fn(usize, usize) -> usize) -> FramePieces {
        let (mut taken, mut bytes): (Vec<(u64, u32)>, usize) = (Vec::new(), 0);
        let (mut low, mut high) = (u64::MAX, 0);
        while let [first, behind @ ..] = self.pieces {
            let (rest, most) = (first.length - self.inside, room(taken.len(), bytes));
            if rest == 0 {
                *self = PieceCursor { pieces: behind, inside: 0 };
                continue;
            }
            let length = rest.min(most);
            let start = (first.offset + self.inside) as u64;
            let (lower, higher) = (low.min(start), high.max(start + length as u64));
            let cut = length < rest && rest.min(most) <= UNDIVIDED;
            let wide = higher - lower > u64::from(u32::MAX);
            if length == 0 || (!taken.is_empty() && (cut || wide)) {
                break;
            }
            taken.push((start, length as u32));
            (low, high, bytes) = (lower, higher, bytes + length);
            self.inside += length;
        }
        let told = |(start, length): (u64, u32)| {
            [((start - low) as u32).to_le_bytes(), length.to_le_bytes()]
        };
        let list = taken.into_iter().flat_map(told).flatten().collect();
        FramePieces { offset: low, bytes, list }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_proto::frame::pieces as told;
    use proptest::prelude::*;

    /// The pieces as a frame lists them.
    fn taken(list: &mut PieceCursor<'_>, room: impl Fn(usize, usize) -> usize) -> Vec<(u64, u32)> {
        let taken = list.take(room);
        told(&taken.list).map(|(at, length)| (taken.offset + u64::from(at), length)).collect()
    }

    #[test]
    fn short_pieces_are_not_divided_and_far_ones_not_together() {
        let piece = |offset, length| Piece { offset, length };
        let by_frames = 1usize << 33;
        let pieces = [
            piece(by_frames, 3),
            piece(5, 0),
            piece(by_frames - (1 << 32) + 4, 10),
            piece(by_frames - (1 << 32) + 3, 10),
            piece(0, 100),
            piece(200, 64),
            piece(by_frames, 7),
        ];
        let mut list = PieceCursor { pieces: &pieces, inside: 0 };
        let low = by_frames as u64 - (1 << 32);
        assert_eq!(taken(&mut list, |_, _| 1000), [(by_frames as u64, 3), (low + 4, 10)]);
        assert_eq!(taken(&mut list, |_, _| 1000), [(low + 3, 10)]);
        // Not worth a small part of the second.
        assert_eq!(taken(&mut list, |_, bytes| 90 - bytes), [(0, 90)]);
        assert_eq!(taken(&mut list, |_, bytes| 73 - bytes), [(90, 10)]);
        assert_eq!(taken(&mut list, |count, _| 64 * (1 - count)), [(200, 64)]);
        assert_eq!(taken(&mut list, |_, _| 64), [(by_frames as u64, 7)]);
        assert_eq!(taken(&mut list, |_, _| 64), []);
    }

    proptest! {
        /// Frame for frame, all bytes of all pieces are taken, once, in their order.
        #[test]
        fn nothing_is_left_out(
            lengths in prop::collection::vec(0usize..200, 0..40),
            frame in 1usize..400,
        ) {
            let pieces: Vec<Piece> = lengths
                .iter()
                .enumerate()
                .map(|(at, length)| Piece { offset: at * 7919 % 4001, length: *length })
                .collect();
            let mut list = PieceCursor { pieces: &pieces, inside: 0 };
            let mut bytes = Vec::new();
            loop {
                let room = |count: usize, bytes: usize| frame.saturating_sub(bytes + 8 * count);
                let part = taken(&mut list, room);
                if part.is_empty() {
                    break;
                }
                bytes.extend(part.into_iter().flat_map(|(at, length)| at..at + u64::from(length)));
            }
            let all = |piece: &Piece| piece.offset as u64..(piece.offset + piece.length) as u64;
            prop_assert_eq!(bytes, pieces.iter().flat_map(all).collect::<Vec<_>>());
        }
    }
}
