//! Collective operations. All are one piece of [`TypedOperation`] work, so that one place selects the element type, which is
//! known only at run time.

use std::ffi::{c_int, c_void};

use kumi_mem::{Context, Error, Group, Scalar};

use crate::args::{
    TypedOperation, check, disjoint, dispatch, elements, input, output, with_elements,
};
use crate::call::{CallArrays, CollectiveCall, GroupCall, GroupMember, ReductionResult};
use crate::code::{Code, Failure};
use crate::group::{KumiGroup, Operation, find};
use crate::state::with;

/// A collective of a group.
struct Work<'s> {
    context: &'s Context,
    group: &'s Group<'static>,
    call: CollectiveCall,
}

/// Does a collective of a group.
///
/// # Safety
/// The arrays of the call have as many elements as it says.
pub(crate) unsafe fn complete(
    group: *mut KumiGroup,
    make: impl for<'s> FnOnce(GroupMember<'s>) -> Result<GroupCall<'s>, Failure>,
) -> c_int {
    with(|state| {
        let GroupCall { member, kind, call } = make(GroupMember::of(state, group)?)?;
        dispatch(kind, Work { context: state.context, group: member.group, call })
    })
}

/// Reductions up to this many elements need no heap.
const SMALL: usize = 8;

impl TypedOperation for Work<'_> {
    type Output = ();

    fn run<T: Scalar>(self) -> Result<(), Failure> {
        let Work { context, group, call } = self;
        match call {
            CollectiveCall::Broadcast { root, data, count } => {
                let broadcast = |data: &mut [T]| group.broadcast(root, data);
                // SAFETY: the caller of `complete` promises `count` elements.
                unsafe { with_elements(context, data, count, "data", broadcast) }
            }
            CollectiveCall::Reduce { wanted, arrays, op } => reduce::<T>(group, wanted, arrays, op),
            CollectiveCall::Gather { root, counts, arrays } => {
                moved(context, arrays, |send: &[T], recv| match &counts {
                    Some(counts) => group.gatherv(root, send, counts, recv),
                    None => group.gather(root, send, recv),
                })
            }
            CollectiveCall::Scatter { root, counts, arrays } => {
                moved(context, arrays, |send: &[T], recv| match &counts {
                    Some(counts) => group.scatterv(root, send, counts, recv),
                    None => group.scatter(root, send, recv),
                })
            }
            CollectiveCall::Allgather { counts, arrays } => {
                moved(context, arrays, |send: &[T], recv| match &counts {
                    Some(counts) => group.allgatherv(send, counts, recv),
                    None => group.allgather(send, recv),
                })
            }
            CollectiveCall::Alltoall { counts, arrays } => {
                moved(context, arrays, |send: &[T], recv| match &counts {
                    Some((sent, received)) => group.alltoallv(send, sent, recv, received),
                    None => group.alltoall(send, recv),
                })
            }
            CollectiveCall::ReduceScatter { counts, arrays, op } => {
                moved(context, arrays, |send: &[T], recv| match &counts {
                    Some(counts) => group.reduce_scatterv(op, send, counts, recv),
                    None => group.reduce_scatter(op, send, recv),
                })
            }
        }
    }
}

/// Runs `body` with both arrays of a call, which do not overlap. (The caller of [`complete`] promises their elements.)
fn moved<T: Scalar>(
    context: &Context,
    arrays: CallArrays,
    body: impl FnOnce(&[T], &mut [T]) -> Result<(), Error>,
) -> Result<(), Failure> {
    let CallArrays { send, sent, recv, received } = arrays;
    let bytes = |count: usize| count.saturating_mul(size_of::<T>());
    disjoint(send, bytes(sent), recv, bytes(received))?;
    // SAFETY: the caller of `complete` promises the elements; they do not overlap.
    let send = unsafe { elements(context, send, sent, "send") }?;
    // SAFETY: as above.
    unsafe { with_elements(context, recv, received, "recv", |recv| body(&send, recv)) }
}

/// The runtime reduces in place, `send` and `recv` may be one array, and both may be a window's memory: reduces a copy.
fn reduce<T: Scalar>(
    group: &Group<'_>,
    wanted: ReductionResult,
    arrays: CallArrays,
    op: Operation,
) -> Result<(), Failure> {
    let CallArrays { send, sent: count, recv, .. } = arrays;
    check(send.cast::<T>(), count, "send")?;
    let bytes = count * size_of::<T>();
    // SAFETY: the caller of `complete` promises `count` elements.
    let send = unsafe { input(send, bytes, "send") }?;
    let result_here = !matches!(wanted, ReductionResult::Root(root) if root != group.member());
    let (mut small, mut large);
    let work = if count <= SMALL {
        small = [T::default(); SMALL];
        &mut small[..count]
    } else {
        large = Vec::new();
        large.try_reserve_exact(count).map_err(|_| Failure::from(Code::Memory))?;
        large.resize(count, T::default());
        &mut large[..]
    };
    send.copy_to(T::bytes_mut(work));
    if result_here {
        // Checked before the exchange, so that a bad pointer is refused
        // rather than found when the others have gone on.
        check(recv.cast::<T>(), count, "recv")?;
    }
    match wanted {
        ReductionResult::Root(root) => group.reduce(root, op, work)?,
        ReductionResult::All => group.allreduce(op, work)?,
        ReductionResult::Scan => group.scan(op, work)?,
        ReductionResult::ExclusiveScan => group.exclusive_scan(op, work)?,
    }
    // The first member of an exclusive scan has no result.
    if result_here && !(matches!(wanted, ReductionResult::ExclusiveScan) && group.member() == 0) {
        // SAFETY: as above.
        let recv = unsafe { output(recv, bytes, "recv") }?;
        recv.copy_from(T::bytes(work));
    }
    Ok(())
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_group_barrier(group: *mut KumiGroup) -> c_int {
    with(|state| Ok(find(state, group)?.barrier()?))
}

/// See `kumi.h`.
///
/// # Safety
/// `data` points to `count` elements of the type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_broadcast(
    group: *mut KumiGroup,
    root: c_int,
    data: *mut c_void,
    count: usize,
    kind: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.broadcast(root, data, count, kind)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `send` points to `count` elements of the type; so does `recv` on the root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_reduce(
    group: *mut KumiGroup,
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.reduce(root, send, recv, count, kind, op)) }
}

/// See `kumi.h`.
///
/// # Safety
/// `send` and `recv` each point to `count` elements of the type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_allreduce(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.allreduce(send, recv, count, kind, op)) }
}

/// See `kumi.h`.
///
/// # Safety
/// As [`kumi_group_allreduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_scan(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.scan(send, recv, count, kind, op)) }
}

/// See `kumi.h`.
///
/// # Safety
/// As [`kumi_group_allreduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_exclusive_scan(
    group: *mut KumiGroup,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
    op: c_int,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { complete(group, |member| member.exclusive_scan(send, recv, count, kind, op)) }
}
