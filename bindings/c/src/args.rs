//! Checks of arguments from C: pointers, lengths, ranks, tags, types.

use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use kumi_mem::{Context, Error, Scalar, SharedBytes, SharedBytesMut, Source, Tag, any_overlap};

use crate::code::{Code, Failure};

/// No object can be larger: Rust's slices end here, and so does C's
/// `PTRDIFF_MAX`.
const LARGEST: usize = isize::MAX as usize;

/// Checks that an array can be where C says.
pub fn check<T>(pointer: *const T, count: usize, what: &str) -> Result<(), Failure> {
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

/// Refuses shared memory. The library reaches for buffers while it holds locks that a page fault needs.
pub fn not_shared(pointer: *const c_void, bytes: usize, what: &str) -> Result<(), Failure> {
    match kumi_dsm::system_calls::is_shared(pointer.cast(), bytes) {
        false => Ok(()),
        true => {
            let text = format!("{what} is in shared memory; copy it to other memory first");
            Err(Failure::new(Code::SharedBuffer, text))
        }
    }
}

/// The caller's bytes, which may be a window's.
///
/// # Safety
/// If `pointer` is not null it points to `length` initialised bytes, which stay during `'a`. Whoever else writes them is
/// no Rust code, or uses them as shared bytes.
pub unsafe fn input<'a>(
    pointer: *const c_void,
    length: usize,
    what: &str,
) -> Result<SharedBytes<'a>, Failure> {
    check(pointer.cast::<u8>(), length, what)?;
    not_shared(pointer, length, what)?;
    let Some(start) = NonNull::new(pointer.cast_mut()).filter(|_| length > 0) else {
        return Ok(SharedBytes::default());
    };
    // SAFETY: checked above: not longer than an object can be; the rest is promised by the caller.
    Ok(unsafe { SharedBytes::new(start.cast(), length) })
}

/// The caller's bytes, to be written; they may be a window's.
///
/// # Safety
/// As [`input`], and they may be written.
pub unsafe fn output<'a>(
    pointer: *mut c_void,
    length: usize,
    what: &str,
) -> Result<SharedBytesMut<'a>, Failure> {
    check(pointer.cast::<u8>(), length, what)?;
    not_shared(pointer, length, what)?;
    let Some(start) = NonNull::new(pointer).filter(|_| length > 0) else {
        return Ok(SharedBytesMut::default());
    };
    // SAFETY: as in `input`.
    Ok(unsafe { SharedBytesMut::new(start.cast(), length) })
}

/// A copy of the caller's array of small things: ranks, counts, pieces.
///
/// # Safety
/// As [`input`], for `count` elements. Any bytes are a `T`.
pub unsafe fn list<T: Copy>(
    pointer: *const T,
    count: usize,
    what: &str,
) -> Result<Vec<T>, Failure> {
    check(pointer, count, what)?;
    // SAFETY: promised by the caller.
    let bytes = unsafe { input(pointer.cast(), count * size_of::<T>(), what) }?;
    let mut list = Vec::<T>::new();
    list.try_reserve_exact(count).map_err(|_| Failure::from(Code::Memory))?;
    let room = list.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    if let Some(room) = NonNull::new(room).filter(|_| count > 0) {
        // SAFETY: room for `count` elements, which nobody else knows of; all are written before they count.
        unsafe {
            SharedBytesMut::new(room, bytes.len()).copy_from(bytes);
            list.set_len(count);
        }
    }
    Ok(list)
}

/// The caller's array of numbers to be combined or moved: where it is, or a copy if it is a window's memory.
///
/// # Safety
/// As [`input`], for `count` elements; nobody writes them during `'a` unless they are a window's memory.
pub unsafe fn elements<'a, T: Scalar>(
    context: &Context,
    pointer: *const c_void,
    count: usize,
    what: &str,
) -> Result<Cow<'a, [T]>, Failure> {
    check(pointer.cast::<T>(), count, what)?;
    not_shared(pointer, count * size_of::<T>(), what)?;
    // SAFETY: aligned, as was checked; the rest is promised by the caller.
    Ok(unsafe { context.elements(pointer.cast(), count) }?)
}

/// Runs `body` with the caller's array of numbers, or with a copy that is written back if it is a window's memory.
///
/// # Safety
/// As [`elements`], and nobody reads them meanwhile unless they are a window's memory.
pub unsafe fn with_elements<T: Scalar>(
    context: &Context,
    pointer: *mut c_void,
    count: usize,
    what: &str,
    body: impl FnOnce(&mut [T]) -> Result<(), Error>,
) -> Result<(), Failure> {
    check(pointer.cast::<T>(), count, what)?;
    not_shared(pointer, count * size_of::<T>(), what)?;
    // SAFETY: as in `elements`.
    Ok(unsafe { context.with_elements(pointer.cast(), count, body) }?)
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

/// Work that is the same for every element type.
pub trait TypedOperation {
    /// What comes of it.
    type Output;

    /// Does it for elements of type `T`.
    fn run<T: Scalar>(self) -> Result<Self::Output, Failure>;
}

/// Does `work` for a `kumi_type`.
pub fn dispatch<W: TypedOperation>(kind: c_int, work: W) -> Result<W::Output, Failure> {
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
            Error::BadRank { .. } | Error::BadMember { .. } => Code::Rank,
            Error::BadMembers { .. } | Error::TooManyGroups => Code::Group,
            Error::GroupDisagrees { .. } => Code::Disagree,
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
            Error::StaleRequest { .. } | Error::NoRequests => Code::Request,
            Error::ForeignRequest { .. } => Code::Foreign,
            Error::RequestListed { .. } => Code::Listed,
            Error::TooManyRequests { .. } => Code::Memory,
            Error::BufferLent => Code::Lent,
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
