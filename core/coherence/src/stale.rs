//! Pages that others wrote: what this rank was told, until its program cannot see the old ones any more.

use alloc::vec::Vec;

use crate::PageSet;
use crate::event::Acquired;

/// See the module.
///
/// A notice that has come is known to this rank, and no later grant repeats it. The thread that it came for takes the pages out of
/// sight some time after. Meanwhile every other thread that acquires is told of them as well.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stale {
    /// Acquires that were told of some pages.
    acquires: u64,
    /// Pages, with the number of the first acquire that was told of them. Numbers ascend.
    told: Vec<(u64, PageSet)>,
}

impl Stale {
    /// Others wrote these pages.
    pub(crate) fn add(&mut self, pages: &PageSet) {
        if pages.is_empty() {
            return;
        }
        let next = self.acquires + 1;
        match self.told.last_mut() {
            // No acquire was told of the last ones yet.
            Some((number, last)) if *number == next => last.union(pages),
            _ => self.told.push((next, pages.clone())),
        }
    }

    /// What an acquire makes visible now.
    pub(crate) fn acquire(&mut self) -> Acquired {
        let mut acquired = Acquired::default();
        if !self.told.is_empty() {
            self.acquires += 1;
            acquired.number = self.acquires;
            self.told.iter().for_each(|(_, pages)| acquired.stale.union(pages));
        }
        acquired
    }

    /// What this acquire was told of is out of sight.
    pub(crate) fn forgotten(&mut self, number: u64) {
        self.told.retain(|(first, _)| *first > number);
    }
}
