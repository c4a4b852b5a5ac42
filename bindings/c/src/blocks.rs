//! Collective operations of blocks, a different one for each member or pair of members.

use std::ffi::{c_int, c_void};

use crate::collective::complete;
use crate::group::KumiGroup;

/// See `kumi.h`.
///
/// # Safety
/// `send` points to `count` elements of the type; `recv` on the root to that many for each member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_gather(
    group: *mut KumiGroup,
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.gather(root, send, recv, count, kind)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `send` points to `count` elements of the type. On the root `counts` has an entry for each member, and `recv` as many
/// elements as these say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_gatherv(
    group: *mut KumiGroup,
    root: c_int,
    send: *const c_void,
    count: usize,
    recv: *mut c_void,
    counts: *const usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.gatherv(root, send, count, recv, counts, kind)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `recv` points to `count` elements of the type; `send` on the root to that many for each member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_scatter(
    group: *mut KumiGroup,
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.scatter(root, send, recv, count, kind)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `recv` points to `count` elements of the type. On the root `counts` has an entry for each member, and `send` as many
/// elements as these say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_scatterv(
    group: *mut KumiGroup,
    root: c_int,
    send: *const c_void,
    counts: *const usize,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.scatterv(root, send, counts, recv, count, kind)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `send` points to `count` elements of the type, `recv` to that many for each member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_allgather(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.allgather(send, recv, count, kind)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `counts` has an entry for each member, `send` as many elements as this member's says, `recv` as many as all say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_allgatherv(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.allgatherv(send, recv, counts, kind)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `send` and `recv` each point to `count_per_member` elements for each member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_alltoall(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count_per_member: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.alltoall(send, recv, count_per_member, kind)) }
}

/// See `kumi.h`.
///
/// # Safety
/// The count arrays have an entry for each member, the others as many elements as the counts say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_alltoallv(
    group: *mut KumiGroup,
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        complete(group, |member| member.alltoallv(send, send_counts, recv, recv_counts, kind))
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `recv` points to `count` elements of the type, `send` to that many for each member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_reduce_scatter(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.reduce_scatter(send, recv, count, kind, op)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `counts` has an entry for each member, `send` as many elements as all say, `recv` as many as this member's says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_reduce_scatterv(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    kind: c_int,
    op: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.reduce_scatterv(send, recv, counts, kind, op)) }
}
