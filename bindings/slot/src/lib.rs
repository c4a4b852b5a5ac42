//! What `kumi call build` links routines with: the process of a call slot.

use std::ffi::c_int;

use kumi_call::slot::Linked;

/// The `main` of a linked executable; the generated source calls it.
///
/// # Safety
/// As [`kumi_call::slot::main`] says, which the generator keeps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_slot_main(routines: *const Linked, count: usize) -> c_int {
    // SAFETY: the caller has promised the same.
    unsafe { kumi_call::slot::main(routines, count) }
}
