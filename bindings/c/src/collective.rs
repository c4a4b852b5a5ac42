//! Collective operations. All are one piece of [`TypedOperation`] work, so that one place selects the element type, which is
//! known only at run time.

use std::ffi::{c_int, c_void};

use kumi_mem::{Context, Error, Group, Scalar};

use crate::args::{
    TypedOperation, check, disjoint, dispatch, elements, input, output, rank, with_elements,
};
use crate::code::{Code, Failure};
use crate::group::{KumiGroup, Operation, find};
use crate::state::{State, with};

/// A collective of a group.
pub(crate) struct Work<'c> {
    context: &'c Context,
    group: &'c Group<'static>,
    call: Call<'c>,
}

/// The sent and the received array of a call, and their elements.
#[derive(Clone, Copy)]
pub(crate) struct Arrays {
    pub(crate) send: *const c_void,
    pub(crate) sent: usize,
    pub(crate) recv: *mut c_void,
    pub(crate) received: usize,
}

/// Who gets the result of a reduction.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    Root(u32),
    All,
    /// Those of the members up to each.
    Scan,
    /// Those of the members before each.
    ExclusiveScan,
}

pub(crate) enum Call<'c> {
    Broadcast { root: u32, data: *mut c_void, count: usize },
    Reduce { wanted: Wanted, arrays: Arrays, op: Operation },
    Gather { root: u32, counts: Option<&'c [usize]>, arrays: Arrays },
    Scatter { root: u32, counts: Option<&'c [usize]>, arrays: Arrays },
    Allgather { counts: Option<&'c [usize]>, arrays: Arrays },
    Alltoall { counts: Option<(&'c [usize], &'c [usize])>, arrays: Arrays },
    ReduceScatter { counts: Option<&'c [usize]>, arrays: Arrays, op: Operation },
}

/// Does a collective of a group with elements of a `kumi_type`.
///
/// # Safety
/// The arrays of the call have as many elements as it says.
pub(crate) unsafe fn collective(
    state: &State,
    group: &Group<'static>,
    kind: c_int,
    call: Call<'_>,
) -> Result<(), Failure> {
    dispatch(kind, Work { context: state.context, group, call })
}

/// `count` for every member of a group.
pub(crate) fn times_members(group: &Group<'_>, count: usize) -> Result<usize, Failure> {
    let members = group.members() as usize;
    count.checked_mul(members).ok_or_else(|| {
        let text = format!("{count} elements for each of {members} members are too many");
        Failure::new(Code::Length, text)
    })
}

/// The sum of the blocks' lengths.
pub(crate) fn total(counts: &[usize]) -> Result<usize, Failure> {
    counts
        .iter()
        .try_fold(0usize, |sum, count| sum.checked_add(*count))
        .ok_or_else(|| Failure::new(Code::Length, "the sum of the counts is too large"))
}

/// Reductions up to this many elements need no heap.
const SMALL: usize = 8;

impl TypedOperation for Work<'_> {
    fn run<T: Scalar>(self) -> Result<(), Failure> {
        let Work { context, group, call } = self;
        match call {
            Call::Broadcast { root, data, count } => {
                let broadcast = |data: &mut [T]| group.broadcast(root, data);
                // SAFETY: the caller of `collective` promises `count` elements.
                unsafe { with_elements(context, data, count, "data", broadcast) }
            }
            Call::Reduce { wanted, arrays, op } => reduce::<T>(group, wanted, arrays, op),
            Call::Gather { root, counts, arrays } => {
                moved(context, arrays, |send: &[T], recv| match counts {
                    Some(counts) => group.gatherv(root, send, counts, recv),
                    None => group.gather(root, send, recv),
                })
            }
            Call::Scatter { root, counts, arrays } => {
                moved(context, arrays, |send: &[T], recv| match counts {
                    Some(counts) => group.scatterv(root, send, counts, recv),
                    None => group.scatter(root, send, recv),
                })
            }
            Call::Allgather { counts, arrays } => {
                moved(context, arrays, |send: &[T], recv| match counts {
                    Some(counts) => group.allgatherv(send, counts, recv),
                    None => group.allgather(send, recv),
                })
            }
            Call::Alltoall { counts, arrays } => {
                moved(context, arrays, |send: &[T], recv| match counts {
                    Some((sent, received)) => group.alltoallv(send, sent, recv, received),
                    None => group.alltoall(send, recv),
                })
            }
            Call::ReduceScatter { counts, arrays, op } => {
                moved(context, arrays, |send: &[T], recv| match counts {
                    Some(counts) => group.reduce_scatterv(op, send, counts, recv),
                    None => group.reduce_scatter(op, send, recv),
                })
            }
        }
    }
}

/// Runs `body` with both arrays of a call, which do not overlap. (The caller of [`collective`] promises their elements.)
fn moved<T: Scalar>(
    context: &Context,
    arrays: Arrays,
    body: impl FnOnce(&[T], &mut [T]) -> Result<(), Error>,
) -> Result<(), Failure> {
    let Arrays { send, sent, recv, received } = arrays;
    let bytes = |count: usize| count.saturating_mul(size_of::<T>());
    disjoint(send, bytes(sent), recv, bytes(received))?;
    // SAFETY: the caller of `collective` promises the elements; they do not overlap.
    let send = unsafe { elements(context, send, sent, "send") }?;
    // SAFETY: as above.
    unsafe { with_elements(context, recv, received, "recv", |recv| body(&send, recv)) }
}

/// The runtime reduces in place, `send` and `recv` may be one array, and both may be a window's memory: reduces a copy.
fn reduce<T: Scalar>(
    group: &Group<'_>,
    wanted: Wanted,
    arrays: Arrays,
    op: Operation,
) -> Result<(), Failure> {
    let Arrays { send, sent: count, recv, .. } = arrays;
    check(send.cast::<T>(), count, "send")?;
    let bytes = count * size_of::<T>();
    // SAFETY: the caller of `collective` promises `count` elements.
    let send = unsafe { input(send, bytes, "send") }?;
    let result_here = !matches!(wanted, Wanted::Root(root) if root != group.member());
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
        Wanted::Root(root) => group.reduce(root, op, work)?,
        Wanted::All => group.allreduce(op, work)?,
        Wanted::Scan => group.scan(op, work)?,
        Wanted::ExclusiveScan => group.exclusive_scan(op, work)?,
    }
    // The first member of an exclusive scan has no result.
    if result_here && !(matches!(wanted, Wanted::ExclusiveScan) && group.member() == 0) {
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
    with(|state| {
        let call = Call::Broadcast { root: rank(root)?, data, count };
        // SAFETY: promised by the caller.
        unsafe { collective(state, find(state, group)?, kind, call) }
    })
}

/// A reduction of `count` elements.
///
/// # Safety
/// `send` points to as many, and so does `recv` where the result is wanted.
unsafe fn reduction(
    state: &State,
    group: &Group<'static>,
    wanted: Wanted,
    arrays: Arrays,
    (kind, op): (c_int, c_int),
) -> Result<(), Failure> {
    let call = Call::Reduce { wanted, arrays, op: Operation::of(state, op, kind)? };
    // SAFETY: promised by the caller.
    unsafe { collective(state, group, kind, call) }
}

/// The arrays of a reduction.
pub(crate) fn both(send: *const c_void, recv: *mut c_void, count: usize) -> Arrays {
    Arrays { send, sent: count, recv, received: count }
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
    with(|state| {
        let (group, wanted) = (find(state, group)?, Wanted::Root(rank(root)?));
        // SAFETY: promised by the caller.
        unsafe { reduction(state, group, wanted, both(send, recv, count), (kind, op)) }
    })
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
    with(|state| {
        let group = find(state, group)?;
        // SAFETY: promised by the caller.
        unsafe { reduction(state, group, Wanted::All, both(send, recv, count), (kind, op)) }
    })
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
    with(|state| {
        let group = find(state, group)?;
        // SAFETY: promised by the caller.
        unsafe { reduction(state, group, Wanted::Scan, both(send, recv, count), (kind, op)) }
    })
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
    with(|state| {
        let (group, wanted) = (find(state, group)?, Wanted::ExclusiveScan);
        // SAFETY: promised by the caller.
        unsafe { reduction(state, group, wanted, both(send, recv, count), (kind, op)) }
    })
}
