//! The `main` of an executable with parallel routines, which is a slot or a rank.

use std::ffi::c_int;

use kumi_call_slot::Linked;
use kumi_call_slot::native::{ended, exits_fail, leaves, main_with_jobs, table};

use crate::RankLibrary;
use crate::proxy::ProxyJobStarter;

/// The `main` of an executable with parallel routines. It runs as a slot, or as a rank of a job that another
/// such process has started.
///
/// # Safety
/// As [`kumi_call_slot::main`].
pub unsafe fn parallel_main(
    routines: *const Linked,
    count: usize,
    ranks: &(dyn RankLibrary + std::panic::RefUnwindSafe),
) -> c_int {
    if !crate::is_rank() {
        // SAFETY: as the caller has promised.
        return unsafe { main_with_jobs(routines, count, Some(&ProxyJobStarter)) };
    }
    // SAFETY: as the caller has promised.
    let routines = unsafe { table(routines, count) };
    exits_fail();
    let ran = std::panic::catch_unwind(|| crate::rank::run(routines, ranks));
    leaves();
    ended(ran)
}
