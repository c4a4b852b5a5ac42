//! Pieces of a window: any lengths at any places.

use std::ptr::NonNull;

use kumi_proto::frame::pieces;

use crate::window::strided::Shape;
use crate::window::table::copy_in;

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

    /// Copies into window memory.
    ///
    /// # Safety
    /// The span is inside of a window from `to` on, and `data` has as many bytes as lie in it.
    unsafe fn scatter(&self, to: NonNull<u8>, data: &[u8]);
}

impl ByteLayout for Shape {
    fn start(&self) -> u64 {
        self.offset
    }

    fn span(&self) -> u64 {
        self.span()
    }

    // SAFETY: the caller keeps the trait's promises.
    unsafe fn scatter(&self, to: NonNull<u8>, data: &[u8]) {
        // SAFETY: promised by the caller.
        unsafe { self.scatter(to, data) }
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

    /// Copies from window memory: the bytes from `at` on, one piece behind the other.
    ///
    /// # Safety
    /// The span is inside of a window from `from` on, and `at + into.len()` not beyond the pieces'
    /// bytes.
    unsafe fn gather(&self, from: NonNull<u8>, at: usize, into: &mut [u8]) {
        let (mut skip, mut rest) = (at, into);
        for (distance, length) in self.pieces() {
            if skip >= length {
                skip -= length;
                continue;
            }
            let most = (length - skip).min(rest.len());
            if most == 0 {
                break;
            }
            let (piece, behind) = rest.split_at_mut(most);
            // SAFETY: bytes of a piece of the span, which the caller promises; others may write
            // them meanwhile, as documented for windows.
            unsafe { piece.as_mut_ptr().copy_from(from.as_ptr().add(distance + skip), most) };
            (skip, rest) = (0, behind);
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

    // SAFETY: the caller keeps the trait's promises.
    unsafe fn scatter(&self, to: NonNull<u8>, data: &[u8]) {
        let mut rest = data;
        for (distance, length) in self.pieces() {
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            // SAFETY: a piece of the span, which the caller promises.
            unsafe { copy_in(to.add(distance), piece) };
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

    /// Copies from window memory: the bytes from `at` on, one block behind the other.
    ///
    /// # Safety
    /// The range is inside of a window from `from` on, and `at + into.len()` not beyond the
    /// blocks' bytes.
    pub(crate) unsafe fn gather(&self, from: NonNull<u8>, at: usize, into: &mut [u8]) {
        // SAFETY: promised by the caller.
        unsafe {
            match self {
                GetLayout::Even(shape) => shape.gather(from, at, into),
                GetLayout::List(list) => list.gather(from, at, into),
            }
        }
    }
}

/// Buffers that a caller lends until its get is over; they are filled one after the other.
#[derive(Debug)]
pub(crate) struct LentBuffers {
    /// Start and length of those that are not full.
    rest: std::vec::IntoIter<(*mut u8, usize)>,
    /// The rest of the buffer that is being filled.
    now: (*mut u8, usize),
}

// SAFETY: the memory behind the pointers is lent by a caller that waits; which thread writes it does
// not matter.
unsafe impl Send for LentBuffers {}

impl LentBuffers {
    /// # Safety
    /// The buffers may be written as long as the value is there.
    pub(crate) unsafe fn new(buffers: &mut [&mut [u8]]) -> LentBuffers {
        let raw = |buffer: &mut &mut [u8]| (buffer.as_mut_ptr(), buffer.len());
        let rest: Vec<_> = buffers.iter_mut().map(raw).collect();
        LentBuffers { rest: rest.into_iter(), now: (std::ptr::null_mut(), 0) }
    }

    /// Takes the room for the next bytes out of the lent buffers, as much as there is; the caller fills
    /// it.
    pub(crate) fn split(&mut self, mut length: usize) -> LentBuffers {
        let mut parts = Vec::new();
        while length > 0 {
            let (into, room) = self.now;
            let part = room.min(length);
            if part == 0 {
                let Some(next) = self.rest.next() else { break };
                self.now = next;
                continue;
            }
            parts.push((into, part));
            // SAFETY: at most the end of the buffer.
            self.now = (unsafe { into.add(part) }, room - part);
            length -= part;
        }
        LentBuffers { rest: parts.into_iter(), now: (std::ptr::null_mut(), 0) }
    }

    /// Writes the next bytes; bytes beyond the last buffer are dropped.
    ///
    /// # Safety
    /// So many bytes are at `from`.
    pub(crate) unsafe fn write(&mut self, mut from: *const u8, mut length: usize) {
        while length > 0 {
            let (into, room) = self.now;
            let part = room.min(length);
            if part == 0 {
                let Some(next) = self.rest.next() else { return };
                self.now = next;
                continue;
            }
            // SAFETY: inside of the lent buffers and of the range that the caller promises. It may be
            // window memory, which changes or overlaps as documented for gets.
            unsafe {
                into.copy_from(from, part);
                self.now = (into.add(part), room - part);
                from = from.add(part);
            }
            length -= part;
        }
    }
}
