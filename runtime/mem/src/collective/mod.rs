//! Collectives over all ranks, made of messages with the library's own tags.
//!
//! All ranks call them in the same order. A rank sends to a partner and receives from another at
//! the same time, so no order of arrival blocks anybody.
//!
//! The algorithm depends on the length and the number of ranks alone:
//!
//! - Little data goes along trees, in log2(n) rounds.
//! - Much data goes in pieces around a ring (`ring`), which sends each byte about twice, whatever the
//!   number of ranks.
//! - Small blocks that all differ travel together (`blocks`), larger ones each by itself.
//!
//! The length must be the same at all ranks. A rank that sees another length gets an error; ranks that
//! choose different algorithms wait for ever.

mod blocks;
mod ring;
pub(crate) mod scalar;

use kumi_net::SharedBytesMut;

use crate::collective::scalar::{Op, Scalar, bytes, bytes_mut};
use crate::context::Context;
use crate::error::Error;
use crate::message::mailbox::{MatchPattern, MessageStatus, Source, Tag};

pub(crate) const BARRIER: i32 = -1;
const BROADCAST: i32 = -2;
const REDUCE: i32 = -3;
const ALLREDUCE: i32 = -4;
const GATHER: i32 = -5;
const ALLTOALL: i32 = -6;
const WORDS: i32 = -7;
fn wanted(from: u32, tag: i32) -> MatchPattern {
    MatchPattern { from: Source::Rank(from), tag: Tag::Is(tag) }
}

fn same_length(what: &'static str, given: usize, needed: usize) -> Result<(), Error> {
    if given == needed { Ok(()) } else { Err(Error::BadLength { what, given, needed }) }
}

impl Context {
    /// Receives exactly this many elements.
    fn recv_exact<T: Scalar>(&self, from: u32, tag: i32, into: &mut [T]) -> Result<(), Error> {
        exact(self.recv_any(wanted(from, tag), bytes_mut(into).into()), size_of_val(into))
    }

    /// Sends and receives exactly this many elements.
    fn swap<T: Scalar>(
        &self,
        to: u32,
        data: &[T],
        from: u32,
        into: &mut [T],
        tag: i32,
    ) -> Result<(), Error> {
        let wanted = wanted(from, tag);
        let received = self.exchange(to, tag, bytes(data), wanted, bytes_mut(into).into());
        exact(received, size_of_val(into))
    }

    /// Returns when all ranks have called it.
    ///
    /// Dissemination (Hensgen, Finkel, Manber 1988): in round k a rank tells the one 2^k ahead.
    ///
    /// # Errors
    /// [`Error::Fault`], [`Error::Io`].
    pub fn barrier(&self) -> Result<(), Error> {
        self.check_handlers()?;
        let (me, ranks) = (self.rank(), self.ranks());
        let mut distance = 1;
        while distance < ranks {
            let to = (me + distance) % ranks;
            let from = (me + ranks - distance) % ranks;
            self.exchange(to, BARRIER, &[][..], wanted(from, BARRIER), SharedBytesMut::default())?;
            distance *= 2;
        }
        Ok(())
    }

