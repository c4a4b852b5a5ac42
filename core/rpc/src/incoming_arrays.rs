//! What has come of the arrays of a stream.

use alloc::vec::Vec;

/// How many bytes of an array travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArraySize {
    /// The parameter.
    pub argument: u16,
    /// Bytes.
    pub bytes: u64,
}

/// The arrays of one direction of a stream.
#[derive(Debug, Default)]
pub struct IncomingArrays {
    parts: Vec<(ArraySize, u64)>,
    missing: u64,
}

impl IncomingArrays {
    /// Nothing has come of these.
    pub fn new(sizes: &[ArraySize]) -> IncomingArrays {
        let missing = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(size.bytes));
        IncomingArrays { parts: sizes.iter().map(|size| (*size, 0)).collect(), missing }
    }

    /// Something more is to come.
    pub fn push(&mut self, size: ArraySize) {
        self.parts.push((size, 0));
        self.missing = self.missing.saturating_add(size.bytes);
    }

    /// Whether all has come.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Where the next `length` bytes of an array belong; `None`: it has no room for them.
    pub fn offset(&self, argument: u16, length: u64) -> Option<u64> {
        let (size, got) = self.parts.iter().find(|(size, _)| size.argument == argument)?;
        (length <= size.bytes - got).then_some(*got)
    }

    /// Notes that `length` bytes have come, for which [`IncomingArrays::offset`] had a place.
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
