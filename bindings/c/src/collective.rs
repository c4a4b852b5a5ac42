//! Collective operations. Each is a small piece of [`TypedOperation`] work, so that one place selects
//! the element type, which is known only at run time.

use std::ffi::{c_int, c_void};

use kumi_mem::{Context, Op, Scalar};

use crate::args::{
    TypedOperation, check, disjoint, dispatch, elements, input, list, operation, output, rank,
    with_elements,
};
use crate::code::{Code, Failure};
use crate::state::with;

/// `count` for every rank of the job.
fn times_ranks(context: &Context, count: usize) -> Result<usize, Failure> {
    let ranks = context.ranks() as usize;
    count.checked_mul(ranks).ok_or_else(|| {
        let text = format!("{count} elements for each of {ranks} ranks are too many");
        Failure::new(Code::Length, text)
    })
}

/// The sum of the blocks' lengths.
fn total(counts: &[usize]) -> Result<usize, Failure> {
    counts
        .iter()
        .try_fold(0usize, |sum, count| sum.checked_add(*count))
        .ok_or_else(|| Failure::new(Code::Length, "the sum of the counts is too large"))
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_barrier() -> c_int {
    with(|state| Ok(state.context.barrier()?))
}

struct Broadcast<'c> {
    context: &'c Context,
    root: u32,
    data: *mut c_void,
    count: usize,
}

impl TypedOperation for Broadcast<'_> {
    fn run<T: Scalar>(self) -> Result<(), Failure> {
        let broadcast = |data: &mut [T]| self.context.broadcast(self.root, data);
        // SAFETY: the caller of `kumi_broadcast` promises `count` elements.
        unsafe { with_elements(self.context, self.data, self.count, "data", broadcast) }
    }
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
    with(|state| {
        let work = Broadcast { context: state.context, root: rank(root)?, data, count };
        dispatch(kind, work)
    })
}

/// Reductions up to this many elements need no heap.
const SMALL: usize = 8;

struct Reduce<'c> {
    context: &'c Context,
    /// The only rank that wants the result, or all.
    root: Option<u32>,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    op: Op,
}

impl TypedOperation for Reduce<'_> {
    fn run<T: Scalar>(self) -> Result<(), Failure> {
        // The runtime reduces in place, `send` and `recv` may be one array, and
        // both may be a window's memory: reduce a copy.
        check(self.send.cast::<T>(), self.count, "send")?;
        let bytes = self.count * size_of::<T>();
        // SAFETY: the caller promises `count` elements.
        let send = unsafe { input(self.send, bytes, "send") }?;
        let wanted = self.root.is_none_or(|root| root == self.context.rank());
        let (mut small, mut large);
        let work = if self.count <= SMALL {
            small = [T::default(); SMALL];
            &mut small[..self.count]
        } else {
            large = Vec::new();
            large.try_reserve_exact(self.count).map_err(|_| Failure::from(Code::Memory))?;
            large.resize(self.count, T::default());
            &mut large[..]
        };
        send.copy_to(T::bytes_mut(work));
        if wanted {
            // Checked before the exchange, so that a bad pointer is refused
            // rather than found when the others have gone on.
            check(self.recv.cast::<T>(), self.count, "recv")?;
        }
        match self.root {
            Some(root) => self.context.reduce(root, self.op, work)?,
            None => self.context.allreduce(self.op, work)?,
        }
        if wanted {
            // SAFETY: as above.
            let recv = unsafe { output(self.recv, bytes, "recv") }?;
            recv.copy_from(T::bytes(work));
        }
        Ok(())
    }
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
    with(|state| {
        let work = Reduce {
            context: state.context,
            root: Some(rank(root)?),
            send,
            recv,
            count,
            op: operation(op)?,
        };
        dispatch(kind, work)
    })
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
    with(|state| {
        let work =
            Reduce { context: state.context, root: None, send, recv, count, op: operation(op)? };
        dispatch(kind, work)
    })
}

struct Gather<'c> {
    context: &'c Context,
    root: u32,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
}

impl TypedOperation for Gather<'_> {
    fn run<T: Scalar>(self) -> Result<(), Failure> {
        let all = if self.root == self.context.rank() {
            times_ranks(self.context, self.count)?
        } else {
            0
        };
        let bytes = |count: usize| count.saturating_mul(size_of::<T>());
        disjoint(self.send, bytes(self.count), self.recv, bytes(all))?;
        // SAFETY: the caller promises the elements; they do not overlap.
        let send = unsafe { elements(self.context, self.send, self.count, "send") }?;
        let gather = |recv: &mut [T]| self.context.gather(self.root, &send, recv);
        // SAFETY: as above.
        unsafe { with_elements(self.context, self.recv, all, "recv", gather) }
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `send` points to `count` elements of the type; `recv` on the root to that
/// many for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_gather(
    root: c_int,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    kind: c_int,
) -> c_int {
    with(|state| {
        let work = Gather { context: state.context, root: rank(root)?, send, recv, count };
        dispatch(kind, work)
    })
}

struct AllToAll<'c> {
    context: &'c Context,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
}

impl TypedOperation for AllToAll<'_> {
    fn run<T: Scalar>(self) -> Result<(), Failure> {
        let all = times_ranks(self.context, self.count)?;
        let bytes = all.saturating_mul(size_of::<T>());
        disjoint(self.send, bytes, self.recv, bytes)?;
        // SAFETY: the caller promises the elements; they do not overlap.
        let send = unsafe { elements(self.context, self.send, all, "send") }?;
        let exchange = |recv: &mut [T]| self.context.alltoall(&send, recv);
        // SAFETY: as above.
        unsafe { with_elements(self.context, self.recv, all, "recv", exchange) }
    }
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
    with(|state| {
        let work = AllToAll { context: state.context, send, recv, count: count_per_rank };
        dispatch(kind, work)
    })
}

struct AllToAllV<'c> {
    context: &'c Context,
    send: *const c_void,
    send_counts: &'c [usize],
    recv: *mut c_void,
    recv_counts: &'c [usize],
}

impl TypedOperation for AllToAllV<'_> {
    fn run<T: Scalar>(self) -> Result<(), Failure> {
        let (out, back) = (total(self.send_counts)?, total(self.recv_counts)?);
        let bytes = |count: usize| count.saturating_mul(size_of::<T>());
        disjoint(self.send, bytes(out), self.recv, bytes(back))?;
        // SAFETY: the caller promises as many elements as the counts say; they
        // do not overlap.
        let send = unsafe { elements(self.context, self.send, out, "send") }?;
        let exchange = |recv: &mut [T]| {
            self.context.alltoallv(&send, self.send_counts, recv, self.recv_counts)
        };
        // SAFETY: as above.
        unsafe { with_elements(self.context, self.recv, back, "recv", exchange) }
    }
}

/// See `kumi.h`.
///
/// # Safety
/// The count arrays have an entry for each rank, the others as many elements
/// as the counts say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_alltoallv(
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
    kind: c_int,
) -> c_int {
    with(|state| {
        let ranks = state.context.ranks() as usize;
        // SAFETY: promised by the caller.
        let send_counts = unsafe { list(send_counts, ranks, "send_counts") }?;
        // SAFETY: promised by the caller.
        let recv_counts = unsafe { list(recv_counts, ranks, "recv_counts") }?;
        let (send_counts, recv_counts) = (&send_counts[..], &recv_counts[..]);
        let work = AllToAllV { context: state.context, send, send_counts, recv, recv_counts };
        dispatch(kind, work)
    })
}
