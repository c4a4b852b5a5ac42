//! What a node notes of its copy of a page, which all its ranks share (after Cashmere-2L).
//!
//! Time on a node is a counter of its own, the *stamp*. A rank that learns at stamp *t* that others wrote a page needs a copy whose fetch
//! began at *t* or later. Ranks of the node compare numbers only, so none needs to know what another has acquired.

/// A node's copy of one page. The runtime keeps it in a word of memory that the node's ranks share, and changes it by
/// compare-and-swap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PageState {
    /// The stamp at which the fetch of the copy began. 0: there is none.
    pub fetched_at: u64,
    /// A rank of the node fetches the page, or has a diff of it under way. It alone uses the twin.
    pub busy: bool,
    /// The page had its home here when the state was changed last: the copy has no twin.
    pub home: bool,
    /// The copy has a twin. Without one it is as it was fetched: nobody has written it.
    pub twin: bool,
    /// The twin is in use: a diff is made of it, or an update written to it. Of pages that are updated only.
    pub locked: bool,
    /// Rises with each fetch, diff and move of the home, and begins again after [`PageState::LAST_CHANGE`]. Two equal states with
    /// fewer changes between them are one: nothing has happened.
    pub changes: u32,
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
    pub const LAST_STAMP: u64 = (1 << PageState::CHANGES) - 1;
    /// The highest number of changes.
    pub const LAST_CHANGE: u32 = (1 << (60 - PageState::CHANGES)) - 1;
    const BUSY: u64 = 1 << 63;
    const HOME: u64 = 1 << 62;
    const LOCKED: u64 = 1 << 61;
    const TWIN: u64 = 1 << 60;
    const CHANGES: u32 = 42;

    fn changed(&mut self) {
        self.changes = (self.changes + 1) & PageState::LAST_CHANGE;
    }

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
        let twin = self.twin && !self.home;
        (self.busy, self.home) = (true, false);
        Lookup::Fetch { twin }
    }

    /// Whether a page may be asked for that nobody waits for, to be used if it is still good when somebody does. Nothing is marked here, so
    /// other ranks of the node go on as if it were not under way.
    #[must_use]
    pub fn may_ask_ahead(self, need: u64) -> bool {
        // While a diff is under way it is open whether the page that comes contains it. A page that had its home here is left to those
        // who want it: another rank of the node may not know yet that it moved.
        !self.busy && !self.home && (self.fetched_at == 0 || self.fetched_at < need)
    }

    /// A page is wanted that was asked for at `stamp`, when the state was `asked`. If what came is still good, its fetch ends as any
    /// other by [`PageState::end_fetch`]: whether there is a copy with a twin, into which the page is merged. Otherwise it is of no use:
    /// it may lack what this node has sent home since.
    pub fn take_asked(&mut self, asked: PageState, stamp: u64, need: u64) -> Option<bool> {
        if *self != asked || !self.may_ask_ahead(need) || stamp < need {
            return None;
        }
        self.busy = true;
        Some(self.twin)
    }

    /// A copy is to be written. Whether it becomes its twin first, as it is: the page is locked, so no fetch changes it meanwhile.
    #[must_use]
    pub fn make_twin(&mut self) -> bool {
        let make = self.fetched_at != 0 && !self.home && !self.twin;
        self.twin |= make;
        make
    }

    /// The twin of a page that is updated is to be used, by one that needs no network meanwhile: whether it may.
    #[must_use]
    pub fn lock(&mut self) -> bool {
        !core::mem::replace(&mut self.locked, true)
    }

    /// The inverse of [`PageState::lock`].
    pub fn unlock(&mut self) {
        self.locked = false;
    }

    /// The page has come whose fetch began at `stamp`. Whether it is to be used: not if the home has come here meanwhile.
    #[must_use]
    pub fn end_fetch(&mut self, stamp: u64) -> bool {
        self.busy = false;
        self.changed();
        if !self.home {
            self.fetched_at = stamp;
        }
        !self.home
    }

    /// A diff of the page is to be made: whether it may. Diffs of one node go one after another, since one of another rank could
    /// overtake it with newer bytes of the same place.
    #[must_use]
    pub fn begin_flush(&mut self) -> bool {
        if self.busy {
            return false;
        }
        self.busy = true;
        self.changed();
        true
    }

    /// The fetch has failed, or the diff is in place.
    pub fn release(&mut self) {
        self.busy = false;
    }

    /// The page has its home on this node from now on: the copy has no twin any more.
    pub fn become_home(&mut self) {
        (self.fetched_at, self.home, self.twin) = (0, true, false);
        self.changed();
    }

    /// As a word: the stamp in the lower 42 bits, then 18 bits of changes.
    #[must_use]
    pub fn to_word(self) -> u64 {
        let busy = if self.busy { PageState::BUSY } else { 0 };
        let home = if self.home { PageState::HOME } else { 0 };
        let changes = u64::from(self.changes & PageState::LAST_CHANGE) << PageState::CHANGES;
        let locked = if self.locked { PageState::LOCKED } else { 0 };
        let twin = if self.twin { PageState::TWIN } else { 0 };
        self.fetched_at & PageState::LAST_STAMP | changes | busy | home | locked | twin
    }

    /// The inverse of [`PageState::to_word`].
    #[must_use]
    pub fn from_word(word: u64) -> PageState {
        PageState {
            fetched_at: word & PageState::LAST_STAMP,
            busy: word & PageState::BUSY != 0,
            home: word & PageState::HOME != 0,
            locked: word & PageState::LOCKED != 0,
            twin: word & PageState::TWIN != 0,
            changes: (word >> PageState::CHANGES) as u32 & PageState::LAST_CHANGE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_word() {
        for state in [
            PageState::default(),
            PageState { fetched_at: PageState::LAST_STAMP, ..PageState::default() },
            PageState { changes: PageState::LAST_CHANGE, ..PageState::default() },
            PageState { home: true, locked: true, ..PageState::default() },
            PageState {
                fetched_at: 7,
                busy: true,
                home: true,
                locked: true,
                twin: true,
                changes: 9,
            },
        ] {
            assert_eq!(PageState::from_word(state.to_word()), state);
        }
    }

    #[test]
    fn a_page_that_was_asked_for_is_good_until_something_happens() {
        let start = PageState { fetched_at: 3, twin: true, ..PageState::default() };
        assert!(start.may_ask_ahead(4) && !start.may_ask_ahead(3));
        let mut good = start;
        assert_eq!(good.take_asked(start, 5, 4), Some(true));
        assert!(good.busy && !good.may_ask_ahead(9), "its fetch ends as any other");
        assert_eq!(good.take_asked(start, 5, 4), None, "twice");

        let mut old = start;
        assert_eq!(old.take_asked(start, 5, 6), None, "an acquire needs a later one");
        let mut flushed = start;
        assert!(flushed.begin_flush());
        flushed.release();
        assert_eq!(flushed.take_asked(start, 5, 4), None, "it may lack the diff");
        let mut fetched = start;
        assert_eq!(fetched.look_up(4), Lookup::Fetch { twin: true });
        assert!(fetched.end_fetch(3), "at the same stamp");
        assert_eq!(fetched.take_asked(start, 5, 4), None, "another one came");
        let mut moved = start;
        moved.become_home();
        assert_eq!(moved.take_asked(start, 5, 4), None, "the home came here");

        let mut new = PageState::default();
        assert_eq!(new.take_asked(PageState::default(), 1, 0), Some(false));
    }

    #[test]
    fn a_twin_has_one_user_while_a_diff_is_under_way() {
        let mut state = PageState { fetched_at: 1, ..PageState::default() };
        assert!(state.begin_flush() && state.lock());
        assert!(!state.lock());
        state.unlock();
        assert!(state.busy && state.lock(), "the diff is under way, and an update comes");
    }

    #[test]
    fn a_copy_gets_its_twin_once_and_a_home_has_none() {
        let mut state = PageState::default();
        assert!(!state.make_twin(), "there is no copy");
        assert_eq!(state.look_up(0), Lookup::Fetch { twin: false });
        assert!(state.end_fetch(1));
        assert_eq!(state.look_up(2), Lookup::Fetch { twin: false }, "nobody wrote it");
        assert!(state.end_fetch(2));
        assert!(state.make_twin() && !state.make_twin());
        assert_eq!(state.look_up(3), Lookup::Fetch { twin: true });
        state.become_home();
        assert!(!state.twin && !state.make_twin());
    }
}
