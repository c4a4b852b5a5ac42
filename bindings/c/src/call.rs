//! Calls of collectives, as C makes them: checked as far as they do not depend on the type of the elements.

use std::ffi::{c_int, c_void};

use kumi_mem::Group;

use crate::args::{list, rank};
use crate::code::{Code, Failure};
use crate::group::{KumiGroup, Operation, find};
use crate::state::State;

/// The sent and the received array of a call, and their elements.
#[derive(Clone, Copy)]
pub(crate) struct CallArrays {
    pub(crate) send: *const c_void,
    pub(crate) sent: usize,
    pub(crate) recv: *mut c_void,
    pub(crate) received: usize,
}

/// Who gets the result of a reduction.
#[derive(Clone, Copy)]
pub(crate) enum ReductionResult {
    Root(u32),
    All,
    /// Those of the members up to each.
    Scan,
    /// Those of the members before each.
    ExclusiveScan,
}

/// A collective.
pub(crate) enum CollectiveCall {
    Broadcast { root: u32, data: *mut c_void, count: usize },
    Reduce { wanted: ReductionResult, arrays: CallArrays, op: Operation },
    Gather { root: u32, counts: Option<Vec<usize>>, arrays: CallArrays },
    Scatter { root: u32, counts: Option<Vec<usize>>, arrays: CallArrays },
    Allgather { counts: Option<Vec<usize>>, arrays: CallArrays },
    Alltoall { counts: Option<(Vec<usize>, Vec<usize>)>, arrays: CallArrays },
    ReduceScatter { counts: Option<Vec<usize>>, arrays: CallArrays, op: Operation },
}

/// A collective with its group and the `kumi_type` of its elements.
pub(crate) struct GroupCall<'s> {
    pub(crate) member: GroupMember<'s>,
    pub(crate) kind: c_int,
    pub(crate) call: CollectiveCall,
}

/// A member of a group, which calls.
#[derive(Clone, Copy)]
pub(crate) struct GroupMember<'s> {
    pub(crate) state: &'s State,
    pub(crate) group: &'s Group<'static>,
}

type Made<'s> = Result<GroupCall<'s>, Failure>;

/// The sum of the blocks' lengths.
fn total(counts: &[usize]) -> Result<usize, Failure> {
    counts
        .iter()
        .try_fold(0usize, |sum, count| sum.checked_add(*count))
        .ok_or_else(|| Failure::new(Code::Length, "the sum of the counts is too large"))
}

/// The arrays of a reduction.
fn both(send: *const c_void, recv: *mut c_void, count: usize) -> CallArrays {
    CallArrays { send, sent: count, recv, received: count }
}

impl<'s> GroupMember<'s> {
    /// The member of the group behind a handle.
    pub(crate) fn of(state: &'s State, handle: *mut KumiGroup) -> Result<GroupMember<'s>, Failure> {
        Ok(GroupMember { state, group: find(state, handle)? })
    }

    fn calls(self, kind: c_int, call: CollectiveCall) -> Made<'s> {
        Ok(GroupCall { member: self, kind, call })
    }

    /// `count` for every member of a group.
    fn times_members(self, count: usize) -> Result<usize, Failure> {
        let members = self.group.members() as usize;
        count.checked_mul(members).ok_or_else(|| {
            let text = format!("{count} elements for each of {members} members are too many");
            Failure::new(Code::Length, text)
        })
    }

    /// `count` for each member at the root, nothing at others.
    fn all_at(self, root: u32, count: usize) -> Result<usize, Failure> {
        if self.group.member() == root { self.times_members(count) } else { Ok(0) }
    }

    /// A list of counts, one for each member.
    ///
    /// # Safety
    /// There are as many.
    unsafe fn counts(self, counts: *const usize, what: &str) -> Result<Vec<usize>, Failure> {
        // SAFETY: promised by the caller.
        unsafe { list(counts, self.group.members() as usize, what) }
    }

