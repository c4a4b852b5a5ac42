//! Pieces of a window: any lengths at any places.

use kumi_net::{CopySource, SharedBytes, SharedBytesMut};
use kumi_proto::frame::pieces;

use crate::window::strided::Shape;

/// A piece of a window's memory; see [`crate::Window::put_list`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    /// Where it begins, in bytes.
    pub offset: usize,
    /// Its bytes.
    pub length: usize,
}

/// Where the bytes of an operation lie in a window.
pub(crate) trait ByteLayout {
    /// The lowest byte.
    fn start(&self) -> u64;

    /// Bytes from the lowest to the last: more than any window has if that is no number. All are
    /// inside of a window if this range is.
    fn span(&self) -> u64;

    /// Copies into window memory: `to` is the span, and `data` has as many bytes as lie in it.
    fn scatter(&self, to: SharedBytesMut<'_>, data: impl CopySource);
}

impl ByteLayout for Shape {
    fn start(&self) -> u64 {
        self.offset
    }

    fn span(&self) -> u64 {
        self.span()
    }

    fn scatter(&self, to: SharedBytesMut<'_>, data: impl CopySource) {
        self.scatter(to, data);
    }
}

/// The pieces that a frame lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PieceList<B> {
    offset: u64,
    list: B,
    span: u64,
}

impl<B: AsRef<[u8]>> PieceList<B> {
    /// Of a list that was decoded.
    pub(crate) fn new(offset: u64, list: B) -> PieceList<B> {
        let end = |(distance, length)| u64::from(distance) + u64::from(length);
        let span = pieces(list.as_ref()).map(end).max().unwrap_or(0);
        PieceList { offset, list, span }
    }

    /// Bytes of all pieces together.
    pub(crate) fn bytes(&self) -> u64 {
        pieces(self.list.as_ref()).map(|(_, length)| u64::from(length)).sum()
    }

    /// Place and length of each.
    fn pieces(&self) -> impl Iterator<Item = (usize, usize)> {
        pieces(self.list.as_ref()).map(|(distance, length)| (distance as usize, length as usize))
    }

    /// Copies from window memory, which is the span: the bytes from `at` on, one piece behind the other. The pieces have
    /// so many.
    fn gather(&self, from: SharedBytes<'_>, at: usize, mut into: SharedBytesMut<'_>) {
        let mut skip = at;
        for (distance, length) in self.pieces() {
            if skip >= length {
                skip -= length;
                continue;
            }
            let (piece, behind) = into.split_at((length - skip).min(into.len()));
            if piece.is_empty() {
                break;
            }
            piece.copy_from(from.slice(distance + skip, piece.len()));
            (skip, into) = (0, behind);
        }
    }
}

impl<B: AsRef<[u8]>> ByteLayout for PieceList<B> {
    fn start(&self) -> u64 {
        self.offset
    }

    fn span(&self) -> u64 {
        self.span
    }

    fn scatter(&self, to: SharedBytesMut<'_>, data: impl CopySource) {
        let mut rest = data;
        for (distance, length) in self.pieces() {
            let (piece, behind) = rest.split_at(length);
            to.slice(distance, length).copy_from(piece);
            rest = behind;
        }
    }
}

/// The bytes that a get by frames reads.
#[derive(Debug)]
pub(crate) enum GetLayout {
    Even(Shape),
    List(PieceList<Vec<u8>>),
}

impl GetLayout {
    /// One piece.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, GetLayout::Even(Shape { count: 1, .. }))
    }

    /// The lowest byte, and bytes from there to the last.
    pub(crate) fn range(&self) -> (u64, u64) {
        match self {
            GetLayout::Even(shape) => (shape.start(), shape.span()),
            GetLayout::List(list) => (list.start(), list.span()),
        }
    }

    /// Copies from window memory, which is the range: the bytes from `at` on, one block behind the other. There are so many.
    pub(crate) fn gather(&self, from: SharedBytes<'_>, at: usize, into: SharedBytesMut<'_>) {
        match self {
            GetLayout::Even(shape) => shape.gather(from, at, into),
            GetLayout::List(list) => list.gather(from, at, into),
        }
    }
}

/// Buffers that a caller lends until its get is over; they are filled one after the other.
#[derive(Debug)]
pub(crate) struct LentBuffers {
    /// Those that are not full.
    rest: std::vec::IntoIter<SharedBytesMut<'static>>,
    /// The rest of the buffer that is being filled.
    now: SharedBytesMut<'static>,
}

impl LentBuffers {
    /// # Safety
    /// As long as the value is used, or one that was split from it, the buffers are what [`SharedBytesMut::new`] demands.
    pub(crate) unsafe fn new<'b>(buffers: impl Iterator<Item = SharedBytesMut<'b>>) -> LentBuffers {
        // SAFETY: the caller's promise.
        LentBuffers::of(buffers.map(|buffer| unsafe { buffer.lend() }).collect())
    }

    fn of(buffers: Vec<SharedBytesMut<'static>>) -> LentBuffers {
        LentBuffers { rest: buffers.into_iter(), now: SharedBytesMut::default() }
    }

    /// The next bytes that lie in one buffer, at most so many; none behind the last buffer.
    fn next(&mut self, most: usize) -> SharedBytesMut<'static> {
        while self.now.is_empty() {
            let Some(next) = self.rest.next() else { break };
            self.now = next;
        }
        let (part, behind) = self.now.split_at(self.now.len().min(most));
        self.now = behind;
        part
    }

    /// Takes the room for the next bytes out of the lent buffers, as much as there is; the caller fills
    /// it.
    pub(crate) fn split(&mut self, mut length: usize) -> LentBuffers {
        let mut parts = Vec::new();
        while length > 0 {
            let part = self.next(length);
            if part.is_empty() {
                break;
            }
            length -= part.len();
            parts.push(part);
        }
        LentBuffers::of(parts)
    }

    /// Writes the next bytes; bytes beyond the last buffer are dropped.
    pub(crate) fn write(&mut self, data: impl CopySource) {
        let mut rest = data;
        while !rest.is_empty() {
            let part = self.next(rest.len());
            if part.is_empty() {
                return;
            }
            let (first, behind) = rest.split_at(part.len());
            part.copy_from(first);
            rest = behind;
        }
    }
}
