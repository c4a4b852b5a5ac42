//! Diffs that are on their way to their homes: a release waits for them.

use alloc::collections::BTreeMap;

use crate::{Rank, Ticket};

/// Batches of diffs under way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Flushes {
    next: u64,
    under_way: BTreeMap<u64, (Rank, Ticket)>,
}

impl Flushes {
    /// A batch leaves for its home; returns its number.
    pub(crate) fn begin(&mut self, home: Rank, ticket: Ticket) -> u64 {
        self.next += 1;
        self.under_way.insert(self.next, (home, ticket));
        self.next
    }

    /// The batch is in place.
    pub(crate) fn done(&mut self, from: Rank, batch: u64) -> Result<(), &'static str> {
        match self.under_way.remove(&batch) {
            Some((home, _)) if home == from => Ok(()),
            _ => Err("an answer to no diffs"),
        }
    }

    /// Whether all that this wait sent is in place.
    pub(crate) fn are_done(&self, ticket: Ticket) -> bool {
        self.under_way.values().all(|(_, other)| *other != ticket)
    }

    /// The homes that have not answered this wait yet.
    pub(crate) fn homes(&self, ticket: Ticket) -> impl Iterator<Item = Rank> {
        self.under_way.values().filter(move |(_, other)| *other == ticket).map(|(home, _)| *home)
    }
}
