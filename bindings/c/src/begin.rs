//! Collective operations that are requests.

use std::ffi::{c_int, c_void};

use kumi_mem::{CollectiveKind, Op, Report, RequestHandle, Scalar};

use crate::args::{TypedOperation, check, disjoint, dispatch, input, output};
use crate::call::{CallArrays, CollectiveCall, GroupCall, GroupMember, ReductionResult};
use crate::code::Failure;
use crate::group::{KumiGroup, Operation, find};
use crate::request::{KumiReport, start};
use crate::state::State;

/// A collective to be started.
struct Begin<'s> {
    member: GroupMember<'s>,
    call: CollectiveCall,
    report: Report<'s>,
}

/// Starts a collective of a group.
///
/// # Safety
/// The arrays of the call have as many elements as it says and stay until the request has ended; `report` is null or points
/// to a report, `request` is null or points to memory for a handle.
unsafe fn begin(
    group: *mut KumiGroup,
    report: *const KumiReport,
    request: *mut u64,
    make: impl for<'s> FnOnce(GroupMember<'s>) -> Result<GroupCall<'s>, Failure>,
) -> c_int {
    let body = |state: &State, report: Report<'_>| {
        let GroupCall { member, kind, call } = make(GroupMember::of(state, group)?)?;
        dispatch(kind, Begin { member, call, report })
    };
    // SAFETY: promised by the caller.
    unsafe { start(report, request, body) }
}

impl TypedOperation for Begin<'_> {
    type Output = RequestHandle;

    fn run<T: Scalar>(self) -> Result<RequestHandle, Failure> {
        // Calls that combine nothing do not look at it.
        let none = Operation::Own(Op::Sum);
        match &self.call {
            CollectiveCall::Broadcast { root, data, count } => {
                check(data.cast::<T>(), *count, "data")?;
                let (send, recv) = (std::ptr::null(), *data);
                let arrays = CallArrays { send, sent: 0, recv, received: *count };
                self.start::<T>(CollectiveKind::Broadcast { root: *root }, arrays, none)
            }
            CollectiveCall::Reduce { wanted, arrays, op } => {
                self.reduce::<T>(*wanted, *arrays, *op)
            }
            CollectiveCall::Gather { root, counts, arrays } => {
                let kind = match counts {
                    Some(counts) => CollectiveKind::GatherEach { root: *root, counts },
                    None => CollectiveKind::Gather { root: *root },
                };
                self.moved::<T>(kind, *arrays, none)
            }
            CollectiveCall::Scatter { root, counts, arrays } => {
                let kind = match counts {
                    Some(counts) => CollectiveKind::ScatterEach { root: *root, counts },
                    None => CollectiveKind::Scatter { root: *root },
                };
                self.moved::<T>(kind, *arrays, none)
            }
            CollectiveCall::Allgather { counts, arrays } => {
                let each = counts.as_ref().map(|counts| CollectiveKind::AllgatherEach { counts });
                self.moved::<T>(each.unwrap_or(CollectiveKind::Allgather), *arrays, none)
            }
            CollectiveCall::Alltoall { counts, arrays } => {
                let each = |(send, receive)| CollectiveKind::AlltoallEach { send, receive };
                let counts = counts.as_ref().map(|(send, receive)| (&send[..], &receive[..]));
                let kind = counts.map_or(CollectiveKind::Alltoall, each);
                self.moved::<T>(kind, *arrays, none)
            }
            CollectiveCall::ReduceScatter { counts, arrays, op } => {
                let each = |counts| CollectiveKind::ReduceScatterEach { counts };
                let kind = counts.as_deref().map_or(CollectiveKind::ReduceScatter, each);
                self.moved::<T>(kind, *arrays, *op)
            }
        }
    }
}

