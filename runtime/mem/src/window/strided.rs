//! Strided blocks: equal length, equal distances.

use kumi_net::{CopySource, SharedBytes, SharedBytesMut};

use crate::error::Error;

/// The blocks of a strided put or get in a window: for example a column of a matrix. On the caller's
/// side the blocks follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strided {
    /// Where the first block begins, in bytes.
    pub offset: usize,
    /// From the start of a block to that of the next, in bytes; at least `block`.
    pub stride: usize,
    /// Bytes of a block.
    pub block: usize,
    /// How many blocks.
    pub count: usize,
}

impl Strided {
    /// Checks that the blocks do not overlap and make up `bytes` bytes together.
    ///
    /// # Errors
    /// [`Error::BadLength`].
    pub(crate) fn check(&self, bytes: usize) -> Result<(), Error> {
        if self.stride < self.block && self.count > 1 {
            let (given, needed) = (self.stride, self.block);
            return Err(Error::BadLength { what: "the stride in bytes", given, needed });
        }
        match self.block.checked_mul(self.count) {
            Some(needed) if needed == bytes => Ok(()),
            needed => {
                let needed = needed.unwrap_or(usize::MAX);
                Err(Error::BadLength { what: "the data in bytes", given: bytes, needed })
            }
        }
    }

    /// As a frame and the memory it reaches say it: not empty, and checked.
    pub(crate) fn shape(&self) -> Shape {
        let (stride, block) = (self.stride.max(self.block) as u64, self.block as u64);
        Shape { offset: self.offset as u64, stride, block, count: self.count as u64 }
    }
}

/// The same, of any numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) offset: u64,
    pub(crate) stride: u64,
    pub(crate) block: u64,
    pub(crate) count: u64,
}

impl Shape {
    /// One piece.
    pub(crate) fn whole(offset: u64, length: u64) -> Shape {
        Shape { offset, stride: length, block: length, count: 1 }
    }

    /// Bytes from the first to the last of all blocks: more than any window has if that is no
    /// number. As blocks follow each other, all are inside of a window if this range is.
    pub(crate) fn span(&self) -> u64 {
        let before_last = self.count.saturating_sub(1).checked_mul(self.stride);
        before_last.and_then(|bytes| bytes.checked_add(self.block)).unwrap_or(u64::MAX)
    }

    /// Copies whole blocks into window memory, which begins and ends as they do.
    pub(crate) fn scatter(&self, to: SharedBytesMut<'_>, data: impl CopySource) {
        if self.count == 1 {
            return to.copy_from(data);
        }
        let (stride, block) = (self.stride as usize, self.block as usize);
        let (mut rest, mut at) = (data, 0);
        while !rest.is_empty() {
            let (first, behind) = rest.split_at(block);
            to.slice(at, block).copy_from(first);
            (rest, at) = (behind, at + stride);
        }
    }

    /// Copies from window memory, which begins and ends as the blocks do: the bytes from `at` on, one block after the
    /// other. The blocks have so many.
    pub(crate) fn gather(&self, from: SharedBytes<'_>, at: usize, mut into: SharedBytesMut<'_>) {
        let (stride, block) = (self.stride as usize, self.block as usize);
        let mut at = at;
        while !into.is_empty() {
            let (index, inside) = (at / block, at % block);
            let (piece, behind) = into.split_at((block - inside).min(into.len()));
            piece.copy_from(from.slice(index * stride + inside, piece.len()));
            (into, at) = (behind, at + piece.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::table::{Access, Rights, check};
    use proptest::prelude::*;

    #[test]
    fn a_shape_that_is_none_is_refused() {
        let shape = |stride, block, count| Strided { offset: 0, stride, block, count };
        assert!(shape(8, 8, 3).check(24).is_ok());
        assert!(shape(0, 8, 1).check(8).is_ok(), "one block has no next one");
        assert!(shape(0, 0, 9).check(0).is_ok());
        assert!(matches!(shape(7, 8, 3).check(24), Err(Error::BadLength { needed: 8, .. })));
        assert!(matches!(shape(8, 8, 3).check(23), Err(Error::BadLength { needed: 24, .. })));
        let huge = shape(usize::MAX, usize::MAX, 2).check(5);
        assert!(matches!(huge, Err(Error::BadLength { .. })));
    }

    proptest! {
        /// One check of the span says what a check of every block says.
        #[test]
        fn the_span_is_inside_if_every_block_is(
            offset in prop_oneof![0u64..40, u64::MAX - 40..u64::MAX],
            stride in prop_oneof![1u64..20, u64::MAX / 3..u64::MAX],
            block in 1u64..20,
            count in 1u64..6,
        ) {
            prop_assume!(stride >= block);
            let shape = Shape { offset, stride, block, count };
            let one = |start, length| check(Rights::ALL, 64, start, length, Access::Write).is_ok();
            let each = (0..count).all(|index| {
                let start = index.checked_mul(stride).and_then(|bytes| bytes.checked_add(offset));
                start.is_some_and(|start| one(start, block))
            });
            prop_assert_eq!(one(offset, shape.span()), each);
        }
    }
}
