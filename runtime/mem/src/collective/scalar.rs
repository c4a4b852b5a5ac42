//! Element types and reduction operations of the collectives.

use crate::error::Error;

/// A reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Product,
    /// Least; a NaN loses against a number.
    Min,
    /// Greatest; a NaN loses against a number.
    Max,
    /// Bitwise and, integers only.
    BitAnd,
    /// Bitwise or, integers only.
    BitOr,
    /// Bitwise exclusive or, integers only.
    BitXor,
}

impl Op {
    /// The operation that other languages know by a number: `kumi_op` of `kumi.h`, `kumi.Op` in Python.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Op> {
        Some(match number {
            1 => Op::Sum,
            2 => Op::Product,
            3 => Op::Min,
            4 => Op::Max,
            5 => Op::BitAnd,
            6 => Op::BitOr,
            7 => Op::BitXor,
            _ => return None,
        })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// Numbers that can be sent and reduced.
pub trait Scalar: sealed::Sealed + Copy + Default + Send + 'static {
    /// Combines `other` into `into`, element by element.
    ///
    /// # Errors
    /// [`Error::BadOperation`] for a bit operation on floating point numbers.
    #[doc(hidden)]
    fn combine(op: Op, into: &mut [Self], other: &[Self]) -> Result<(), Error>;

    /// The bytes of numbers, for bindings.
    #[doc(hidden)]
    fn bytes(numbers: &[Self]) -> &[u8] {
        bytes(numbers)
    }

    /// The bytes of numbers, to be written, for bindings.
    #[doc(hidden)]
    fn bytes_mut(numbers: &mut [Self]) -> &mut [u8] {
        bytes_mut(numbers)
    }
}

fn each<T: Copy>(into: &mut [T], other: &[T], f: impl Fn(T, T) -> T) {
    for (to, from) in into.iter_mut().zip(other) {
        *to = f(*to, *from);
    }
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl sealed::Sealed for $t {}
        impl Scalar for $t {
            fn combine(op: Op, into: &mut [Self], other: &[Self]) -> Result<(), Error> {
                match op {
                    Op::Sum => each(into, other, <$t>::wrapping_add),
                    Op::Product => each(into, other, <$t>::wrapping_mul),
                    Op::Min => each(into, other, Ord::min),
                    Op::Max => each(into, other, Ord::max),
                    Op::BitAnd => each(into, other, |a, b| a & b),
                    Op::BitOr => each(into, other, |a, b| a | b),
                    Op::BitXor => each(into, other, |a, b| a ^ b),
                }
                Ok(())
            }
        }
    )*};
}

macro_rules! floats {
    ($($t:ty)*) => {$(
        impl sealed::Sealed for $t {}
        impl Scalar for $t {
            fn combine(op: Op, into: &mut [Self], other: &[Self]) -> Result<(), Error> {
                match op {
                    Op::Sum => each(into, other, |a, b| a + b),
                    Op::Product => each(into, other, |a, b| a * b),
                    Op::Min => each(into, other, <$t>::min),
                    Op::Max => each(into, other, <$t>::max),
                    Op::BitAnd => return Err(Error::BadOperation { operation: "BitAnd" }),
                    Op::BitOr => return Err(Error::BadOperation { operation: "BitOr" }),
                    Op::BitXor => return Err(Error::BadOperation { operation: "BitXor" }),
                }
                Ok(())
            }
        }
    )*};
}

integers!(u8 i8 u16 i16 u32 i32 u64 i64);
floats!(f32 f64);

/// The bytes of numbers.
pub(crate) fn bytes<T: Scalar>(data: &[T]) -> &[u8] {
    // SAFETY: scalars have no padding; the range is that of the slice.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

/// The bytes of numbers, to be written.
pub(crate) fn bytes_mut<T: Scalar>(data: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every bit pattern is a valid scalar.
    unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast(), size_of_val(data)) }
}
