//! Doorbell protocol: a rank announces that it sleeps, and its peers on the node ring it when they bring something.
//!
//! Both sides write first and look afterwards, so one of them always sees the other.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::layout::{Sleep, Wake};
use crate::sync::{AtomicU64, fence, fence_after_exchange};

impl Sleep {
    /// Blocks the sleeper unless it finds `anything_there`. The caller has called [`Sleep::announce_sleep`] before.
    pub(crate) fn sleep_unless<S>(
        &self,
        sleeper: &mut S,
        anything_there: impl FnOnce(&S) -> bool,
        block: impl FnOnce(&mut S),
    ) {
        if !anything_there(sleeper) {
            block(sleeper);
        }
        self.end_sleep();
    }

    /// Rings the doorbell if the rank sleeps and nobody else has. Write what the rank is to notice before, with
    /// sequentially consistent order.
    #[inline]
    pub(crate) fn wake(&self, ring_doorbell: impl FnOnce()) {
        if self.sleeps() {
            self.wake_sleeping(ring_doorbell);
        }
    }

    #[cold]
    fn wake_sleeping(&self, ring_doorbell: impl FnOnce()) {
        if self.claim() {
            ring_doorbell();
        }
    }

    /// Rings the doorbell if the rank sleeps because one of its rings was full. The caller has just consumed
    /// from that ring.
    #[inline]
    pub(crate) fn wake_for_room(&self, ring_doorbell: impl FnOnce()) {
        if self.awaits_room() {
            self.wake(ring_doorbell);
        }
    }

    /// Announces that this rank is about to sleep, for room in a ring of its own or for anything else. A look after
    /// this, with whatever order, sees all that a peer did before it missed the announcement.
    pub(crate) fn announce_sleep(&self, room: bool) {
        self.wants_room.store(u32::from(room), Relaxed);
        self.sleeping.store(1, Relaxed);
        // The looks that follow are partly relaxed; without this they could come before the stores.
        fence(SeqCst);
    }

    /// Ends the announcement: this rank is awake.
    pub(crate) fn end_sleep(&self) {
        self.sleeping.store(0, SeqCst);
        self.wants_room.store(0, SeqCst);
    }

    /// Whether this rank sleeps or is about to.
    #[inline]
    fn sleeps(&self) -> bool {
        self.sleeping.load(SeqCst) != 0
    }

    /// Whether the caller is the one to ring, among all who found the rank asleep.
    fn claim(&self) -> bool {
        self.sleeping.swap(0, SeqCst) != 0
    }

    /// Whether this rank sleeps for lack of room in a ring.
    fn awaits_room(&self) -> bool {
        // Pairs with the one of `announce_sleep`: the consumer's position is written with release order only.
        fence(SeqCst);
        self.wants_room.load(SeqCst) != 0
    }
}

impl Wake {
    /// Says that something lies in the ring from this local rank. Whether it was said already.
    ///
    /// `left`: it was so the last time, so the owner may leave the mark where it is. Then this looks first, and the line stays
    /// with both. The owner takes marks away before it looks into the rings, and this looks at the mark after the record was
    /// written. So one of them sees the other.
    #[inline]
    pub(crate) fn mark(&self, from: usize, left: bool) -> bool {
        let (word, bit) = (&self.pending[from / 64], 1 << (from % 64));
        if left {
            fence(SeqCst);
            if word.load(Relaxed) & bit != 0 {
                return true;
            }
        }
        word.fetch_or(bit, SeqCst) & bit != 0
    }

    /// As [`Wake::any`], but for the ring from this local rank.
    #[inline]
    pub(crate) fn any_but(&self, words: usize, from: usize) -> bool {
        let others = |(index, word): (usize, &AtomicU64)| {
            let bit = if index == from / 64 { 1 << (from % 64) } else { 0 };
            word.load(Relaxed) & !bit != 0
        };
        self.pending[..words].iter().enumerate().any(others)
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
        if word.load(Relaxed) == 0 {
            return 0;
        }
        let marks = word.swap(0, SeqCst);
        // A sender that still saw a mark here has written before what the looks find.
        fence_after_exchange();
        marks
    }
}
