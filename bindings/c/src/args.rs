//! Checks of arguments from C: pointers, lengths, ranks, tags, types.

use std::ffi::{c_int, c_void};
use std::slice;

use kumi_mem::{Error, Op, Scalar, Source, Tag, any_overlap};

use crate::code::{Code, Failure};

/// No object can be larger: Rust's slices end here, and so does C's
/// `PTRDIFF_MAX`.
const LARGEST: usize = isize::MAX as usize;

fn check<T>(pointer: *const T, count: usize, what: &str) -> Result<(), Failure> {
    let bytes = count.checked_mul(size_of::<T>()).filter(|n| *n <= LARGEST);
    if bytes.is_none() {
        let text = format!("{what}: {count} elements are more than memory can hold");
        return Err(Failure::new(Code::Length, text));
    }
    if count > 0 && pointer.is_null() {
        let text = format!("{what} is NULL but {count} elements are needed");
        return Err(Failure::new(Code::Null, text));
    }
    if count > 0 && !pointer.is_aligned() {
        let text = format!("{what} is not aligned to {} bytes", align_of::<T>());
        return Err(Failure::new(Code::Alignment, text));
    }
    Ok(())
}

/// The caller's array as a slice.
///
/// # Safety
/// If `pointer` is not null it points to `count` initialised elements that
/// nobody writes during `'a`.
pub unsafe fn input<'a, T: Copy>(
    pointer: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    check(pointer, count, what)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: checked above: not null, aligned, not longer than an object can
    // be; the rest is promised by the caller.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// The caller's array as a slice to write to.
///
/// # Safety
/// If `pointer` is not null it points to `count` elements that nobody else
/// reads or writes during `'a`.
pub unsafe fn output<'a, T: Copy>(
    pointer: *mut T,
    count: usize,
    what: &str,
) -> Result<&'a mut [T], Failure> {
    check(pointer, count, what)?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `input`.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, count) })
}

/// Two arrays of one call that must not overlap, in bytes.
pub fn disjoint(
    a: *const c_void,
    a_bytes: usize,
    b: *const c_void,
    b_bytes: usize,
) -> Result<(), Failure> {
    if any_overlap(&mut [(a.addr(), a_bytes), (b.addr(), b_bytes)]) {
        return Err(Failure::new(
            Code::Length,
            "the buffer that is sent and the one that is received into overlap",
        ));
    }
    Ok(())
}

/// Writes through an output pointer that may be NULL.
///
/// # Safety
/// If `pointer` is not null it points to memory for a `T`.
pub unsafe fn store<T>(pointer: *mut T, value: T) -> Result<(), Failure> {
    check(pointer, usize::from(!pointer.is_null()), "an output")?;
    if !pointer.is_null() {
        // SAFETY: not null and aligned; the caller promises the rest.
        unsafe { pointer.write(value) };
    }
    Ok(())
}

/// An output pointer that must be there.
pub fn required<T>(pointer: *mut T, what: &str) -> Result<(), Failure> {
    check(pointer, 1, what)
}

/// A rank; whether the job has it is checked by the runtime.
pub fn rank(number: c_int) -> Result<u32, Failure> {
    u32::try_from(number)
        .map_err(|_| Failure::new(Code::Rank, format!("there is no rank {number}")))
}

/// A rank or `KUMI_ANY_SOURCE`.
pub fn source(number: c_int) -> Result<Source, Failure> {
    if number == -1 {
        return Ok(Source::Any);
    }
    Ok(Source::Rank(rank(number)?))
}

/// A tag that a message is sent with.
pub fn tag(number: c_int) -> Result<i32, Failure> {
    if number < 0 {
        let text = format!("tag {number} is negative; tags are 0 or greater");
        return Err(Failure::new(Code::Tag, text));
    }
    Ok(number)
}

/// A tag or `KUMI_ANY_TAG`.
pub fn tag_pattern(number: c_int) -> Result<Tag, Failure> {
    if number == -1 {
        return Ok(Tag::Any);
    }
    Ok(Tag::Is(tag(number)?))
}

/// A `kumi_op`.
pub fn operation(number: c_int) -> Result<Op, Failure> {
    let unknown = || Failure::new(Code::Operation, format!("{number} is not a kumi_op"));
    Op::from_number(number).ok_or_else(unknown)
}

/// Work that is the same for every element type.
pub trait TypedOperation {
    /// Does it for elements of type `T`.
    fn run<T: Scalar>(self) -> Result<(), Failure>;
}

/// Does `work` for a `kumi_type`.
pub fn dispatch(kind: c_int, work: impl TypedOperation) -> Result<(), Failure> {
    match kind {
        1 => work.run::<u8>(),
        2 => work.run::<i8>(),
        3 => work.run::<u16>(),
        4 => work.run::<i16>(),
        5 => work.run::<u32>(),
        6 => work.run::<i32>(),
        7 => work.run::<u64>(),
        8 => work.run::<i64>(),
        9 => work.run::<f32>(),
        10 => work.run::<f64>(),
        _ => Err(Failure::new(Code::Type, format!("{kind} is not a kumi_type"))),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::NotLaunched => Code::NotLaunched,
            Error::Forked => Code::Forked,
            Error::Attach(_) => Code::Attach,
            Error::BadRank { .. } => Code::Rank,
            Error::BadTag { .. } => Code::Tag,
            Error::OutOfBounds { .. } => Code::Bounds,
            Error::Truncated { .. } => Code::Truncated,
            Error::NoRight { .. } => Code::Right,
            Error::BadWindow { .. } => Code::Window,
            Error::BadNotify { .. } => Code::Notify,
            Error::BadAlignment { .. } => Code::Alignment,
            Error::BadOperation { .. } => Code::Operation,
            Error::BadLength { .. } | Error::NeverDone { .. } => Code::Length,
            Error::OutOfMemory { .. } | Error::WindowRefused { .. } | Error::Unread { .. } => {
                Code::Memory
            }
            Error::Refused { .. } => Code::Refused,
            Error::ForeignCompletion => Code::Completion,
            Error::Fault(_) => Code::Fault,
            Error::BadFifo { .. } | Error::NoFifo { .. } => Code::Fifo,
            Error::FifoFull { .. } => Code::Full,
            Error::RecordTooLong { .. } | Error::FifoTooSmall { .. } => Code::Length,
            Error::ShortBuffer { .. } => Code::Truncated,
            Error::FifoDamaged { .. } => Code::Damaged,
            Error::HandlerPanicked { .. } => Code::Handler,
            Error::Io(_) | Error::Unreachable { .. } => Code::Io,
            _ => Code::Other,
        };
        Failure::new(code, error.to_string())
    }
}
