//! Static library with the `main` of the executables that `kumi call build` links: a call slot.

use std::ffi::{CStr, c_int};

use kumi_call_parallel::RankLibrary;
use kumi_call_slot::Linked;

/// `KUMI_U8` of `kumi.h`.
const U8: c_int = 1;

/// The `main` of a linked executable; the generated source calls it.
///
/// # Safety
/// As for [`kumi_call_slot::main`]; the generator guarantees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_slot_main(routines: *const Linked, count: usize) -> c_int {
    // SAFETY: the caller has promised the same.
    unsafe { kumi_call_slot::main(routines, count) }
}

/// [`kumi_slot_main`] of an executable with parallel routines, which also needs the ranks' library.
///
/// # Safety
/// As [`kumi_slot_main`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_slot_parallel_main(routines: *const Linked, count: usize) -> c_int {
    // SAFETY: the caller has promised the same.
    unsafe { kumi_call_parallel::parallel_main(routines, count, &Library) }
}

/// `libkumi`, linked into the executable.
struct Library;

/// The error of a library function.
fn said(what: &str, result: c_int) -> Result<c_int, String> {
    if result >= 0 {
        return Ok(result);
    }
    let detail = kumi::kumi_error_detail();
    if detail.is_null() {
        return Err(format!("{what} has failed with {result}"));
    }
    // SAFETY: the library gives a text that ends with a zero, and keeps it until this thread calls it again.
    let detail = unsafe { CStr::from_ptr(detail) };
    Err(format!("{what} has failed with {result}: {}", detail.to_string_lossy()))
}

impl RankLibrary for Library {
    fn join(&self) -> Result<u32, String> {
        said("kumi_init", kumi::kumi_init())?;
        said("kumi_rank", kumi::kumi_rank()).map(c_int::cast_unsigned)
    }

    fn broadcast(&self, bytes: &mut [u8]) -> Result<(), String> {
        let (data, count) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: so many bytes may be read and written there for the length of the call.
        let result = unsafe { kumi::kumi_broadcast(0, data, count, U8) };
        said("kumi_broadcast", result).map(|_| ())
    }

    fn barrier(&self) -> Result<(), String> {
        said("kumi_barrier", kumi::kumi_barrier()).map(|_| ())
    }

    fn leave(&self) -> Result<(), String> {
        said("kumi_finalize", kumi::kumi_finalize()).map(|_| ())
    }
}
