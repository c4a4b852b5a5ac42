//! The arrays that a stream receives, and how much of each has arrived.

use alloc::vec::Vec;

/// The size of an array on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArraySize {
    /// The parameter.
    pub argument: u16,
    /// Bytes.
    pub bytes: u64,
}

/// The arrays that a stream receives in one direction.
#[derive(Debug, Default)]
pub struct IncomingArrays {
    parts: Vec<(ArraySize, u64)>,
    missing: u64,
}

impl IncomingArrays {
    /// Arrays of these sizes, of which nothing has arrived.
    pub fn new(sizes: &[ArraySize]) -> IncomingArrays {
        let missing = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(size.bytes));
        IncomingArrays { parts: sizes.iter().map(|size| (*size, 0)).collect(), missing }
    }

    /// Adds an array.
    pub fn push(&mut self, size: ArraySize) {
        self.parts.push((size, 0));
        self.missing = self.missing.saturating_add(size.bytes);
    }

    /// Whether all arrays are complete.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// The offset of the next `length` bytes of an array; `None`: they would go beyond its end.
    pub fn offset(&self, argument: u16, length: u64) -> Option<u64> {
        let (size, got) = self.parts.iter().find(|(size, _)| size.argument == argument)?;
        (length <= size.bytes - got).then_some(*got)
    }

    /// Notes that `length` bytes have arrived, for which [`IncomingArrays::offset`] gave an offset.
    pub fn add(&mut self, argument: u16, length: u64) {
        for (size, got) in &mut self.parts {
            if size.argument == argument {
                let taken = length.min(size.bytes - *got);
                *got += taken;
                self.missing -= taken;
            }
        }
    }
}
