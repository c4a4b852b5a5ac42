//! What a node notes of its copy of a page, which all its ranks share (after Cashmere-2L).
//!
//! Time on a node is a counter of its own, the *stamp*. A rank that learns at stamp *t* that others wrote a page needs a copy whose fetch
//! began at *t* or later. Ranks of the node compare numbers only, so none needs to know what another has acquired.

/// A node's copy of one page. The runtime keeps it in a word of memory that the node's ranks share, and changes it by
/// compare-and-swap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PageState {
    /// The stamp at which the fetch of the copy began. 0: there is none. A copy has a twin.
    pub fetched_at: u64,
    /// A rank of the node fetches the page, or has a diff of it under way. It alone uses the twin.
    pub busy: bool,
    /// The page had its home here when the state was changed last: the copy has no twin.
    pub home: bool,
}

/// What a rank has to do that needs a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// Use the copy.
    Current,
    /// Another rank fetches it, or its diff is on the way: look again later.
    Wait,
    /// Fetch it. `twin`: there is a copy with a twin, into which the page is merged.
    Fetch {
        /// See above.
        twin: bool,
    },
}

impl PageState {
    /// The highest stamp.
    pub const LAST_STAMP: u64 = PageState::HOME - 1;
    const BUSY: u64 = 1 << 63;
    const HOME: u64 = 1 << 62;

    /// Looks for a copy of stamp `need` or later. If there is none, a fetch begins.
    ///
    /// A fetch does not begin while a diff is under way: the page that comes must contain what this node has sent home, or the merge would
    /// undo it.
    pub fn look_up(&mut self, need: u64) -> Lookup {
        if self.fetched_at != 0 && self.fetched_at >= need && !self.home {
            return Lookup::Current;
        }
        if self.busy {
            return Lookup::Wait;
        }
        let twin = self.fetched_at != 0 && !self.home;
        (self.busy, self.home) = (true, false);
        Lookup::Fetch { twin }
    }

    /// The page has come whose fetch began at `stamp`. Whether it is to be used: not if the home has come here meanwhile.
    #[must_use]
    pub fn end_fetch(&mut self, stamp: u64) -> bool {
        self.busy = false;
        if !self.home {
            self.fetched_at = stamp;
        }
        !self.home
    }

    /// A diff of the page is to be made: whether it may. Diffs of one node go one after another, since one of another rank could
    /// overtake it with newer bytes of the same place.
    #[must_use]
    pub fn begin_flush(&mut self) -> bool {
        !core::mem::replace(&mut self.busy, true)
    }

    /// The fetch has failed, or the diff is in place.
    pub fn release(&mut self) {
        self.busy = false;
    }

    /// The page has its home on this node from now on: the copy has no twin any more.
    pub fn become_home(&mut self) {
        (self.fetched_at, self.home) = (0, true);
    }

    /// As a word: the stamp in the lower 62 bits.
    #[must_use]
    pub fn to_word(self) -> u64 {
        let busy = if self.busy { PageState::BUSY } else { 0 };
        let home = if self.home { PageState::HOME } else { 0 };
        self.fetched_at & PageState::LAST_STAMP | busy | home
    }

    /// The inverse of [`PageState::to_word`].
    #[must_use]
    pub fn from_word(word: u64) -> PageState {
        PageState {
            fetched_at: word & PageState::LAST_STAMP,
            busy: word & PageState::BUSY != 0,
            home: word & PageState::HOME != 0,
        }
    }
}
