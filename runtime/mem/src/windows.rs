//! The windows of this rank: memory in its arena, and what others may do with it.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use kumi_net::Place;
use kumi_net::layout::{NOTIFIES, PAGE, RankContext, WINDOWS, page_up};

use crate::error::Refusal;
use crate::pieces::Spread;

/// What others may do with a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// `put` and `put_notify`.
    pub write: bool,
    /// `get`.
    pub read: bool,
    /// `fetch_add` and the other atomic operations.
    pub atomic: bool,
}

impl Rights {
    /// Everything.
    pub const ALL: Rights = Rights { write: true, read: true, atomic: true };

    fn bits(self) -> u64 {
        u64::from(self.write) | u64::from(self.read) << 1 | u64::from(self.atomic) << 2
    }

    fn from_bits(bits: u64) -> Rights {
        Rights { write: bits & 1 != 0, read: bits & 2 != 0, atomic: bits & 4 != 0 }
    }
}

/// What an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
    Atomic,
}

/// The word that publishes a window: see `kumi_net::layout::WindowEntry`.
pub(crate) fn state_word(identifier: u32, rights: Rights) -> u64 {
    u64::from(identifier) << 8 | rights.bits() << 1 | 1
}

/// The rights in such a word if it is that window's.
pub(crate) fn rights_in(word: u64, identifier: u32) -> Option<Rights> {
    let is = word & 1 == 1 && word >> 8 == u64::from(identifier);
    is.then(|| Rights::from_bits(word >> 1))
}

/// Checks one operation against a window.
pub(crate) fn check(
    rights: Rights,
    size: u64,
    offset: u64,
    length: u64,
    access: Access,
) -> Result<(), Refusal> {
    let allowed = match access {
        Access::Write => rights.write,
        Access::Read => rights.read,
        Access::Atomic => rights.atomic,
    };
    if !allowed {
        return Err(Refusal::Right);
    }
    if offset > size || length > size - offset {
        return Err(Refusal::Bounds);
    }
    if access == Access::Atomic && !offset.is_multiple_of(length) {
        return Err(Refusal::Alignment);
    }
    Ok(())
}

/// One window's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) base: NonNull<u8>,
    pub(crate) length: usize,
    pub(crate) rights: Rights,
    identifier: u32,
    offset: usize,
}

// SAFETY: window memory is shared by design; it is reached by raw copies and atomics only.
unsafe impl Send for Memory {}

/// The windows of this rank.
#[derive(Debug)]
pub(crate) struct Windows {
    slots: Vec<Option<Memory>>,
    /// Free ranges of the arena, in pages' multiples: start and length.
    free: BTreeMap<usize, usize>,
}

/// Why a window cannot be made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoWindow {
    Slot,
    Room,
}

impl Windows {
    pub(crate) fn new(arena_bytes: usize) -> Windows {
        Windows { slots: vec![None; WINDOWS], free: BTreeMap::from([(0, arena_bytes)]) }
    }

    /// Makes a window and shows it to the node. Its memory reads as zeros.
    pub(crate) fn create(
        &mut self,
        place: &Place,
        identifier: u32,
        length: usize,
        rights: Rights,
    ) -> Result<Memory, NoWindow> {
        let slot = identifier as usize % WINDOWS;
        if self.slots[slot].is_some() {
            return Err(NoWindow::Slot);
        }
        let offset = self.allocate(length).ok_or(NoWindow::Room)?;
        // SAFETY: the allocator hands out ranges inside of the arena.
        let base = unsafe { place.arena(place.local()).add(offset) };
        let memory = Memory { base, length, rights, identifier, offset };
        self.slots[slot] = Some(memory);
        let context = place.own();
        for notify in &context.notifies.0[slot * NOTIFIES..(slot + 1) * NOTIFIES] {
            notify.count.store(0, Relaxed);
        }
        let entry = &context.windows[slot];
        entry.offset.store(offset as u64, Relaxed);
        entry.length.store(length as u64, Relaxed);
        entry.state.store(state_word(identifier, rights), Release);
        Ok(memory)
    }

    /// Takes a window away. Its memory goes back to the system.
    pub(crate) fn remove(&mut self, place: &Place, identifier: u32) -> std::io::Result<()> {
        let slot = identifier as usize % WINDOWS;
        let Some(memory) = self.slots[slot].filter(|memory| memory.identifier == identifier) else {
            return Ok(());
        };
        self.slots[slot] = None;
        place.own().windows[slot].state.store(0, SeqCst);
        let pages = pages(memory.length);
        if pages > 0 {
            place.discard(memory.offset, pages)?;
            self.release(memory.offset, pages);
        }
        Ok(())
    }

    /// First fit.
    fn allocate(&mut self, length: usize) -> Option<usize> {
        let bytes = page_up(length)?;
        if bytes == 0 {
            return Some(0);
        }
        let (start, have) = self.free.iter().find(|(_, have)| **have >= bytes)?;
        let (start, have) = (*start, *have);
        self.free.remove(&start);
        if have > bytes {
            self.free.insert(start + bytes, have - bytes);
        }
        Some(start)
    }

