//! Start, end, own rank, and explanations of errors.

use std::ffi::{c_char, c_int};

use crate::args::input;
use crate::code::{Code, Failure, keep_detail, last_detail, text_of};
use crate::state::{finalise, guard, initialise, value, with};

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_init() -> c_int {
    guard(|| initialise(false))
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_init_threads(level: c_int) -> c_int {
    guard(|| match level {
        0 => initialise(false),
        1 => initialise(true),
        _ => Err(Failure::new(Code::Length, format!("{level} is not a KUMI_THREAD_ number"))),
    })
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_finalize() -> c_int {
    guard(finalise)
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_rank() -> c_int {
    value(|state| Ok(number(state.context.rank())))
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_size() -> c_int {
    value(|state| Ok(number(state.context.ranks())))
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_node() -> c_int {
    value(|state| Ok(number(state.context.node())))
}

/// Ranks and nodes are far fewer than `c_int` can count.
fn number(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_job() -> u64 {
    let mut job = 0;
    let _ = with(|state| {
        job = state.context.job();
        Ok(())
    });
    job
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_time() -> f64 {
    let mut time = -1.0;
    let _ = with(|state| {
        time = state.context.time();
        Ok(())
    });
    time
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_error_string(error: c_int) -> *const c_char {
    text_of(error).as_ptr()
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_error_detail() -> *const c_char {
    last_detail()
}

/// See `kumi.h`.
///
/// # Safety
/// `detail` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_error_report(
    error: c_int,
    detail: *const c_char,
    length: usize,
) -> c_int {
    guard(|| {
        // SAFETY: promised by the caller.
        keep_detail(&unsafe { input(detail.cast(), length, "detail") }?.to_vec());
        Ok(())
    });
    error
}

/// The crate's version with the zero that C wants at the end.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_version() -> *const c_char {
    VERSION.as_ptr().cast()
}
