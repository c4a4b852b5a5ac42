//! How a rank says that it is about to sleep, and how its peers on the node find out that they have to ring
//! its doorbell. Both sides say first what they do and look afterwards, so that one of them sees the other.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::layout::{Sleep, Wake};
use crate::sync::fence;

impl Sleep {
    /// Says that this rank is about to sleep, for room in a ring of its own or for anything else. What it looks
    /// at afterwards, with whatever order, is not older than what a peer has done that does not see this.
    pub(crate) fn announce_sleep(&self, room: bool) {
        self.wants_room.store(u32::from(room), Relaxed);
        self.sleeping.store(1, Relaxed);
        // The looks that follow are partly relaxed; without this they could come before the stores.
        fence(SeqCst);
    }

    /// Says that this rank is awake.
    pub(crate) fn end_sleep(&self) {
        self.sleeping.store(0, SeqCst);
        self.wants_room.store(0, SeqCst);
    }

    /// Whether this rank sleeps or is about to. What it is to notice must have been written with sequentially
    /// consistent order before.
    #[inline]
    pub(crate) fn sleeps(&self) -> bool {
        self.sleeping.load(SeqCst) != 0
    }

    /// Whether the caller, one of those who found it asleep, is the one to ring.
    pub(crate) fn claim(&self) -> bool {
        self.sleeping.swap(0, SeqCst) != 0
    }

    /// Whether this rank sleeps for lack of room in its ring, of which the caller has just consumed.
    pub(crate) fn awaits_room(&self) -> bool {
        // Pairs with the one of `announce_sleep`: the consumer's position is written with release order only.
        fence(SeqCst);
        self.wants_room.load(SeqCst) != 0
    }
}

impl Wake {
    /// Says that something lies in the ring from this local rank.
    #[inline]
    pub(crate) fn mark(&self, from: usize) {
        self.pending[from / 64].fetch_or(1 << (from % 64), SeqCst);
    }

    /// Whether something may lie in one of the rings; `words` of the marks are looked at.
    #[inline]
    pub(crate) fn any(&self, words: usize) -> bool {
        self.pending[..words].iter().any(|word| word.load(Relaxed) != 0)
    }

    /// Takes the marks of a word; to be followed by looks into the rings.
    #[inline]
    pub(crate) fn take(&self, word: usize) -> u64 {
        let word = &self.pending[word];
        if word.load(Relaxed) == 0 { 0 } else { word.swap(0, SeqCst) }
    }
}
