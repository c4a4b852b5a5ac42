//! The collectives of groups.

use crate::collective::kind::CollectiveKind;
use crate::collective::reduction::Reduction;
use crate::collective::scalar::Scalar;
use crate::collective::schedule::Call;
use crate::error::Error;
use crate::group::Group;
use crate::group::tag::Collective;

impl Group<'_> {
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
        let (what, call) = self.call_of(CollectiveKind::Broadcast { root }, 0, data.len())?;
        self.run(what, call, &[], data)
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
        let (what, call) = self.call_of(CollectiveKind::Reduce { root }, 0, data.len())?;
        op.combine(&mut [], &[])?;
        self.run_with(what, call, &[], data, &op)
    }

    /// Combines the data of all members, element by element; all have the same result, bit by bit.
    ///
    /// # Errors
    /// [`Error::BadLength`], [`Error::BadOperation`].
    pub fn allreduce<T: Scalar>(&self, op: impl Reduction<T>, data: &mut [T]) -> Result<(), Error> {
        op.combine(&mut [], &[])?;
        let (what, call) = self.call_of(CollectiveKind::Allreduce, 0, data.len())?;
        self.run_with(what, call, &[], data, &op)
    }

    /// Combines the data of the members up to this one, itself too, element by element.
    ///
    /// # Errors
    /// [`Error::BadLength`], [`Error::BadOperation`].
    pub fn scan<T: Scalar>(&self, op: impl Reduction<T>, data: &mut [T]) -> Result<(), Error> {
        op.combine(&mut [], &[])?;
        let (what, call) = self.call_of(CollectiveKind::Scan, 0, data.len())?;
        self.run_with(what, call, &[], data, &op)
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
        let (what, call) = self.call_of(CollectiveKind::ExclusiveScan, 0, data.len())?;
        self.run_with(what, call, &[], data, &op)
    }

    /// Collects the data of all members at the root, in the order of members. Others' `recv` is not used.
    ///
    /// # Errors
    /// [`Error::BadMember`], [`Error::BadLength`].
    pub fn gather<T: Scalar>(&self, root: u32, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let (what, call) = self.call_of(CollectiveKind::Gather { root }, send.len(), recv.len())?;
        self.run(what, call, send, recv)
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
        let (what, call) =
            self.call_of(CollectiveKind::GatherEach { root, counts }, send.len(), recv.len())?;
        self.run(what, call, send, recv)
    }

    /// Deals the root's data out: the i-th block to member i. Others' `send` is not used.
    ///
    /// # Errors
    /// [`Error::BadMember`], [`Error::BadLength`].
    pub fn scatter<T: Scalar>(&self, root: u32, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let (what, call) =
            self.call_of(CollectiveKind::Scatter { root }, send.len(), recv.len())?;
        self.run(what, call, send, recv)
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
        let (what, call) =
            self.call_of(CollectiveKind::ScatterEach { root, counts }, send.len(), recv.len())?;
        self.run(what, call, send, recv)
    }

    /// Collects the data of all members at all members, in the order of members.
    ///
    /// # Errors
    /// [`Error::BadLength`].
    pub fn allgather<T: Scalar>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let (what, call) = self.call_of(CollectiveKind::Allgather, send.len(), recv.len())?;
        self.run(what, call, send, recv)
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
        let (what, call) =
            self.call_of(CollectiveKind::AllgatherEach { counts }, send.len(), recv.len())?;
        self.run(what, call, send, recv)
    }

    /// Sends the i-th block to member i and receives one block from each, in the order of members.
    ///
    /// # Errors
    /// [`Error::BadLength`] if lengths are not equal and multiples of the number of members.
    pub fn alltoall<T: Scalar>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let (what, call) = self.call_of(CollectiveKind::Alltoall, send.len(), recv.len())?;
        self.run(what, call, send, recv)
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
        let (what, call) = self.call_of(
            CollectiveKind::AlltoallEach { send: send_counts, receive: recv_counts },
            send.len(),
            recv.len(),
        )?;
        self.run(what, call, send, recv)
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
        let (what, call) = self.call_of(CollectiveKind::ReduceScatter, send.len(), recv.len())?;
        self.run_with(what, call, send, recv, &op)
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
        let (what, call) =
            self.call_of(CollectiveKind::ReduceScatterEach { counts }, send.len(), recv.len())?;
        self.run_with(what, call, send, recv, &op)
    }
}
