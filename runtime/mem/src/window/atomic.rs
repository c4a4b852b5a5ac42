//! Atomic operations on four or eight bytes of a window.
//!
//! On a mapped piece the caller executes them with the processor's own instructions. On a piece reached
//! by frames the target's engine does, with the same instructions. So all of them, and the owner's, are
//! atomic with respect to each other.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use kumi_net::SharedBytesMut;
use kumi_net::counters::Counter;
use kumi_proto::frame::{Operation, Width};

use crate::engine::PlainFrame;
use crate::error::{Error, Refusal};
use crate::request::table::PendingRequest;
use crate::window::Window;
use crate::window::table::{Access, check};

/// An atomic operation and its operands. Operands of a four-byte operation are below 2^32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtomicOperation {
    pub(crate) operation: Operation,
    pub(crate) width: Width,
    pub(crate) operand: u64,
    pub(crate) operand2: u64,
}

macro_rules! apply {
    ($cell:expr, $operation:expr, $operand:expr, $operand2:expr) => {{
        let (cell, operand) = ($cell, $operand);
        match $operation {
            Operation::FetchAdd => cell.fetch_add(operand, SeqCst),
            Operation::FetchAnd => cell.fetch_and(operand, SeqCst),
            Operation::FetchOr => cell.fetch_or(operand, SeqCst),
            Operation::FetchXor => cell.fetch_xor(operand, SeqCst),
            Operation::Swap => cell.swap(operand, SeqCst),
            Operation::CompareSwap => {
                match cell.compare_exchange(operand, $operand2, SeqCst, SeqCst) {
                    Ok(before) | Err(before) => before,
                }
            }
        }
    }};
}

impl AtomicOperation {
    /// Does it on as many bytes as the width says; the value before. None if they are not aligned.
    pub(crate) fn apply(self, place: SharedBytesMut<'_>) -> Option<u64> {
        let AtomicOperation { operation, width, operand, operand2 } = self;
        match width {
            Width::Eight => {
                let cell = place.atomic_u64()?;
                Some(apply!(cell, operation, operand, operand2))
            }
            Width::Four => {
                let cell = place.atomic_u32()?;
                // Nothing is cut off: the decoder and the functions below keep to 32 bits.
                Some(u64::from(apply!(cell, operation, operand as u32, operand2 as u32)))
            }
        }
    }
}

/// The six operations for one width.
macro_rules! operations {
    ($number:ty, $width:expr, $bytes:literal, [$add:ident, $and:ident, $or:ident, $xor:ident, $swap:ident, $compare:ident]) => {
        /// Operations on
        #[doc = $bytes]
        /// aligned bytes of the piece of a rank (the own one too), in the machine's byte order.
        ///
        /// Each is atomic with respect to every other operation of this width on the same bytes: those
        /// of all ranks on any node, and the owner's loads and stores through the window. On bytes used
        /// with both widths, each operation is still done at once on the processors that Kumi runs on.
        /// The order in which others see operations of different width is not promised.
        ///
        /// All return the value before, and wait for it. With an error memory is untouched.
        impl Window<'_> {
            /// Adds, wrapping.
            ///
            /// # Errors
            /// As [`Window::get`], and [`Error::BadAlignment`].
            pub fn $add(&self, to: u32, offset: usize, operand: $number) -> Result<$number, Error> {
                self.atomic(to, offset, Operation::FetchAdd, $width, [operand.into(), 0])
                    .map(|value| value as $number)
            }

            /// Ands, bit by bit.
            ///
            /// # Errors
            /// As [`Window::get`], and [`Error::BadAlignment`].
            pub fn $and(&self, to: u32, offset: usize, operand: $number) -> Result<$number, Error> {
                self.atomic(to, offset, Operation::FetchAnd, $width, [operand.into(), 0])
                    .map(|value| value as $number)
            }

            /// Ors, bit by bit.
            ///
            /// # Errors
            /// As [`Window::get`], and [`Error::BadAlignment`].
            pub fn $or(&self, to: u32, offset: usize, operand: $number) -> Result<$number, Error> {
                self.atomic(to, offset, Operation::FetchOr, $width, [operand.into(), 0])
                    .map(|value| value as $number)
            }

            /// Exclusive-ors, bit by bit.
            ///
            /// # Errors
            /// As [`Window::get`], and [`Error::BadAlignment`].
            pub fn $xor(&self, to: u32, offset: usize, operand: $number) -> Result<$number, Error> {
                self.atomic(to, offset, Operation::FetchXor, $width, [operand.into(), 0])
                    .map(|value| value as $number)
            }

            /// Stores a value.
            ///
            /// # Errors
            /// As [`Window::get`], and [`Error::BadAlignment`].
            pub fn $swap(&self, to: u32, offset: usize, value: $number) -> Result<$number, Error> {
                self.atomic(to, offset, Operation::Swap, $width, [value.into(), 0])
                    .map(|value| value as $number)
            }

            /// Stores a value if the old one is as expected. Returns the old value.
            ///
            /// # Errors
            /// As [`Window::get`], and [`Error::BadAlignment`].
            pub fn $compare(
                &self,
                to: u32,
                offset: usize,
                expected: $number,
                value: $number,
            ) -> Result<$number, Error> {
                let operands = [expected.into(), value.into()];
                self.atomic(to, offset, Operation::CompareSwap, $width, operands)
                    .map(|value| value as $number)
            }
        }
    };
}

