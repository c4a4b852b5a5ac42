//! Collective operations of blocks, a different one for each member or pair of members.

use std::ffi::{c_int, c_void};

use kumi_mem::Group;

use crate::args::{list, rank};
use crate::code::Failure;
use crate::collective::{Arrays, Call, collective, times_members, total};
use crate::group::{KumiGroup, Operation, find};
use crate::state::with;

/// A list of counts, one for each member.
///
/// # Safety
/// There are as many.
unsafe fn counts_of(
    group: &Group<'_>,
    counts: *const usize,
    what: &str,
) -> Result<Vec<usize>, Failure> {
    // SAFETY: promised by the caller.
    unsafe { list(counts, group.members() as usize, what) }
}

/// The same for a list that only the root has, and how many elements there are in all.
///
/// # Safety
/// At the root, there are as many.
unsafe fn counts_at(
    group: &Group<'_>,
    root: u32,
    counts: *const usize,
) -> Result<(Vec<usize>, usize), Failure> {
    if group.member() != root {
        return Ok((Vec::new(), 0));
    }
    // SAFETY: promised by the caller.
    let counts = unsafe { counts_of(group, counts, "counts") }?;
    let all = total(&counts)?;
    Ok((counts, all))
}

/// `count` for each member at the root, nothing at others.
fn all_at(group: &Group<'_>, root: u32, count: usize) -> Result<usize, Failure> {
    if group.member() == root { times_members(group, count) } else { Ok(0) }
}

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
    with(|state| {
        let (group, root) = (find(state, group)?, rank(root)?);
        let arrays = Arrays { send, sent: count, recv, received: all_at(group, root, count)? };
        // SAFETY: promised by the caller.
        unsafe { collective(state, group, kind, Call::Gather { root, counts: None, arrays }) }
    })
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
    with(|state| {
        let (group, root) = (find(state, group)?, rank(root)?);
        // SAFETY: promised by the caller.
        let (counts, received) = unsafe { counts_at(group, root, counts) }?;
        let (counts, arrays) = (Some(&counts[..]), Arrays { send, sent: count, recv, received });
        // SAFETY: promised by the caller.
        unsafe { collective(state, group, kind, Call::Gather { root, counts, arrays }) }
    })
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
    with(|state| {
        let (group, root) = (find(state, group)?, rank(root)?);
        let arrays = Arrays { send, sent: all_at(group, root, count)?, recv, received: count };
        // SAFETY: promised by the caller.
        unsafe { collective(state, group, kind, Call::Scatter { root, counts: None, arrays }) }
    })
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
    with(|state| {
        let (group, root) = (find(state, group)?, rank(root)?);
        // SAFETY: promised by the caller.
        let (counts, sent) = unsafe { counts_at(group, root, counts) }?;
        let (counts, arrays) = (Some(&counts[..]), Arrays { send, sent, recv, received: count });
        // SAFETY: promised by the caller.
        unsafe { collective(state, group, kind, Call::Scatter { root, counts, arrays }) }
    })
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
    with(|state| {
        let group = find(state, group)?;
        let arrays = Arrays { send, sent: count, recv, received: times_members(group, count)? };
        // SAFETY: promised by the caller.
        unsafe { collective(state, group, kind, Call::Allgather { counts: None, arrays }) }
    })
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
    with(|state| {
        let group = find(state, group)?;
        // SAFETY: promised by the caller.
        let counts = unsafe { counts_of(group, counts, "counts") }?;
        let (sent, received) = (counts[group.member() as usize], total(&counts)?);
        let (counts, arrays) = (Some(&counts[..]), Arrays { send, sent, recv, received });
        // SAFETY: promised by the caller.
        unsafe { collective(state, group, kind, Call::Allgather { counts, arrays }) }
    })
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
    with(|state| {
        let group = find(state, group)?;
        let all = times_members(group, count_per_member)?;
        let arrays = Arrays { send, sent: all, recv, received: all };
        // SAFETY: promised by the caller.
        unsafe { collective(state, group, kind, Call::Alltoall { counts: None, arrays }) }
    })
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
    with(|state| {
        let group = find(state, group)?;
        // SAFETY: promised by the caller.
        let send_counts = unsafe { counts_of(group, send_counts, "send_counts") }?;
        // SAFETY: promised by the caller.
        let recv_counts = unsafe { counts_of(group, recv_counts, "recv_counts") }?;
        let (sent, received) = (total(&send_counts)?, total(&recv_counts)?);
        let counts = Some((&send_counts[..], &recv_counts[..]));
        let arrays = Arrays { send, sent, recv, received };
        // SAFETY: promised by the caller.
        unsafe { collective(state, group, kind, Call::Alltoall { counts, arrays }) }
    })
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
    with(|state| {
        let (group, op) = (find(state, group)?, Operation::of(state, op, kind)?);
        let arrays = Arrays { send, sent: times_members(group, count)?, recv, received: count };
        let call = Call::ReduceScatter { counts: None, arrays, op };
        // SAFETY: promised by the caller.
        unsafe { collective(state, group, kind, call) }
    })
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
    with(|state| {
        let (group, op) = (find(state, group)?, Operation::of(state, op, kind)?);
        // SAFETY: promised by the caller.
        let counts = unsafe { counts_of(group, counts, "counts") }?;
        let (sent, received) = (total(&counts)?, counts[group.member() as usize]);
        let (counts, arrays) = (Some(&counts[..]), Arrays { send, sent, recv, received });
        // SAFETY: promised by the caller.
        unsafe { collective(state, group, kind, Call::ReduceScatter { counts, arrays, op }) }
    })
}
