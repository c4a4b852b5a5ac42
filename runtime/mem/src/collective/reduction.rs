//! How collectives combine elements: the library's own operations, and a program's.

use std::fmt;

use crate::collective::scalar::{Op, Scalar};
use crate::error::Error;

/// A way to combine elements: an [`Op`], or a program's [`UserOp`]. It is associative.
pub trait Reduction<T> {
    /// Combines `other` into `into`, element by element. `into` has what comes first in the order of members.
    ///
    /// # Errors
    /// [`Error::BadOperation`] if there is no such operation on these elements. It says so for no elements, too.
    fn combine(&self, into: &mut [T], other: &[T]) -> Result<(), Error>;

    /// Whether the order of operands is of no account. Otherwise members' data are combined in the order of members, by
    /// algorithms that are slower for much data.
    fn is_commutative(&self) -> bool {
        true
    }
}

impl<T: Scalar> Reduction<T> for Op {
    fn combine(&self, into: &mut [T], other: &[T]) -> Result<(), Error> {
        T::combine(*self, into, other)
    }
}

impl<T, R: Reduction<T> + ?Sized> Reduction<T> for &R {
    fn combine(&self, into: &mut [T], other: &[T]) -> Result<(), Error> {
        (**self).combine(into, other)
    }

    fn is_commutative(&self) -> bool {
        (**self).is_commutative()
    }
}

/// A program's own operation.
///
/// ```
/// use kumi_mem::{Context, UserOp};
///
/// # fn main() -> Result<(), kumi_mem::Error> {
/// let context = Context::init_singleton()?;
/// // The greatest common divisor of all ranks' numbers.
/// let divisor = |into: &mut [u64], other: &[u64]| {
///     for (a, b) in into.iter_mut().zip(other) {
///         let (mut x, mut y) = (*a, *b);
///         while y != 0 {
///             (x, y) = (y, x % y);
///         }
///         *a = x;
///     }
/// };
/// let mut numbers = [12, 35];
/// context.allreduce(UserOp::commutative(divisor), &mut numbers)?;
/// # assert_eq!(numbers, [12, 35]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct UserOp<F> {
    combine: F,
    commutative: bool,
}

impl<F> UserOp<F> {
    /// An operation that is associative and commutative. `combine(into, other)` combines `other` into `into`, element by
    /// element; both are of one length, which differs from call to call and can be 0.
    ///
    /// It runs during the collective and must not use the context.
    pub fn commutative(combine: F) -> UserOp<F> {
        UserOp { combine, commutative: true }
    }

    /// The same for an operation that is associative only: `into` comes before `other` in the order of members.
    pub fn ordered(combine: F) -> UserOp<F> {
        UserOp { combine, commutative: false }
    }
}

impl<T, F: Fn(&mut [T], &[T])> Reduction<T> for UserOp<F> {
    fn combine(&self, into: &mut [T], other: &[T]) -> Result<(), Error> {
        (self.combine)(into, other);
        Ok(())
    }

    fn is_commutative(&self) -> bool {
        self.commutative
    }
}

impl<F> fmt::Debug for UserOp<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserOp").field("commutative", &self.commutative).finish_non_exhaustive()
    }
}

/// That of collectives that combine nothing.
pub(crate) struct NoReduction;

impl<T> Reduction<T> for NoReduction {
    fn combine(&self, _: &mut [T], _: &[T]) -> Result<(), Error> {
        Ok(())
    }
}
