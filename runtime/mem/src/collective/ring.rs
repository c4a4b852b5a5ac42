//! Ring algorithms for much data: each rank has a piece of it, and the pieces go round.

use std::ops::Range;

use super::{exact, wanted};
use crate::collective::scalar::{Op, Scalar, bytes, bytes_mut};
use crate::context::Context;
use crate::error::Error;

const DEAL: i32 = -8;
const REDUCE: i32 = -9;
const SHOW: i32 = -10;
const COLLECT: i32 = -11;

/// From this many bytes on pieces go round; below, their log2(n) rounds of everything are faster
/// than n rounds of little.
const RING_BYTES: usize = 32 * 1024;

/// How data of this length is cut among so many.
#[derive(Clone, Copy)]
struct RingPieces {
    length: usize,
    count: usize,
}

impl RingPieces {
    /// Where piece `index`, counted round and round, lies.
    fn piece(self, index: usize) -> Range<usize> {
        let index = index % self.count;
        self.start(index)..self.start(index + 1)
    }

    fn start(self, index: usize) -> usize {
        // In 128 bits: a long vector times many ranks.
        (self.length as u128 * index as u128 / self.count as u128) as usize
    }

    fn longest(self) -> usize {
        self.length.div_ceil(self.count)
    }
}

impl Context {
    /// Whether so much data is cut in pieces.
    pub(super) fn goes_round<T: Scalar>(&self, data: &[T]) -> bool {
        let ranks = self.ranks() as usize;
        ranks > 2 && size_of_val(data) >= RING_BYTES && data.len() >= ranks
    }

    fn pieces<T>(&self, data: &[T]) -> RingPieces {
        RingPieces { length: data.len(), count: self.ranks() as usize }
    }

    /// The ranks after and before this one.
    fn neighbours(&self) -> (u32, u32) {
        (self.rank_at(self.rank(), 1), self.rank_at(self.rank(), self.ranks() - 1))
    }

    /// Each piece goes round once to be combined and once to be shown.
    pub(super) fn allreduce_ring<T: Scalar>(&self, op: Op, data: &mut [T]) -> Result<(), Error> {
        let own = self.combine_round(op, data)?;
        self.show_round(data, own)
    }

    /// Each piece goes round to be combined, and then to the root.
    pub(super) fn reduce_ring<T: Scalar>(
        &self,
        root: u32,
        op: Op,
        data: &mut [T],
    ) -> Result<(), Error> {
        let own = self.combine_round(op, data)?;
        let pieces = self.pieces(data);
        if self.rank() != root {
            return self.send_any(root, COLLECT, bytes(&data[pieces.piece(own)]));
        }
        for ahead in 1..self.ranks() {
            let from = self.rank_at(root, ahead);
            let into = &mut data[pieces.piece(own + ahead as usize)];
            let length = size_of_val(into);
            exact(self.recv_any(wanted(from, COLLECT), bytes_mut(into).into()), length)?;
        }
        Ok(())
    }

    /// The pieces are dealt out along a binomial tree, and then go round.
    pub(super) fn broadcast_ring<T: Scalar>(&self, root: u32, data: &mut [T]) -> Result<(), Error> {
        let (ranks, place) = (self.ranks(), self.place_from(root));
        let pieces = self.pieces(data);
        let span = |from: u32, width: u32| {
            let to = from.saturating_add(width).min(ranks);
            pieces.start(from as usize)..pieces.start(to as usize)
        };
        let mut bit = 1;
        while bit < ranks && place & bit == 0 {
            bit *= 2;
        }
        if place != 0 {
            let into = &mut data[span(place, bit)];
            let (from, length) = (self.rank_at(root, place - bit), size_of_val(into));
            exact(self.recv_any(wanted(from, DEAL), bytes_mut(into).into()), length)?;
        }
        while bit > 1 {
            bit /= 2;
            if place + bit < ranks {
                let part = &data[span(place + bit, bit)];
                self.send_any(self.rank_at(root, place + bit), DEAL, bytes(part))?;
            }
        }
        self.show_round(data, place as usize)
    }

    /// Afterwards one piece, whose number is returned, holds what all ranks had there.
    fn combine_round<T: Scalar>(&self, op: Op, data: &mut [T]) -> Result<usize, Error> {
        let (me, pieces) = (self.rank() as usize, self.pieces(data));
        let (to, from) = self.neighbours();
        let mut other = vec![T::default(); pieces.longest()];
        for step in 0..pieces.count - 1 {
            let at = me + pieces.count - step;
            let (out, into) = (pieces.piece(at), pieces.piece(at + pieces.count - 1));
            let other = &mut other[..into.len()];
            self.swap(to, &data[out], from, other, REDUCE)?;
            T::combine(op, &mut data[into], other)?;
        }
        Ok(me + 1)
    }

    /// Every rank has the piece `own`, one further than the rank before it has; afterwards all have all.
    fn show_round<T: Scalar>(&self, data: &mut [T], own: usize) -> Result<(), Error> {
        let pieces = self.pieces(data);
        let (to, from) = self.neighbours();
        let mut other = vec![T::default(); pieces.longest()];
        for step in 0..pieces.count - 1 {
            let at = own + pieces.count - step;
            let (out, into) = (pieces.piece(at), pieces.piece(at + pieces.count - 1));
            let other = &mut other[..into.len()];
            self.swap(to, &data[out], from, other, SHOW)?;
            data[into].copy_from_slice(other);
        }
        Ok(())
    }
}
