//! Collectives of small blocks, a different one for each pair of ranks or from each rank: many blocks
//! travel in one message.

use super::{exact, wanted};
use crate::collective::scalar::{Scalar, bytes, bytes_mut};
use crate::context::Context;
use crate::error::Error;

const GATHER: i32 = -12;
const ALLTOALL: i32 = -13;

/// Longest block that travels with others: it is copied log2(n) times, which must cost less than a
/// message of its own.
const TOGETHER_BYTES: usize = 256;
/// Fewest ranks: with fewer there are hardly fewer messages.
const TOGETHER_RANKS: u32 = 4;

impl Context {
    /// Whether blocks of this length travel together.
    pub(super) fn travels_together<T: Scalar>(&self, block: &[T]) -> bool {
        self.ranks() >= TOGETHER_RANKS && size_of_val(block) <= TOGETHER_BYTES
    }

    /// Along a binomial tree: a rank sends what it has of those behind it in one message.
    pub(super) fn gather_tree<T: Scalar>(
        &self,
        root: u32,
        send: &[T],
        recv: &mut [T],
    ) -> Result<(), Error> {
        let (ranks, place) = (self.ranks(), self.place_from(root));
        let mut held = send.to_vec();
        let mut bit = 1;
        while bit < ranks {
            if place & bit != 0 {
                return self.send_any(self.rank_at(root, place - bit), GATHER, bytes(&held));
            }
            if place + bit < ranks {
                let blocks = bit.min(ranks - place - bit) as usize;
                let before = held.len();
                held.resize(before + blocks * send.len(), T::default());
                let into = &mut held[before..];
                let (from, length) = (self.rank_at(root, place + bit), size_of_val(into));
                exact(self.recv_any(wanted(from, GATHER), bytes_mut(into).into()), length)?;
            }
            bit *= 2;
        }
        recv.copy_from_slice(&held);
        recv.rotate_right(root as usize * send.len());
        Ok(())
    }

    /// In the round of bit b a block that has yet to go some way with that bit goes 2^b ahead.
    pub(super) fn alltoall_small<T: Scalar>(
        &self,
        send: &[T],
        recv: &mut [T],
    ) -> Result<(), Error> {
        let (me, ranks) = (self.rank() as usize, self.ranks() as usize);
        let block = send.len() / ranks;
        // way[i] has i ranks to go.
        let mut way = send.to_vec();
        way.rotate_left(me * block);
        let mut bit = 1;
        while bit < ranks {
            let moved = (0..ranks).filter(|distance| distance & bit != 0);
            let out: Vec<T> = moved
                .clone()
                .flat_map(|i| way[i * block..(i + 1) * block].iter().copied())
                .collect();
            let mut into = vec![T::default(); out.len()];
            let (to, from) = ((me + bit) % ranks, (me + ranks - bit) % ranks);
            self.swap(to as u32, &out, from as u32, &mut into, ALLTOALL)?;
            for (i, place) in moved.enumerate() {
                way[place * block..(place + 1) * block]
                    .copy_from_slice(&into[i * block..(i + 1) * block]);
            }
            bit *= 2;
        }
        // A block that has gone i ranks comes from the i-th rank before this one.
        for distance in 0..ranks {
            let from = (me + ranks - distance) % ranks;
            recv[from * block..(from + 1) * block]
                .copy_from_slice(&way[distance * block..(distance + 1) * block]);
        }
        Ok(())
    }
}