operations!(
    u64,
    Width::Eight,
    "eight",
    [fetch_add, fetch_and, fetch_or, fetch_xor, swap, compare_swap]
);
operations!(
    u32,
    Width::Four,
    "four",
    [fetch_add_u32, fetch_and_u32, fetch_or_u32, fetch_xor_u32, swap_u32, compare_swap_u32]
);

impl Window<'_> {
    /// Reads eight aligned bytes of the own memory at once, in the machine's byte order.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::BadAlignment`].
    pub fn load_u64(&self, offset: usize) -> Result<u64, Error> {
        let place = self.own(offset, 8)?;
        Ok(place.atomic_u64().ok_or_else(|| misaligned(offset, 8))?.load(Acquire))
    }

    /// Writes eight aligned bytes of the own memory at once.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::BadAlignment`].
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), Error> {
        let place = self.own(offset, 8)?;
        place.atomic_u64().ok_or_else(|| misaligned(offset, 8))?.store(value, Release);
        Ok(())
    }

    /// Reads four aligned bytes of the own memory at once, in the machine's byte order.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::BadAlignment`].
    pub fn load_u32(&self, offset: usize) -> Result<u32, Error> {
        let place = self.own(offset, 4)?;
        Ok(place.atomic_u32().ok_or_else(|| misaligned(offset, 4))?.load(Acquire))
    }

    /// Writes four aligned bytes of the own memory at once.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::BadAlignment`].
    pub fn store_u32(&self, offset: usize, value: u32) -> Result<(), Error> {
        let place = self.own(offset, 4)?;
        place.atomic_u32().ok_or_else(|| misaligned(offset, 4))?.store(value, Release);
        Ok(())
    }

    /// Of operands that fit the width.
    pub(crate) fn atomic(
        &self,
        to: u32,
        offset: usize,
        operation: Operation,
        width: Width,
        [operand, operand2]: [u64; 2],
    ) -> Result<u64, Error> {
        let (at, bytes) = (offset as u64, width.bytes());
        if let Some((_, mapped)) = self.mapped(to) {
            let mapped = mapped?;
            check(mapped.rights, mapped.size, at, bytes, Access::Atomic)
                .map_err(|reason| self.refused(to, offset, bytes as usize, reason))?;
            self.context.attachment().count(Counter::DirectAtomics, 1);
            let atomic = AtomicOperation { operation, width, operand, operand2 };
            let done = atomic.apply(mapped.writable().slice(offset, bytes as usize));
            return done
                .ok_or_else(|| self.refused(to, offset, bytes as usize, Refusal::Alignment));
        }
        self.context.check_rank(to)?;
        let window = self.keys[to as usize];
        let frame = |token| PlainFrame::AtomicRequest {
            token,
            window,
            offset: at,
            operation,
            width,
            operand,
            operand2,
        };
        self.context
            .request(to, PendingRequest::Value, frame)?
            .map_err(|reason| self.refused(to, offset, bytes as usize, reason))
    }
}

#[cold]
fn misaligned(offset: usize, bytes: u64) -> Error {
    Error::BadAlignment { offset: offset as u64, width: bytes }
}
