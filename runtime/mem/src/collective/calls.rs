//! The collectives of groups.

use super::same_length;
use crate::collective::reduction::Reduction;
use crate::collective::scalar::Scalar;
use crate::collective::schedule::{Call, Counts, starts};
use crate::error::Error;
use crate::group::Group;
use crate::group::tag::Collective;

/// How many elements the blocks have together.
fn total(counts: &[usize]) -> usize {
    starts(counts.iter().copied())[counts.len()]
}

impl Group<'_> {
    pub(super) fn times_members(&self, block: usize) -> usize {
        block.saturating_mul(self.members() as usize)
    }

    fn check_counts(&self, counts: &[usize]) -> Result<(), Error> {
        same_length("the list of counts", counts.len(), self.members() as usize)
    }

    /// Returns when all members have called it.
    ///
    /// # Errors
    /// [`Error::GroupDisagrees`], [`Error::Fault`], [`Error::Io`], as of all collectives.
    pub fn barrier(&self) -> Result<(), Error> {
        self.context().check_handlers()?;
        self.run::<u8>(Collective::Barrier, Call::Barrier, &[], &mut [])
    }

    /// Copies the root's data to all members.
    ///
    /// # Errors
    /// [`Error::BadMember`], [`Error::BadLength`] where lengths differ.
    pub fn broadcast<T: Scalar>(&self, root: u32, data: &mut [T]) -> Result<(), Error> {
        self.check_member(root)?;
        let call = Call::Broadcast { root, length: data.len() };
        self.run(Collective::Broadcast, call, &[], data)
    }

    /// Combines the data of all members, element by element; the result is at the root, the others' data is used up.
    ///
    /// # Errors
    /// [`Error::BadMember`], [`Error::BadLength`], [`Error::BadOperation`].
    pub fn reduce<T: Scalar>(
        &self,
        root: u32,
        op: impl Reduction<T>,
        data: &mut [T],
    ) -> Result<(), Error> {
        self.check_member(root)?;
        op.combine(&mut [], &[])?;
        let call = Call::Reduce { root, length: data.len() };
        self.run_with(Collective::Reduce, call, &[], data, &op)
    }

    /// Combines the data of all members, element by element; all have the same result, bit by bit.
    ///
    /// # Errors
    /// [`Error::BadLength`], [`Error::BadOperation`].
    pub fn allreduce<T: Scalar>(&self, op: impl Reduction<T>, data: &mut [T]) -> Result<(), Error> {
        op.combine(&mut [], &[])?;
        let call = Call::Allreduce { length: data.len() };
        self.run_with(Collective::Allreduce, call, &[], data, &op)
    }

    /// Combines the data of the members up to this one, itself too, element by element.
    ///
    /// # Errors
    /// [`Error::BadLength`], [`Error::BadOperation`].
    pub fn scan<T: Scalar>(&self, op: impl Reduction<T>, data: &mut [T]) -> Result<(), Error> {
        op.combine(&mut [], &[])?;
        let call = Call::Scan { length: data.len(), exclusive: false };
        self.run_with(Collective::Scan, call, &[], data, &op)
    }

    /// Combines the data of the members before this one, element by element. The first member's data stays as it is.
    ///
    /// # Errors
    /// [`Error::BadLength`], [`Error::BadOperation`].
    pub fn exclusive_scan<T: Scalar>(
        &self,
        op: impl Reduction<T>,
        data: &mut [T],
    ) -> Result<(), Error> {
        op.combine(&mut [], &[])?;
        let call = Call::Scan { length: data.len(), exclusive: true };
        self.run_with(Collective::ExclusiveScan, call, &[], data, &op)
    }

    /// Collects the data of all members at the root, in the order of members. Others' `recv` is not used.
    ///
    /// # Errors
    /// [`Error::BadMember`], [`Error::BadLength`].
    pub fn gather<T: Scalar>(&self, root: u32, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        self.check_member(root)?;
        if self.member() == root {
            same_length("the receive buffer", recv.len(), self.times_members(send.len()))?;
        }
        let call = Call::Gather { root, block: send.len() };
        self.run(Collective::Gather, call, send, recv)
    }

    /// As [`Group::gather`] with blocks of different lengths: at the root, `counts` has that of each member. Others'
    /// `counts` and `recv` are not used.
    ///
    /// # Errors
    /// [`Error::BadMember`], [`Error::BadLength`] at the root if counts and buffers, or its count of a member and that
    /// one's data, do not fit.
    pub fn gatherv<T: Scalar>(
        &self,
        root: u32,
        send: &[T],
        counts: &[usize],
        recv: &mut [T],
    ) -> Result<(), Error> {
        self.check_member(root)?;
        let mut call = Call::GatherEach { root, mine: send.len(), counts: None };
        if self.member() == root {
            self.check_counts(counts)?;
            same_length("the receive buffer", recv.len(), total(counts))?;
            same_length("the own count", counts[root as usize], send.len())?;
            call = Call::GatherEach { root, mine: send.len(), counts: Some(counts) };
        }
        self.run(Collective::Gather, call, send, recv)
    }

    /// Deals the root's data out: the i-th block to member i. Others' `send` is not used.
    ///
    /// # Errors
    /// [`Error::BadMember`], [`Error::BadLength`].
    pub fn scatter<T: Scalar>(&self, root: u32, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        self.check_member(root)?;
        if self.member() == root {
            same_length("the data to send", send.len(), self.times_members(recv.len()))?;
        }
        let call = Call::Scatter { root, block: recv.len() };
        self.run(Collective::Scatter, call, send, recv)
    }

    /// As [`Group::scatter`] with blocks of different lengths: at the root, `counts` has that of each member. Others'
    /// `counts` and `send` are not used.
    ///
    /// # Errors
    /// As [`Group::gatherv`]; a member whose buffer does not fit the root's count gets [`Error::BadLength`].
    pub fn scatterv<T: Scalar>(
        &self,
        root: u32,
        send: &[T],
        counts: &[usize],
        recv: &mut [T],
    ) -> Result<(), Error> {
        self.check_member(root)?;
        let mut call = Call::ScatterEach { root, mine: recv.len(), counts: None };
        if self.member() == root {
            self.check_counts(counts)?;
            same_length("the data to send", send.len(), total(counts))?;
            same_length("the own count", counts[root as usize], recv.len())?;
            call = Call::ScatterEach { root, mine: recv.len(), counts: Some(counts) };
        }
        self.run(Collective::Scatter, call, send, recv)
    }

    /// Collects the data of all members at all members, in the order of members.
    ///
    /// # Errors
    /// [`Error::BadLength`].
    pub fn allgather<T: Scalar>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        same_length("the receive buffer", recv.len(), self.times_members(send.len()))?;
        let call = Call::Allgather { counts: Counts::Equal(send.len()) };
        self.run(Collective::Allgather, call, send, recv)
    }

    /// As [`Group::allgather`] with blocks of different lengths, which all members know.
    ///
    /// # Errors
    /// [`Error::BadLength`].
    pub fn allgatherv<T: Scalar>(
        &self,
        send: &[T],
        counts: &[usize],
        recv: &mut [T],
    ) -> Result<(), Error> {
        self.check_counts(counts)?;
        same_length("the receive buffer", recv.len(), total(counts))?;
        same_length("the data to send", send.len(), counts[self.member() as usize])?;
        let call = Call::Allgather { counts: Counts::Each(counts) };
        self.run(Collective::Allgather, call, send, recv)
    }

    /// Sends the i-th block to member i and receives one block from each, in the order of members.
    ///
    /// # Errors
    /// [`Error::BadLength`] if lengths are not equal and multiples of the number of members.
    pub fn alltoall<T: Scalar>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let block = send.len() / self.members() as usize;
        same_length("the receive buffer", recv.len(), send.len())?;
        same_length("the data", send.len(), self.times_members(block))?;
        self.run(Collective::Alltoall, Call::Alltoall { block }, send, recv)
    }

    /// As [`Group::alltoall`] with blocks of different lengths, laid end to end.
    ///
    /// # Errors
    /// [`Error::BadLength`] if counts and buffers, or the counts of two members, do not fit.
    pub fn alltoallv<T: Scalar>(
        &self,
        send: &[T],
        send_counts: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
    ) -> Result<(), Error> {
        let (me, members) = (self.member() as usize, self.members() as usize);
        same_length("the counts to send", send_counts.len(), members)?;
        same_length("the counts to receive", recv_counts.len(), members)?;
        same_length("the data to send", send.len(), total(send_counts))?;
        same_length("the receive buffer", recv.len(), total(recv_counts))?;
        same_length("the count to receive from oneself", recv_counts[me], send_counts[me])?;
        let call = Call::AlltoallEach { send: send_counts, receive: recv_counts };
        self.run(Collective::Alltoall, call, send, recv)
    }

    /// Combines the data of all members, element by element, and deals the result out: the i-th block to member i.
    ///
    /// # Errors
    /// [`Error::BadLength`], [`Error::BadOperation`].
    pub fn reduce_scatter<T: Scalar>(
        &self,
        op: impl Reduction<T>,
        send: &[T],
        recv: &mut [T],
    ) -> Result<(), Error> {
        op.combine(&mut [], &[])?;
        same_length("the data to send", send.len(), self.times_members(recv.len()))?;
        let call = Call::ReduceScatter { counts: Counts::Equal(recv.len()) };
        self.run_with(Collective::ReduceScatter, call, send, recv, &op)
    }

    /// As [`Group::reduce_scatter`] with blocks of different lengths, which all members know.
    ///
    /// # Errors
    /// As [`Group::reduce_scatter`].
    pub fn reduce_scatterv<T: Scalar>(
        &self,
        op: impl Reduction<T>,
        send: &[T],
        counts: &[usize],
        recv: &mut [T],
    ) -> Result<(), Error> {
        op.combine(&mut [], &[])?;
        self.check_counts(counts)?;
        same_length("the data to send", send.len(), total(counts))?;
        same_length("the receive buffer", recv.len(), counts[self.member() as usize])?;
        let call = Call::ReduceScatter { counts: Counts::Each(counts) };
        self.run_with(Collective::ReduceScatter, call, send, recv, &op)
    }
}