impl Begin<'_> {
    /// One whose arrays do not overlap.
    fn moved<T: Scalar>(
        &self,
        kind: CollectiveKind<'_>,
        arrays: CallArrays,
        op: Operation,
    ) -> Result<RequestHandle, Failure> {
        let CallArrays { send, sent, recv, received } = arrays;
        let bytes = |count: usize| count.saturating_mul(size_of::<T>());
        disjoint(send, bytes(sent), recv, bytes(received))?;
        self.start::<T>(kind, arrays, op)
    }

    fn reduce<T: Scalar>(
        &self,
        wanted: ReductionResult,
        arrays: CallArrays,
        op: Operation,
    ) -> Result<RequestHandle, Failure> {
        let (kind, here) = match wanted {
            ReductionResult::Root(root) => {
                (CollectiveKind::Reduce { root }, root == self.member.group.member())
            }
            ReductionResult::All => (CollectiveKind::Allreduce, true),
            ReductionResult::Scan => (CollectiveKind::Scan, true),
            ReductionResult::ExclusiveScan => (CollectiveKind::ExclusiveScan, true),
        };
        let received = if here { arrays.received } else { 0 };
        self.start::<T>(kind, CallArrays { received, ..arrays }, op)
    }

    fn start<T: Scalar>(
        &self,
        kind: CollectiveKind<'_>,
        CallArrays { send, sent, recv, received }: CallArrays,
        op: Operation,
    ) -> Result<RequestHandle, Failure> {
        check(send.cast::<T>(), sent, "send")?;
        check(recv.cast::<T>(), received, "recv")?;
        let group = self.member.group;
        // SAFETY: the caller of `begin` promises the elements. A reduction that has some has an input, so that it is not in
        // place.
        unsafe {
            let send = input(send, sent * size_of::<T>(), "send")?;
            let recv = output(recv, received * size_of::<T>(), "recv")?;
            Ok(group.start_shared::<T>(kind, send, recv, op, self.report)?)
        }
    }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `report` points to a report or nothing, `request` to memory for a handle or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_ibarrier(
    group: *mut KumiGroup,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    let barrier =
        |state: &State, report: Report<'_>| Ok(find(state, group)?.start_barrier(report)?);
    // SAFETY: promised by the caller.
    unsafe { start(report, request, barrier) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `data` points to `count` elements of the type, which stay until the request has ended; `report` to a report or nothing,
/// `request` to memory for a handle or nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_ibroadcast(
    group: *mut KumiGroup,
    root: c_int,
    data: *mut c_void,
    count: usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { begin(group, report, request, |member| member.broadcast(root, data, count, kind)) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `send` points to `count` elements of the type; so does `recv` on the root. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_ireduce(
    group: *mut KumiGroup,
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
    unsafe {
        begin(group, report, request, |member| member.reduce(root, send, recv, count, kind, op))
    }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `send` and `recv` each point to `count` elements of the type. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_iallreduce(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { begin(group, report, request, |member| member.allreduce(send, recv, count, kind, op)) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// As [`kumi_group_iallreduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_iscan(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { begin(group, report, request, |member| member.scan(send, recv, count, kind, op)) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// As [`kumi_group_iallreduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_iexclusive_scan(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        begin(group, report, request, |member| member.exclusive_scan(send, recv, count, kind, op))
    }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `send` points to `count` elements of the type; `recv` on the root to that many for each member. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_igather(
    group: *mut KumiGroup,
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { begin(group, report, request, |member| member.gather(root, send, recv, count, kind)) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `send` points to `count` elements of the type. On the root `counts` has an entry for each member, and `recv` as many
/// elements as these say. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_igatherv(
    group: *mut KumiGroup,
    root: c_int,
    send: *const c_void,
    count: usize,
    recv: *mut c_void,
    counts: *const usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        begin(group, report, request, |member| {
            member.gatherv(root, send, count, recv, counts, kind)
        })
    }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `recv` points to `count` elements of the type; `send` on the root to that many for each member. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_iscatter(
    group: *mut KumiGroup,
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { begin(group, report, request, |member| member.scatter(root, send, recv, count, kind)) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `recv` points to `count` elements of the type. On the root `counts` has an entry for each member, and `send` as many
/// elements as these say. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_iscatterv(
    group: *mut KumiGroup,
    root: c_int,
    send: *const c_void,
    counts: *const usize,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        begin(group, report, request, |member| {
            member.scatterv(root, send, counts, recv, count, kind)
        })
    }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `send` points to `count` elements of the type, `recv` to that many for each member. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_iallgather(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { begin(group, report, request, |member| member.allgather(send, recv, count, kind)) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `counts` has an entry for each member, `send` as many elements as this member's says, `recv` as many as all say. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_iallgatherv(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { begin(group, report, request, |member| member.allgatherv(send, recv, counts, kind)) }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `send` and `recv` each point to `count_per_member` elements for each member. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_ialltoall(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count_per_member: usize,
    kind: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        begin(group, report, request, |member| member.alltoall(send, recv, count_per_member, kind))
    }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// The count arrays have an entry for each member, the others as many elements as the counts say. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_ialltoallv(
    group: *mut KumiGroup,
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
        begin(group, report, request, |member| {
            member.alltoallv(send, send_counts, recv, recv_counts, kind)
        })
    }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `recv` points to `count` elements of the type, `send` to that many for each member. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_ireduce_scatter(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        begin(group, report, request, |member| member.reduce_scatter(send, recv, count, kind, op))
    }
}

/// See `kumi_groups.h`.
///
/// # Safety
/// `counts` has an entry for each member, `send` as many elements as all say, `recv` as many as this member's says. The rest is as for `kumi_group_ibroadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_ireduce_scatterv(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    counts: *const usize,
    kind: c_int,
    op: c_int,
    report: *const KumiReport,
    request: *mut u64,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        begin(group, report, request, |member| member.reduce_scatterv(send, recv, counts, kind, op))
    }
}
