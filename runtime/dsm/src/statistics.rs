//! What this rank's shared memory has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $count:ident = $name:literal,)*) => {
        /// What is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Count {
            $($(#[$doc])* $count,)*
        }

        const NAMES: &[&str] = &[$($name,)*];
    };
}

counts! {
    /// Accesses to pages that were not visible.
    Faults = "faults",
    /// Faults that found a copy which another rank of the node had fetched.
    CopiesFound = "copies found",
    /// Requests for pages.
    Fetches = "fetches",
    /// Pages that came by them.
    PagesFetched = "pages fetched",
    /// Diffs sent.
    Diffs = "diffs",
    /// Their bytes.
    DiffBytes = "diff bytes",
    /// Locks taken.
    Locks = "locks",
    /// Barriers passed.
    Barriers = "barriers",
    /// Pages that acquires made stale.
    StalePages = "stale pages",
    /// Pages that came to this node to stay.
    PagesHomed = "pages homed",
}

/// Counters of one rank.
#[derive(Debug, Default)]
pub struct Statistics {
    counters: [AtomicU64; NAMES.len()],
}

impl Statistics {
    pub(crate) fn count(&self, what: Count, more: u64) {
        self.counters[what as usize].fetch_add(more, Ordering::Relaxed);
    }

    /// One counter.
    #[must_use]
    pub fn get(&self, what: Count) -> u64 {
        self.counters[what as usize].load(Ordering::Relaxed)
    }

    /// All by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().zip(&self.counters).map(|(name, one)| (*name, one.load(Ordering::Relaxed)))
    }
}
