//! Collectives over all members of a group, made of messages with the library's own tags.
//!
//! All members call them in the same order. Each carries out a [`schedule`], a list of steps that depends on the call,
//! the members' nodes and the lengths alone. A member sends to a partner and receives from another at the same
//! time, so no order of arrival blocks anybody.
//!
//! The length must be the same at all members. A member that sees another length gets an error; members that choose different
//! algorithms wait for ever.

mod calls;
mod execute;
pub(crate) mod kind;
pub(crate) mod reduction;
pub(crate) mod scalar;
pub(crate) mod schedule;
pub(crate) mod start;

use crate::collective::reduction::Reduction;
use crate::collective::scalar::{Scalar, bytes, bytes_mut};
use crate::context::Context;
use crate::error::Error;
use crate::message::mailbox::{MatchPattern, MessageStatus, Source, Tag};

/// Tag of the words of all ranks.
const WORDS: i32 = -7;

fn wanted(from: u32, tag: i32) -> MatchPattern {
    MatchPattern { from: Source::Rank(from), tag: Tag::Is(tag) }
}

fn same_length(what: &'static str, given: usize, needed: usize) -> Result<(), Error> {
    if given == needed { Ok(()) } else { Err(Error::BadLength { what, given, needed }) }
}

/// The message must be as long as this rank expects, or the ranks' lengths differ.
fn exact(received: Result<MessageStatus, Error>, needed: usize) -> Result<(), Error> {
    let given = match received {
        Ok(received) => received.len,
        Err(Error::Truncated { needed }) => needed,
        Err(other) => return Err(other),
    };
    same_length("the data of another rank (in bytes)", given, needed)
}

/// The collectives of the job's group.
impl Context {
    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// [`Error::Fault`], [`Error::Io`], [`Error::GroupDisagrees`].
    pub fn barrier(&self) -> Result<(), Error> {
        self.group().barrier()
    }

    /// Copies the root's data to all ranks.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadLength`] where lengths differ.
    pub fn broadcast<T: Scalar>(&self, root: u32, data: &mut [T]) -> Result<(), Error> {
        self.check_rank(root)?;
        self.group().broadcast(root, data)
    }

    /// Combines the data of all ranks, element by element; the result is at the root, the others'
    /// data is used up.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadLength`], [`Error::BadOperation`].
    pub fn reduce<T: Scalar>(
        &self,
        root: u32,
        op: impl Reduction<T>,
        data: &mut [T],
    ) -> Result<(), Error> {
        self.check_rank(root)?;
        self.group().reduce(root, op, data)
    }

    /// Combines the data of all ranks, element by element; all have the same result, bit by bit.
    ///
    /// # Errors
    /// [`Error::BadLength`], [`Error::BadOperation`].
    pub fn allreduce<T: Scalar>(&self, op: impl Reduction<T>, data: &mut [T]) -> Result<(), Error> {
        self.group().allreduce(op, data)
    }

    /// Collects the data of all ranks at the root, in the order of ranks.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadLength`].
    pub fn gather<T: Scalar>(&self, root: u32, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        self.check_rank(root)?;
        self.group().gather(root, send, recv)
    }

    /// Sends the i-th block to rank i and receives one block from each rank, in the order of ranks.
    ///
    /// # Errors
    /// [`Error::BadLength`] if lengths are not equal and multiples of the number of ranks.
    pub fn alltoall<T: Scalar>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        self.group().alltoall(send, recv)
    }

    /// As [`Context::alltoall`] with blocks of different lengths, laid end to end.
    ///
    /// # Errors
    /// [`Error::BadLength`] if counts and buffers, or the counts of two ranks, do not fit.
    pub fn alltoallv<T: Scalar>(
        &self,
        send: &[T],
        send_counts: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
    ) -> Result<(), Error> {
        self.group().alltoallv(send, send_counts, recv, recv_counts)
    }
}

/// Some words of every rank, in the order of ranks (Bruck et al. 1997: as many rounds as a barrier). It
/// is no call of the job's group, which may not know its nodes yet.
pub(crate) fn all_words<const N: usize>(
    context: &Context,
    mine: [u64; N],
) -> Result<Vec<[u64; N]>, Error> {
    let (me, ranks) = (context.rank(), context.ranks());
    // words[i] are those of the rank i ahead of this one.
    let mut words = vec![mine];
    while words.len() < ranks as usize {
        let distance = words.len() as u32;
        let take = words.len().min(ranks as usize - words.len());
        let to = (me + ranks - distance) % ranks;
        let from = (me + distance) % ranks;
        let mut more = vec![[0u64; N]; take];
        let (out, into) = (bytes(words[..take].as_flattened()), bytes_mut(more.as_flattened_mut()));
        let length = into.len();
        exact(context.exchange(to, WORDS, out, wanted(from, WORDS), into.into()), length)?;
        words.extend_from_slice(&more);
    }
    words.rotate_right(me as usize);
    Ok(words)
}
