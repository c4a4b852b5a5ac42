//! Changes of a rank's state that take several stores. A copy of the rank's files from the middle of one is not whole.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU32, fence};

/// A change that is under way. If it is never ended, since its thread panicked, the rank can not be copied any more.
#[must_use = "a change that does not end keeps the rank from being copied"]
pub(crate) struct Change<'c> {
    changes: &'c AtomicU32,
    /// The number when it is over; none for a part of another change.
    after: Option<u32>,
}

impl<'c> Change<'c> {
    /// Begins one. The caller holds the channel's lock, and is the only one to write the number.
    #[inline]
    pub(crate) fn begin(changes: &'c AtomicU32) -> Change<'c> {
        let before = changes.load(Relaxed);
        if before & 1 == 1 {
            return Change { changes, after: None };
        }
        changes.store(before.wrapping_add(1), Relaxed);
        // What is changed is stored after that.
        fence(Release);
        Change { changes, after: Some(before.wrapping_add(2)) }
    }

    /// Ends it.
    #[inline]
    pub(crate) fn end(self) {
        if let Some(after) = self.after {
            self.changes.store(after, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_change_does_not_end_it() {
        let changes = AtomicU32::new(u32::MAX - 1);
        let whole = Change::begin(&changes);
        assert_eq!(changes.load(Relaxed), u32::MAX);
        Change::begin(&changes).end();
        assert_eq!(changes.load(Relaxed), u32::MAX, "still under way");
        whole.end();
        assert_eq!(changes.load(Relaxed), 0);
    }
}