    /// Copies the root's data to all ranks: little along a binomial tree, much in pieces that are
    /// dealt out and then shown around (van de Geijn 1994).
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadLength`] where lengths differ.
    pub fn broadcast<T: Scalar>(&self, root: u32, data: &mut [T]) -> Result<(), Error> {
        self.check_rank(root)?;
        if self.goes_round(data) {
            return self.broadcast_ring(root, data);
        }
        let (ranks, place) = (self.ranks(), self.place_from(root));
        let mut bit = 1;
        while bit < ranks && place & bit == 0 {
            bit *= 2;
        }
        if place != 0 {
            self.recv_exact(self.rank_at(root, place - bit), BROADCAST, data)?;
        }
        while bit > 1 {
            bit /= 2;
            if place + bit < ranks {
                self.send_any(self.rank_at(root, place + bit), BROADCAST, bytes(data))?;
            }
        }
        Ok(())
    }

    /// This rank's place counted from the root.
    fn place_from(&self, root: u32) -> u32 {
        (self.rank() + self.ranks() - root) % self.ranks()
    }

    fn rank_at(&self, root: u32, place: u32) -> u32 {
        ((u64::from(place) + u64::from(root)) % u64::from(self.ranks())) as u32
    }

    /// Combines the data of all ranks, element by element; the result is at the root, the others'
    /// data is used up. Binomial tree for little data; for much each rank combines a piece (Thakur,
    /// Rabenseifner, Gropp 2005).
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadLength`], [`Error::BadOperation`].
    pub fn reduce<T: Scalar>(&self, root: u32, op: Op, data: &mut [T]) -> Result<(), Error> {
        self.check_rank(root)?;
        T::combine(op, &mut [], &[])?;
        if self.goes_round(data) {
            return self.reduce_ring(root, op, data);
        }
        let (ranks, place) = (self.ranks(), self.place_from(root));
        let mut other = vec![T::default(); data.len()];
        let mut bit = 1;
        while bit < ranks {
            if place & bit != 0 {
                return self.send_any(self.rank_at(root, place - bit), REDUCE, bytes(data));
            }
            if place + bit < ranks {
                self.recv_exact(self.rank_at(root, place + bit), REDUCE, &mut other)?;
                T::combine(op, data, &other)?;
            }
            bit *= 2;
        }
        Ok(())
    }

    /// Combines the data of all ranks, element by element; all have the same result, bit by bit.
    /// Recursive doubling for little data, a ring for much (Thakur, Rabenseifner, Gropp 2005).
    ///
    /// # Errors
    /// [`Error::BadLength`], [`Error::BadOperation`].
    pub fn allreduce<T: Scalar>(&self, op: Op, data: &mut [T]) -> Result<(), Error> {
        T::combine(op, &mut [], &[])?;
        if self.goes_round(data) {
            return self.allreduce_ring(op, data);
        }
        self.allreduce_doubling(op, data)
    }

    /// Ranks beyond the largest power of two hand their data to a partner first and get the result
    /// from it.
    fn allreduce_doubling<T: Scalar>(&self, op: Op, data: &mut [T]) -> Result<(), Error> {
        let (me, ranks) = (self.rank(), self.ranks());
        let power = 1 << ranks.ilog2();
        let extra = ranks - power;
        let mut other = vec![T::default(); data.len()];
        if me >= power {
            self.send_any(me - power, ALLREDUCE, bytes(data))?;
            return self.recv_exact(me - power, ALLREDUCE, data);
        }
        if me < extra {
            self.recv_exact(me + power, ALLREDUCE, &mut other)?;
            T::combine(op, data, &other)?;
        }
        let mut bit = 1;
        while bit < power {
            let partner = me ^ bit;
            self.swap(partner, data, partner, &mut other, ALLREDUCE)?;
            // In the order of ranks, so that both compute the same even where order shows.
            if partner < me {
                T::combine(op, &mut other, data)?;
                data.copy_from_slice(&other);
            } else {
                T::combine(op, data, &other)?;
            }
            bit *= 2;
        }
        if me < extra {
            self.send_any(me + power, ALLREDUCE, bytes(data))?;
        }
        Ok(())
    }

    /// Collects the data of all ranks at the root, in the order of ranks: small blocks along a
    /// binomial tree, larger ones straight.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadLength`].
    pub fn gather<T: Scalar>(&self, root: u32, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        self.check_rank(root)?;
        let ranks = self.ranks() as usize;
        if self.rank() == root {
            same_length("the receive buffer", recv.len(), send.len().saturating_mul(ranks))?;
        }
        if self.travels_together(send) {
            return self.gather_tree(root, send, recv);
        }
        if self.rank() != root {
            return self.send_any(root, GATHER, bytes(send));
        }
        for rank in 0..ranks {
            let into = &mut recv[rank * send.len()..(rank + 1) * send.len()];
            if rank as u32 == root {
                into.copy_from_slice(send);
            } else {
                self.recv_exact(rank as u32, GATHER, into)?;
            }
        }
        Ok(())
    }

    /// Sends the i-th block to rank i and receives one block from each rank, in the order of ranks.
    /// Small blocks take log2(n) rounds (Bruck et al. 1997); larger ones go pairwise.
    ///
    /// # Errors
    /// [`Error::BadLength`] if lengths are not equal and multiples of the number of ranks.
    pub fn alltoall<T: Scalar>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let ranks = self.ranks() as usize;
        same_length("the receive buffer", recv.len(), send.len())?;
        same_length("the data", send.len(), send.len() / ranks * ranks)?;
        if self.travels_together(&send[..send.len() / ranks]) {
            return self.alltoall_small(send, recv);
        }
        let counts = vec![send.len() / ranks; ranks];
        self.alltoallv(send, &counts, recv, &counts)
    }

    /// As [`Context::alltoall`] with blocks of different lengths, laid end to end. Pairwise
    /// exchange: in step i with the ranks i ahead and i behind.
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
        let (me, ranks) = (self.rank() as usize, self.ranks() as usize);
        same_length("the counts to send", send_counts.len(), ranks)?;
        same_length("the counts to receive", recv_counts.len(), ranks)?;
        let (from_here, to_here) = (starts(send_counts), starts(recv_counts));
        same_length("the data to send", send.len(), from_here[ranks])?;
        same_length("the receive buffer", recv.len(), to_here[ranks])?;
        same_length("the count to receive from oneself", recv_counts[me], send_counts[me])?;
        recv[to_here[me]..to_here[me + 1]].copy_from_slice(&send[from_here[me]..from_here[me + 1]]);
        for step in 1..ranks {
            let (to, from) = ((me + step) % ranks, (me + ranks - step) % ranks);
            let out = &send[from_here[to]..from_here[to + 1]];
            let into = &mut recv[to_here[from]..to_here[from + 1]];
            self.swap(to as u32, out, from as u32, into, ALLTOALL)?;
        }
        Ok(())
    }
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

/// Where each block begins, and where the last one ends.
fn starts(counts: &[usize]) -> Vec<usize> {
    let mut at = 0usize;
    let mut starts = vec![0];
    for count in counts {
        at = at.saturating_add(*count);
        starts.push(at);
    }
    starts
}

/// Some words of every rank, in the order of ranks (Bruck et al. 1997: as many rounds as a barrier).
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
        context.swap(to, words[..take].as_flattened(), from, more.as_flattened_mut(), WORDS)?;
        words.extend_from_slice(&more);
    }
    words.rotate_right(me as usize);
    Ok(words)
}
