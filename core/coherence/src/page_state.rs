//! What a node notes of its copy of a page, which all its ranks share (after Cashmere-2L).
//!
//! Time on a node is a counter of its own, the *stamp*. A rank that learns at stamp *t* that others wrote a page needs a copy whose fetch
//! began at *t* or later. Ranks of the node compare numbers only, so none needs to know what another has acquired.

/// A node's copy of one page. The runtime keeps it in two words of memory that the node's ranks share, and changes it under the
/// page's lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PageState {
    /// The stamp at which the fetch of the copy began; 0 if there is none, or the page has its home here. A copy has a twin.
    pub fetched_at: u64,
    /// A rank of the node fetches it.
    pub fetching: bool,
    /// A diff of it is on its way to its home.
    pub flushing: bool,
    /// Lowest bits of the number of flushes so far.
    pub flush_count: u16,
}

/// What a rank has to do that needs a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// Use the copy.
    Current,
    /// Another rank fetches it, or its diffs are on their way: look again later.
    Wait,
    /// Fetch it; give this to [`PageState::end_fetch`].
    Fetch(Fetch),
}

/// A fetch under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fetch {
    stamp: u64,
    flush_count: u16,
}

impl PageState {
    /// Looks for a copy of stamp `need` or later. A fetch begins now, at stamp `now`, if there is none.
    ///
    /// A fetch waits for diffs under way: what it brings must contain what this node wrote, or the merge would undo it.
    pub fn look_up(&mut self, need: u64, now: u64) -> Lookup {
        if self.fetched_at != 0 && self.fetched_at >= need {
            return Lookup::Current;
        }
        if self.fetching || self.flushing {
            return Lookup::Wait;
        }
        self.fetching = true;
        Lookup::Fetch(Fetch { stamp: now, flush_count: self.flush_count })
    }

    /// The page has come. Whether it may be merged into the copy: not if diffs have left meanwhile, since it may lack them.
    #[must_use]
    pub fn end_fetch(&mut self, fetch: Fetch) -> bool {
        self.fetching = false;
        let whole = self.flush_count == fetch.flush_count;
        if whole {
            self.fetched_at = fetch.stamp;
        }
        whole
    }

    /// The fetch has failed.
    pub fn abandon_fetch(&mut self) {
        self.fetching = false;
    }

    /// A diff of the page is to leave for its home: whether it may. Those of one node go one after another, since one of another rank
    /// could overtake it with newer bytes of the same place.
    #[must_use]
    pub fn begin_flush(&mut self) -> bool {
        if self.flushing {
            return false;
        }
        self.flushing = true;
        self.flush_count = self.flush_count.wrapping_add(1);
        true
    }

    /// The diff is in place.
    pub fn end_flush(&mut self) {
        self.flushing = false;
    }

    /// The page has its home on this node from now on: the copy has no twin any more.
    pub fn become_home(&mut self) {
        self.fetched_at = 0;
    }

    const FETCHING: u64 = 1 << 16;
    const FLUSHING: u64 = 1 << 17;

    /// As two words: the stamp, and the rest in the lower 18 bits.
    #[must_use]
    pub fn to_words(self) -> [u64; 2] {
        let fetching = if self.fetching { PageState::FETCHING } else { 0 };
        let flushing = if self.flushing { PageState::FLUSHING } else { 0 };
        [self.fetched_at, u64::from(self.flush_count) | fetching | flushing]
    }

    /// The inverse of [`PageState::to_words`]; other bits are left out.
    #[must_use]
    pub fn from_words([fetched_at, rest]: [u64; 2]) -> PageState {
        PageState {
            fetched_at,
            fetching: rest & PageState::FETCHING != 0,
            flushing: rest & PageState::FLUSHING != 0,
            flush_count: rest as u16,
        }
    }
}
