//! The collective operations of all ranks: those of the job's group, by the names that they have in `kumi.h`.

use std::ffi::{c_int, c_void};

use crate::begin::{
    kumi_group_iallreduce, kumi_group_ialltoall, kumi_group_ialltoallv, kumi_group_ibarrier,
    kumi_group_ibroadcast, kumi_group_igather, kumi_group_ireduce,
};
use crate::blocks::{kumi_group_alltoall, kumi_group_alltoallv, kumi_group_gather};
use crate::collective::{
    kumi_group_allreduce, kumi_group_barrier, kumi_group_broadcast, kumi_group_reduce,
};
use crate::group::job;
use crate::request::KumiReport;

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_barrier() -> c_int {
    kumi_group_barrier(job())
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `count` elements of the type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_broadcast(
    root: c_int,
    data: *mut c_void,
    count: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_broadcast(job(), root, data, count, kind) }
}

/// See `kumi.h`.
///
/// # Safety
/// `send` points to `count` elements of the type; so does `recv` on the root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_reduce(
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_reduce(job(), root, send, recv, count, kind, op) }
}

/// See `kumi.h`.
///
/// # Safety
/// `send` and `recv` each point to `count` elements of the type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_allreduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_allreduce(job(), send, recv, count, kind, op) }
}

/// See `kumi.h`.
///
/// # Safety
/// `send` points to `count` elements of the type; `recv` on the root to that many for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_gather(
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_gather(job(), root, send, recv, count, kind) }
}

/// See `kumi.h`.
///
/// # Safety
/// `send` and `recv` each point to `count_per_rank` elements for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_alltoall(
    send: *const c_void,
    recv: *mut c_void,
    count_per_rank: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_alltoall(job(), send, recv, count_per_rank, kind) }
}

/// See `kumi.h`.
///
/// # Safety
/// The count arrays have an entry for each rank, the others as many elements as the counts say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_alltoallv(
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_alltoallv(job(), send, send_counts, recv, recv_counts, kind) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// As `kumi_group_ibarrier`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_ibarrier(report: *const KumiReport, request: *mut u64) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_ibarrier(job(), report, request) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// As `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_ibroadcast(
    root: c_int,
    data: *mut c_void,
    count: usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_ibroadcast(job(), root, data, count, kind, report, request) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// As `kumi_group_ireduce`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_ireduce(
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_ireduce(job(), root, send, recv, count, kind, op, report, request) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// As `kumi_group_iallreduce`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_iallreduce(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_iallreduce(job(), send, recv, count, kind, op, report, request) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// As `kumi_group_igather`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_igather(
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_igather(job(), root, send, recv, count, kind, report, request) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// As `kumi_group_ialltoall`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_ialltoall(
    send: *const c_void,
    recv: *mut c_void,
    count_per_rank: usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { kumi_group_ialltoall(job(), send, recv, count_per_rank, kind, report, request) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// As `kumi_group_ialltoallv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_ialltoallv(
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        kumi_group_ialltoallv(job(), send, send_counts, recv, recv_counts, kind, report, request)
    }
}
