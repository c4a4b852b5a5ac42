//! Bytes of frames, wherever they lie.

use alloc::vec::Vec;

/// The bytes of a frame or a part of them: a slice, or memory that others may write at any time. Such memory has a type of
/// its own, which is never a slice. What a number or a bound is computed from is made [private](Payload::private) first,
/// so that it is read once.
pub trait Payload: Copy + Default {
    /// How many bytes.
    fn len(self) -> usize;

    /// Whether there are none.
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The first `at` bytes and the others.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    fn split_at(self, at: usize) -> (Self, Self);

    /// The `length` bytes from `start` on.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    #[must_use]
    fn slice(self, start: usize, length: usize) -> Self {
        self.split_at(start).1.split_at(length).0
    }

    /// Copies all bytes.
    ///
    /// # Panics
    /// If `into` is not as long.
    fn copy_to(self, into: &mut [u8]);

    /// Copies all bytes to the end of a vector.
    fn append_to(self, vector: &mut Vec<u8>);

    /// The bytes where nobody else can write them: in `room`, or where they are.
    ///
    /// # Panics
    /// If `room` is not as long.
    fn private<'r>(self, room: &'r mut [u8]) -> &'r [u8]
    where
        Self: 'r;
}

impl Payload for &[u8] {
    #[inline]
    fn len(self) -> usize {
        <[u8]>::len(self)
    }

    #[inline]
    fn split_at(self, at: usize) -> (Self, Self) {
        <[u8]>::split_at(self, at)
    }

    #[inline]
    fn copy_to(self, into: &mut [u8]) {
        into.copy_from_slice(self);
    }

    #[inline]
    fn append_to(self, vector: &mut Vec<u8>) {
        vector.extend_from_slice(self);
    }

    #[inline]
    fn private<'r>(self, _: &'r mut [u8]) -> &'r [u8]
    where
        Self: 'r,
    {
        self
    }
}
