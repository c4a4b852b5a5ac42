//! Pages whose diffs go to all copies: who has copies, and what is under way to them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use crate::message::{diffs, push_diff};
use crate::{BadMessage, Rank, Ticket};

/// Diffs of a writer that are under way to copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pending {
    writer: Rank,
    /// The writer's number.
    batch: u64,
    left: BTreeSet<Rank>,
}

/// One rank's part, as a home and as one that has copies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Updates {
    /// As the home, by page: one rank of each node that has a copy.
    copies: BTreeMap<u32, Vec<Rank>>,
    next: u64,
    pending: BTreeMap<u64, Pending>,
    /// Pages that this rank asked for, and of whom.
    subscribing: Vec<(Rank, Ticket, Range<u32>)>,
}

impl Updates {
    /// A rank has copies of these pages from now on, for its node.
    pub(crate) fn subscribe(&mut self, rank: Rank, pages: Range<u32>, node_of: &[u32]) {
        let node = |rank: Rank| node_of.get(rank as usize);
        for page in pages {
            let ranks = self.copies.entry(page).or_default();
            if ranks.iter().all(|other| node(*other) != node(rank)) {
                ranks.push(rank);
            }
        }
    }

    /// Diffs for each rank that has copies of their pages. The writer's own node has them already.
    pub(crate) fn by_rank(
        &self,
        writer: Rank,
        bytes: &[u8],
        node_of: &[u32],
    ) -> Result<BTreeMap<Rank, Vec<u8>>, BadMessage> {
        let node = |rank: Rank| node_of.get(rank as usize);
        let mut by_rank = BTreeMap::<Rank, Vec<u8>>::new();
        for found in diffs(bytes) {
            let (page, diff) = found?;
            let ranks = self.copies.get(&page).into_iter().flatten();
            for rank in ranks.filter(|rank| node(**rank) != node(writer)) {
                push_diff(by_rank.entry(*rank).or_default(), page, diff);
            }
        }
        Ok(by_rank)
    }

    /// Diffs leave for these ranks; returns their number.
    pub(crate) fn begin(
        &mut self,
        writer: Rank,
        batch: u64,
        to: impl Iterator<Item = Rank>,
    ) -> u64 {
        self.next += 1;
        self.pending.insert(self.next, Pending { writer, batch, left: to.collect() });
        self.next
    }

    /// They are in place at one of them. Returns the writer and its number if that was the last.
    pub(crate) fn done(
        &mut self,
        from: Rank,
        number: u64,
    ) -> Result<Option<(Rank, u64)>, &'static str> {
        let unasked = "an answer to no update";
        let pending = self.pending.get_mut(&number).ok_or(unasked)?;
        if !pending.left.remove(&from) {
            return Err(unasked);
        }
        if !pending.left.is_empty() {
            return Ok(None);
        }
        let over = self.pending.remove(&number);
        Ok(over.map(|pending| (pending.writer, pending.batch)))
    }

    /// This rank asks a home for copies.
    pub(crate) fn ask(&mut self, home: Rank, ticket: Ticket, pages: Range<u32>) {
        self.subscribing.push((home, ticket, pages));
    }

    /// They have come.
    pub(crate) fn subscribed(
        &mut self,
        home: Rank,
        ticket: Ticket,
        pages: &Range<u32>,
    ) -> Result<(), &'static str> {
        let mut asked = self.subscribing.iter();
        let found = asked.position(|one| (one.0, one.1, &one.2) == (home, ticket, pages));
        self.subscribing.swap_remove(found.ok_or("pages came that were not asked for")?);
        Ok(())
    }
}