    /// The same for a list that only the root has, and how many elements there are in all.
    ///
    /// # Safety
    /// At the root, there are as many.
    unsafe fn counts_at(
        self,
        root: u32,
        counts: *const usize,
    ) -> Result<(Vec<usize>, usize), Failure> {
        if self.group.member() != root {
            return Ok((Vec::new(), 0));
        }
        // SAFETY: promised by the caller.
        let counts = unsafe { self.counts(counts, "counts") }?;
        let all = total(&counts)?;
        Ok((counts, all))
    }

    fn reduces(
        self,
        wanted: ReductionResult,
        arrays: CallArrays,
        (kind, op): (c_int, c_int),
    ) -> Made<'s> {
        let op = Operation::of(self.state, op, kind)?;
        self.calls(kind, CollectiveCall::Reduce { wanted, arrays, op })
    }

    /// `kumi_group_broadcast`.
    pub(crate) fn broadcast(
        self,
        root: c_int,
        data: *mut c_void,
        count: usize,
        kind: c_int,
    ) -> Made<'s> {
        self.calls(kind, CollectiveCall::Broadcast { root: rank(root)?, data, count })
    }

    /// `kumi_group_reduce`.
    pub(crate) fn reduce(
        self,
        root: c_int,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        kind: c_int,
        op: c_int,
    ) -> Made<'s> {
        self.reduces(ReductionResult::Root(rank(root)?), both(send, recv, count), (kind, op))
    }

    /// `kumi_group_allreduce`.
    pub(crate) fn allreduce(
        self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        kind: c_int,
        op: c_int,
    ) -> Made<'s> {
        self.reduces(ReductionResult::All, both(send, recv, count), (kind, op))
    }

    /// `kumi_group_scan`.
    pub(crate) fn scan(
        self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        kind: c_int,
        op: c_int,
    ) -> Made<'s> {
        self.reduces(ReductionResult::Scan, both(send, recv, count), (kind, op))
    }

    /// `kumi_group_exclusive_scan`.
    pub(crate) fn exclusive_scan(
        self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        kind: c_int,
        op: c_int,
    ) -> Made<'s> {
        self.reduces(ReductionResult::ExclusiveScan, both(send, recv, count), (kind, op))
    }

    /// `kumi_group_gather`.
    pub(crate) fn gather(
        self,
        root: c_int,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        kind: c_int,
    ) -> Made<'s> {
        let root = rank(root)?;
        let arrays = CallArrays { send, sent: count, recv, received: self.all_at(root, count)? };
        self.calls(kind, CollectiveCall::Gather { root, counts: None, arrays })
    }

    /// `kumi_group_gatherv`.
    ///
    /// # Safety
    /// On the root `counts` has an entry for each member.
    pub(crate) unsafe fn gatherv(
        self,
        root: c_int,
        send: *const c_void,
        count: usize,
        recv: *mut c_void,
        counts: *const usize,
        kind: c_int,
    ) -> Made<'s> {
        let root = rank(root)?;
        // SAFETY: promised by the caller.
        let (counts, received) = unsafe { self.counts_at(root, counts) }?;
        let arrays = CallArrays { send, sent: count, recv, received };
        self.calls(kind, CollectiveCall::Gather { root, counts: Some(counts), arrays })
    }

    /// `kumi_group_scatter`.
    pub(crate) fn scatter(
        self,
        root: c_int,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        kind: c_int,
    ) -> Made<'s> {
        let root = rank(root)?;
        let arrays = CallArrays { send, sent: self.all_at(root, count)?, recv, received: count };
        self.calls(kind, CollectiveCall::Scatter { root, counts: None, arrays })
    }

    /// `kumi_group_scatterv`.
    ///
    /// # Safety
    /// On the root `counts` has an entry for each member.
    pub(crate) unsafe fn scatterv(
        self,
        root: c_int,
        send: *const c_void,
        counts: *const usize,
        recv: *mut c_void,
        count: usize,
        kind: c_int,
    ) -> Made<'s> {
        let root = rank(root)?;
        // SAFETY: promised by the caller.
        let (counts, sent) = unsafe { self.counts_at(root, counts) }?;
        let arrays = CallArrays { send, sent, recv, received: count };
        self.calls(kind, CollectiveCall::Scatter { root, counts: Some(counts), arrays })
    }

    /// `kumi_group_allgather`.
    pub(crate) fn allgather(
        self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        kind: c_int,
    ) -> Made<'s> {
        let arrays = CallArrays { send, sent: count, recv, received: self.times_members(count)? };
        self.calls(kind, CollectiveCall::Allgather { counts: None, arrays })
    }

    /// `kumi_group_allgatherv`.
    ///
    /// # Safety
    /// `counts` has an entry for each member.
    pub(crate) unsafe fn allgatherv(
        self,
        send: *const c_void,
        recv: *mut c_void,
        counts: *const usize,
        kind: c_int,
    ) -> Made<'s> {
        // SAFETY: promised by the caller.
        let counts = unsafe { self.counts(counts, "counts") }?;
        let (sent, received) = (counts[self.group.member() as usize], total(&counts)?);
        let arrays = CallArrays { send, sent, recv, received };
        self.calls(kind, CollectiveCall::Allgather { counts: Some(counts), arrays })
    }

    /// `kumi_group_alltoall`.
    pub(crate) fn alltoall(
        self,
        send: *const c_void,
        recv: *mut c_void,
        count_per_member: usize,
        kind: c_int,
    ) -> Made<'s> {
        let all = self.times_members(count_per_member)?;
        self.calls(kind, CollectiveCall::Alltoall { counts: None, arrays: both(send, recv, all) })
    }

    /// `kumi_group_alltoallv`.
    ///
    /// # Safety
    /// Both lists of counts have an entry for each member.
    pub(crate) unsafe fn alltoallv(
        self,
        send: *const c_void,
        send_counts: *const usize,
        recv: *mut c_void,
        recv_counts: *const usize,
        kind: c_int,
    ) -> Made<'s> {
        // SAFETY: promised by the caller.
        let send_counts = unsafe { self.counts(send_counts, "send_counts") }?;
        // SAFETY: promised by the caller.
        let recv_counts = unsafe { self.counts(recv_counts, "recv_counts") }?;
        let (sent, received) = (total(&send_counts)?, total(&recv_counts)?);
        let arrays = CallArrays { send, sent, recv, received };
        self.calls(
            kind,
            CollectiveCall::Alltoall { counts: Some((send_counts, recv_counts)), arrays },
        )
    }

    /// `kumi_group_reduce_scatter`.
    pub(crate) fn reduce_scatter(
        self,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        kind: c_int,
        op: c_int,
    ) -> Made<'s> {
        let op = Operation::of(self.state, op, kind)?;
        let arrays = CallArrays { send, sent: self.times_members(count)?, recv, received: count };
        self.calls(kind, CollectiveCall::ReduceScatter { counts: None, arrays, op })
    }

    /// `kumi_group_reduce_scatterv`.
    ///
    /// # Safety
    /// `counts` has an entry for each member.
    pub(crate) unsafe fn reduce_scatterv(
        self,
        send: *const c_void,
        recv: *mut c_void,
        counts: *const usize,
        kind: c_int,
        op: c_int,
    ) -> Made<'s> {
        let op = Operation::of(self.state, op, kind)?;
        // SAFETY: promised by the caller.
        let counts = unsafe { self.counts(counts, "counts") }?;
        let (sent, received) = (total(&counts)?, counts[self.group.member() as usize]);
        let arrays = CallArrays { send, sent, recv, received };
        self.calls(kind, CollectiveCall::ReduceScatter { counts: Some(counts), arrays, op })
    }
}