    fn release(&mut self, mut start: usize, mut bytes: usize) {
        if let Some((before, length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            (start, bytes) = (*before, bytes + length);
        }
        if let Some(after) = self.free.remove(&(start + bytes)) {
            bytes += after;
        }
        self.free.insert(start, bytes);
    }

    fn find(&self, identifier: u32) -> Result<&Memory, Refusal> {
        let slot = self.slots[identifier as usize % WINDOWS].as_ref();
        slot.filter(|memory| memory.identifier == identifier).ok_or(Refusal::Window)
    }

    /// The address of a range of a window that somebody wants to use.
    pub(crate) fn access(
        &self,
        identifier: u32,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<NonNull<u8>, Refusal> {
        let memory = self.find(identifier)?;
        check(memory.rights, memory.length as u64, offset, length, access)?;
        // SAFETY: `offset` is inside of the window by the check, so it fits a usize.
        Ok(unsafe { memory.base.add(offset as usize) })
    }

    /// Applies a put that came as a frame.
    pub(crate) fn put(
        &self,
        context: &RankContext,
        identifier: u32,
        shape: &impl Spread,
        notify: Option<u32>,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let to = self.access(identifier, shape.start(), shape.span(), Access::Write)?;
        if notify.is_some_and(|notify| notify as usize >= NOTIFIES) {
            return Err(Refusal::Notify);
        }
        // SAFETY: the range was just checked; window memory may be written at any time.
        unsafe { shape.scatter(to, data) };
        if let Some(notify) = notify {
            let index = counter_index(identifier, notify);
            context.notifies.0[index].count.fetch_add(1, SeqCst);
        }
        Ok(())
    }
}

fn pages(length: usize) -> usize {
    page_up(length).unwrap_or(length & !(PAGE - 1))
}

/// The place of a notification counter in the context.
pub(crate) fn counter_index(identifier: u32, notify: u32) -> usize {
    (identifier as usize % WINDOWS) * NOTIFIES + notify as usize
}

/// Copies into window memory. Eight aligned bytes appear at once.
///
/// # Safety
/// `data.len()` bytes at `to` are inside of a window.
#[inline]
pub(crate) unsafe fn copy_in(to: NonNull<u8>, data: &[u8]) {
    if let Ok(bytes) = <[u8; 8]>::try_from(data)
        && to.cast::<u64>().is_aligned()
    {
        // SAFETY: eight aligned bytes of window memory, by the caller's promise.
        let word = unsafe { AtomicU64::from_ptr(to.cast().as_ptr()) };
        word.store(u64::from_ne_bytes(bytes), Release);
        return;
    }
    // SAFETY: inside of the window by the caller's promise; `data` is the program's or a packet's,
    // not window memory, or else it overlaps like any other racing access, hence `copy`.
    unsafe { to.as_ptr().copy_from(data.as_ptr(), data.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn checks_refuse_each_for_its_reason() {
        let all = Rights::ALL;
        assert_eq!(check(all, 16, 8, 8, Access::Write), Ok(()));
        assert_eq!(check(all, 16, 16, 0, Access::Read), Ok(()));
        assert_eq!(check(all, 16, 9, 8, Access::Write), Err(Refusal::Bounds));
        assert_eq!(check(all, 16, u64::MAX, 1, Access::Read), Err(Refusal::Bounds));
        assert_eq!(check(all, 16, 1, u64::MAX, Access::Read), Err(Refusal::Bounds));
        assert_eq!(check(all, 16, 4, 8, Access::Atomic), Err(Refusal::Alignment));
        assert_eq!(check(all, 16, 12, 4, Access::Atomic), Ok(()));
        assert_eq!(check(all, 16, 6, 4, Access::Atomic), Err(Refusal::Alignment));
        assert_eq!(check(all, 16, 16, 4, Access::Atomic), Err(Refusal::Bounds));
        let none = Rights { write: false, read: false, atomic: false };
        for access in [Access::Write, Access::Read, Access::Atomic] {
            assert_eq!(check(none, 16, 0, 8, access), Err(Refusal::Right));
        }
    }

    #[test]
    fn the_state_word_carries_identifier_and_rights() {
        for bits in 0..8 {
            let rights = Rights::from_bits(bits);
            let word = state_word(u32::MAX, rights);
            assert_eq!(rights_in(word, u32::MAX), Some(rights));
            assert_eq!(rights_in(word, 7), None);
        }
        assert_eq!(rights_in(0, 0), None);
    }

    proptest! {
        /// Windows never overlap, and when all are gone the arena is whole again.
        #[test]
        fn the_arena_is_handed_out_without_overlap(
            steps in prop::collection::vec((any::<bool>(), 0usize..40_000), 1..60),
        ) {
            let arena = 1 << 20;
            let mut windows = Windows::new(arena);
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (make, size) in steps {
                if make {
                    if let Some(start) = windows.allocate(size).filter(|_| size > 0) {
                        let bytes = pages(size);
                        prop_assert!(start + bytes <= arena);
                        let apart = |&(s, b): &(usize, usize)| s + b <= start || start + bytes <= s;
                        prop_assert!(live.iter().all(apart));
                        live.push((start, bytes));
                    }
                } else if !live.is_empty() {
                    let (start, bytes) = live.swap_remove(size % live.len());
                    windows.release(start, bytes);
                }
            }
            for (start, bytes) in live {
                windows.release(start, bytes);
            }
            prop_assert_eq!(windows.free, BTreeMap::from([(0, arena)]));
        }
    }
}
