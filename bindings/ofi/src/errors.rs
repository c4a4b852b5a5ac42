//! Errors as the core's callers know them, and the border that no panic crosses.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};

use crate::abi;
pub use crate::abi::{
    FI_EAGAIN, FI_EBUSY, FI_EINVAL, FI_EMSGSIZE, FI_ENODATA, FI_ENODEV, FI_ENOENT, FI_ENOMEM,
    FI_ENOPROTOOPT, FI_ENOSYS, FI_EOPNOTSUPP,
};
use crate::engine::Errno;

/// An error that has no other number.
pub const FI_EOTHER: Errno = abi::FI_EOTHER as Errno;
/// The buffer is too small.
pub const FI_ETOOSMALL: Errno = abi::FI_ETOOSMALL as Errno;
/// Not in this state of the object.
pub const FI_EOPBADSTATE: Errno = abi::FI_EOPBADSTATE as Errno;
/// An error waits to be read.
pub const FI_EAVAIL: Errno = abi::FI_EAVAIL as Errno;
/// A flag is not known here.
pub const FI_EBADFLAGS: Errno = abi::FI_EBADFLAGS as Errno;
/// An endpoint without an address vector.
pub const FI_ENOAV: Errno = abi::FI_ENOAV as Errno;
/// An endpoint without a completion queue or counter.
pub const FI_ENOCQ: Errno = abi::FI_ENOCQ as Errno;

/// What a callback comes to. Errors are positive here and negative for the caller.
pub type Answer<T> = Result<T, Errno>;

/// A callback that answers 0 or an error.
pub fn status(body: impl FnOnce() -> Answer<()>) -> c_int {
    number(|| body().map(|()| 0))
}

/// A callback that answers a count or an error.
pub fn number(body: impl FnOnce() -> Answer<c_int>) -> c_int {
    match caught(body) {
        Ok(count) => count,
        Err(error) => -error,
    }
}

/// A callback that answers a length or an error.
pub fn length(body: impl FnOnce() -> Answer<usize>) -> isize {
    match caught(body) {
        Ok(length) => isize::try_from(length).unwrap_or(isize::MAX),
        Err(error) => -(error as isize),
    }
}

/// A callback of a data transfer, which answers 0 or an error.
pub fn transfer(body: impl FnOnce() -> Answer<()>) -> isize {
    length(|| body().map(|()| 0))
}

/// A panic must not unwind into C: it becomes `FI_EOTHER`. The hook has told its reason.
pub fn caught<T>(body: impl FnOnce() -> Answer<T>) -> Answer<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(FI_EOTHER))
}

/// From now on a panic of this library is one line on standard error.
pub fn tell_panics_in_one_line() {
    set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let reason =
            text.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason");
        let text = reason.replace('\n', " ");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        eprintln!("kumi: a mistake in libkumi-fi.so ({place}): {text}; please report it");
    }));
}

/// Fails unless all bits of `flags` are among `known`.
pub fn only(flags: u64, known: u64) -> Answer<()> {
    if flags & !known == 0 { Ok(()) } else { Err(FI_EBADFLAGS) }
}

/// Fails with `error` unless `condition`.
pub fn ensure(condition: bool, error: Errno) -> Answer<()> {
    if condition { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_negative_errors_and_panics_are_caught() {
        assert_eq!(status(|| Ok(())), 0);
        assert_eq!(status(|| Err(FI_EINVAL)), -22);
        assert_eq!(length(|| Ok(7)), 7);
        assert_eq!(length(|| Err(FI_EAGAIN)), -11);
        assert_eq!(transfer(|| panic!("on purpose")), -256);
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert_eq!(only(3, 3), Ok(()));
        assert_eq!(only(4, 3), Err(FI_EBADFLAGS));
    }
}
