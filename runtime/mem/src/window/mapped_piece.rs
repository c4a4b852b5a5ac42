//! Mapped pieces: pieces of windows at ranks of the same node, in memory that all of them have mapped.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use kumi_net::layout::{ArenaKind, Notify, WindowEntry};
use kumi_net::{Attachment, SharedBytes, SharedBytesMut};
use kumi_proto::frame::WindowKey;

use crate::window::key::{place, slot};
use crate::window::table::{Rights, WindowMemory, counter_index};

/// A window's piece at a rank of this node.
#[derive(Debug)]
pub(crate) struct MappedPiece {
    pub(crate) base: NonNull<u8>,
    pub(crate) size: u64,
    pub(crate) rights: Rights,
    /// The window's name there; it is in the entry as long as the window is.
    pub(crate) key: WindowKey,
    pub(crate) entry: NonNull<WindowEntry>,
    pub(crate) notifies: NonNull<Notify>,
}

// SAFETY: addresses in an arena or of the own piece, which stay valid as said at `bytes`; what is there is reached as shared
// bytes and atomics only.
unsafe impl Send for MappedPiece {}
// SAFETY: as above.
unsafe impl Sync for MappedPiece {}

impl MappedPiece {
    /// Reads the descriptor that the owner published and believes it only as far as it stays in the owner's arena that the
    /// key says. In one that is mapped for reading it gives no other right, whatever the descriptor says. The rank is one
    /// of this node, `local` its index.
    #[cold]
    pub(crate) fn find(
        attachment: &Attachment,
        local: usize,
        key: WindowKey,
    ) -> Option<MappedPiece> {
        let entry = &attachment.context(local).windows[slot(key)];
        let arena = match place(key) {
            ArenaKind::Open => attachment.open_arena(local),
            ArenaKind::Readable => attachment.readable_arena(local),
            ArenaKind::Private => return None,
        };
        if !MappedPiece::is_there(attachment, local, key) {
            return None;
        }
        let (offset, size) = (entry.offset.load(Acquire), entry.length.load(Acquire));
        let mut rights = Rights::from_bits(entry.rights.load(Acquire));
        if place(key) == ArenaKind::Readable {
            rights = Rights { write: false, atomic: false, ..rights };
        }
        let end = offset.checked_add(size)?;
        // The key once more: the values read in between are of one window.
        if end > attachment.arena_bytes() as u64
            || !offset.is_multiple_of(8)
            || entry.key.load(Relaxed) != key
        {
            return None;
        }
        // SAFETY: inside of the arena by the check above.
        let base = unsafe { arena.add(offset as usize) };
        Some(MappedPiece::at(attachment, local, base, size, rights, key))
    }

    /// Whether the rank still shows a window of this name.
    pub(crate) fn is_there(attachment: &Attachment, local: usize, key: WindowKey) -> bool {
        attachment.context(local).windows[slot(key)].key.load(Acquire) == key
    }

    /// The own piece.
    pub(crate) fn own(attachment: &Attachment, memory: WindowMemory) -> MappedPiece {
        let WindowMemory { base, length, rights, key, .. } = memory;
        MappedPiece::at(attachment, attachment.local(), base, length as u64, rights, key)
    }

    fn at(
        attachment: &Attachment,
        local: usize,
        base: NonNull<u8>,
        size: u64,
        rights: Rights,
        key: WindowKey,
    ) -> MappedPiece {
        let context = attachment.context(local);
        let entry = NonNull::from(&context.windows[slot(key)]);
        let notifies = &attachment.lines(local).notifies;
        let notifies = NonNull::from(&notifies.0[counter_index(key, 0)]);
        MappedPiece { base, size, rights, key, entry, notifies }
    }

    /// Its bytes, to be read.
    #[inline]
    pub(crate) fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: a range of an arena, which stays mapped as long as the context and in which there are no references. Or
        // the own piece, which stays as long as its window, whose value holds this.
        unsafe { SharedBytes::new(self.base, self.size as usize) }
    }

    /// Its bytes, to be written: after a check of rights that permits it, or by their owner.
    #[inline]
    pub(crate) fn writable(&self) -> SharedBytesMut<'_> {
        // SAFETY: as for `bytes`. Whoever may write or do atomic operations has it mapped for writing, see `find`; without
        // that right a mistake here ends the process at the first write.
        unsafe { SharedBytesMut::new(self.base, self.size as usize) }
    }

    /// Raises a notification counter (checked to be one) and wakes its rank.
    #[inline]
    pub(crate) fn raise(&self, attachment: &Attachment, local: usize, notify: u32) {
        // SAFETY: `notifies` points to the window's NOTIFIES counters, and `notify` is one of them.
        let counter = unsafe { self.notifies.add(notify as usize).as_ref() };
        counter.count.fetch_add(1, SeqCst);
        attachment.wake(local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::key::RandomSource;
    use crate::window::table::WindowTable;

    #[test]
    fn a_descriptor_that_cannot_be_is_none() {
        let attachment = Attachment::singleton(1 << 20).expect("attachment");
        let mut windows = WindowTable::new(attachment.arena_bytes(), RandomSource::Seeded(2));
        let memory = windows.create(&attachment, 100, Rights::ALL).expect("window");
        let find = |key| MappedPiece::find(&attachment, 0, key);
        let mapped = find(memory.key).expect("there");
        assert_eq!((mapped.base, mapped.size, mapped.rights), (memory.base, 100, Rights::ALL));
        for wrong in [0, memory.key ^ 1 << 20, memory.key ^ 1 << 8, memory.key ^ 1] {
            assert!(find(wrong).is_none());
        }
        let entry = &attachment.own().windows[slot(memory.key)];
        for (offset, length) in
            [(0, (1 << 20) + 1), (1 << 20, 1), (8, u64::MAX), (u64::MAX - 7, 8), (4, 8)]
        {
            entry.offset.store(offset, SeqCst);
            entry.length.store(length, SeqCst);
            assert!(find(memory.key).is_none(), "{offset}, {length}");
        }
        // In memory that is mapped for reading nobody gives more.
        let reader = Rights { write: false, read: true, atomic: false };
        let memory = windows.create(&attachment, 100, reader).expect("window");
        attachment.own().windows[slot(memory.key)].rights.store(7, SeqCst);
        let mapped = find(memory.key).expect("there");
        assert_eq!((mapped.base, mapped.rights), (memory.base, reader));
        // SAFETY: no memory is looked at.
        let lent = unsafe { windows.lend(&attachment, 64 as *mut u8, 8, Rights::ALL) };
        let lent = lent.expect("window").key;
        assert!(find(lent).is_none() && MappedPiece::is_there(&attachment, 0, lent));
    }
}
