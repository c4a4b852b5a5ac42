//! Pieces of windows at ranks of the same node: memory that all of them have mapped.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use kumi_net::Place;
use kumi_net::layout::{Notify, WINDOWS, WindowEntry};

use crate::windows::{Rights, counter_index, rights_in, state_word};

/// A window's piece at a rank of this node.
#[derive(Debug)]
pub(crate) struct Near {
    pub(crate) base: NonNull<u8>,
    pub(crate) size: u64,
    pub(crate) rights: Rights,
    pub(crate) state: u64,
    pub(crate) entry: NonNull<WindowEntry>,
    pub(crate) notifies: NonNull<Notify>,
}

impl Near {
    /// Reads the descriptor that the owner published and believes it only as far as it stays in
    /// the owner's arena. The rank is one of this node, `local` its index.
    #[cold]
    pub(crate) fn find(place: &Place, local: usize, identifier: u32) -> Option<Near> {
        let context = place.context(local);
        let entry = &context.windows[identifier as usize % WINDOWS];
        let state = entry.state.load(Acquire);
        let rights = rights_in(state, identifier)?;
        let (offset, size) = (entry.offset.load(Relaxed), entry.length.load(Relaxed));
        let end = offset.checked_add(size)?;
        if end > place.arena_bytes() as u64 || !offset.is_multiple_of(8) {
            return None;
        }
        debug_assert_eq!(state, state_word(identifier, rights));
        // SAFETY: inside of the arena by the check above.
        let base = unsafe { place.arena(local).add(offset as usize) };
        let notifies = NonNull::from(&context.notifies.0[counter_index(identifier, 0)]);
        Some(Near { base, size, rights, state, entry: NonNull::from(entry), notifies })
    }

    /// Raises a notification counter (checked to be one) and wakes its rank.
    #[inline]
    pub(crate) fn raise(&self, place: &Place, local: usize, notify: u32) {
        // SAFETY: `notifies` points to the window's NOTIFIES counters, and `notify` is one of them.
        let counter = unsafe { self.notifies.add(notify as usize).as_ref() };
        counter.count.fetch_add(1, SeqCst);
        place.wake(local);
    }
}
