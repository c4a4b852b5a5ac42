//! Table of this rank's windows, in its arena or in the program's own memory, with the rights of
//! others.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use kumi_net::layout::{ArenaKind, NOTIFIES, PAGE, SharedLines, WINDOWS, page_up};
use kumi_net::{Attachment, CopySource, SharedBytesMut};
use kumi_proto::frame::{NO_WINDOW, WindowKey};

use crate::error::{Error, Refusal};
use crate::window::key::{RandomSource, is_open, is_private, is_registered, place, slot};
use crate::window::pieces::ByteLayout;
use crate::window::registered::RegisteredTable;

/// Rights of other ranks in a window.
///
/// The owner's library enforces them against ranks of other nodes, and against all for the program's own memory
/// ([`crate::Context::with_window_on`]). Ranks of the same node map memory made for a window. Of that the kernel enforces
/// whether they may write it:
///
/// - `write` or `atomic`: they map it for writing, and their own libraries tell the two rights apart;
/// - `read` alone: they map it for reading, and the kernel ends a process that writes;
/// - none: they do not map it.
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

    pub(crate) fn bits(self) -> u64 {
        u64::from(self.write) | u64::from(self.read) << 1 | u64::from(self.atomic) << 2
    }

    /// The arena for a window with these rights.
    fn arena(self) -> ArenaKind {
        match self {
            Rights { write: false, atomic: false, read: false } => ArenaKind::Private,
            Rights { write: false, atomic: false, read: true } => ArenaKind::Readable,
            _ => ArenaKind::Open,
        }
    }

    pub(crate) fn from_bits(bits: u64) -> Rights {
        Rights { write: bits & 1 != 0, read: bits & 2 != 0, atomic: bits & 4 != 0 }
    }
}

/// The right that an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
    Atomic,
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

/// One window's memory. Whoever has this value uses it only as long as the window is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowMemory {
    pub(crate) base: NonNull<u8>,
    pub(crate) length: usize,
    pub(crate) rights: Rights,
    /// The name here.
    pub(crate) key: WindowKey,
    /// Start in its arena; none if it is the program's own memory.
    offset: Option<usize>,
}

// SAFETY: window memory is shared by design; it is reached as shared bytes only.
unsafe impl Send for WindowMemory {}
// SAFETY: as above.
unsafe impl Sync for WindowMemory {}

impl WindowMemory {
    /// Memory of the program's own.
    pub(crate) fn own(
        base: NonNull<u8>,
        length: usize,
        rights: Rights,
        key: WindowKey,
    ) -> WindowMemory {
        WindowMemory { base, length, rights, key, offset: None }
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> SharedBytesMut<'_> {
        // SAFETY: the table made this value of a range of the arena, where there are no references, or of memory whose
        // owner promised to `lend` what is demanded. It is so until the window is removed.
        unsafe { SharedBytesMut::new(self.base, self.length) }
    }
}

/// A window and what the others call theirs.
#[derive(Debug)]
struct WindowSlot {
    memory: WindowMemory,
    /// By rank; empty until the others have told.
    keys: Arc<[WindowKey]>,
}

/// The windows of this rank.
#[derive(Debug)]
pub(crate) struct WindowTable {
    slots: Vec<Option<WindowSlot>>,
    /// Where the search for a free slot begins: one that was freed is not used again soon.
    next: usize,
    pub(super) random: RandomSource,
    /// Memory that has a key and is no window.
    pub(super) registered: RegisteredTable,
    /// Free ranges of each arena, in pages' multiples: start and length.
    free: [BTreeMap<usize, usize>; 3],
}

/// Why a window cannot be made here. The numbers travel to the other ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowRefusal {
    /// There are [`WINDOWS`] already.
    Slot = 1,
    /// The arena has no such range.
    Room = 2,
    /// The caller's memory does not begin where atomic operations need it to.
    Alignment = 3,
    /// The caller's memory is not valid.
    Memory = 4,
    /// The system gives no random numbers.
    Random = 5,
    /// The system gives no thread.
    Thread = 6,
    /// The program passed wrong arguments.
    Arguments = 7,
    /// The system gives no memory that is private to the process.
    Private = 8,
    /// There are [`MOST_REGISTERED`](super::key::MOST_REGISTERED) pieces of registered memory.
    Registrations = 9,
}

impl WindowRefusal {
    /// As an error of this rank.
    pub(crate) fn at(self, rank: u32) -> Error {
        Error::WindowRefused { rank, reason: WindowRefusal::text(self as u64) }
    }

    /// Decodes the number that a rank has sent.
    pub(crate) fn text(number: u64) -> &'static str {
        match number {
            1 => "it has 256 windows already: drop some",
            2 => {
                "it asked for more than is left of its address space for windows, which is about twice the memory of its node: ask for less"
            }
            3 => {
                "its memory does not begin at a multiple of 8, as atomic operations need: align it, or do without the right to them"
            }
            4 => "it named no memory, or more than there can be",
            5 => "its system gives no random numbers",
            6 => "its system gives no thread to serve the memory while the program computes",
            7 => "its program gave arguments that make no sense, as that rank was told",
            8 => {
                "its system gives no memory file for a window without rights: raise the limit of open files there, or give a right"
            }
            9 => "it has registered 1,048,576 pieces of memory already: end some",
            _ => "for a reason that this version does not know",
        }
    }
}

impl WindowTable {
    pub(crate) fn new(arena_bytes: usize, random: RandomSource) -> WindowTable {
        let slots = (0..WINDOWS).map(|_| None).collect();
        let free = std::array::from_fn(|_| BTreeMap::from([(0, arena_bytes)]));
        WindowTable { slots, next: 0, random, registered: RegisteredTable::default(), free }
    }

    /// Makes a window and shows it to the node. Its memory reads as zeros, and lies in the arena for its rights.
    pub(crate) fn create(
        &mut self,
        attachment: &Attachment,
        length: usize,
        rights: Rights,
    ) -> Result<WindowMemory, WindowRefusal> {
        let kind = rights.arena();
        let arena = attachment.own_arena(kind).map_err(|_| WindowRefusal::Private)?;
        let key = self.key(kind)?;
        let offset = self.allocate(kind, length).ok_or(WindowRefusal::Room)?;
        // SAFETY: the allocator hands out ranges inside of the arena.
        let base = unsafe { arena.add(offset) };
        let offset = Some(offset);
        Ok(self.publish(attachment, WindowMemory { base, length, rights, key, offset }))
    }

    /// Makes a window of memory of the program's own, as it is.
    ///
    /// # Safety
    /// Until the window has been removed the `length` bytes at `base` are what [`SharedBytesMut::new`] demands.
    pub(crate) unsafe fn lend(
        &mut self,
        attachment: &Attachment,
        base: *mut u8,
        length: usize,
        rights: Rights,
    ) -> Result<WindowMemory, WindowRefusal> {
        let base = match NonNull::new(base) {
            Some(base) => base,
            None if length == 0 => NonNull::<u64>::dangling().cast(),
            None => return Err(WindowRefusal::Memory),
        };
        check_lent(base, length, rights)?;
        let key = self.key(ArenaKind::Private)?;
        Ok(self.publish(attachment, WindowMemory::own(base, length, rights, key)))
    }

    /// A key in a free slot.
    fn key(&mut self, place: ArenaKind) -> Result<WindowKey, WindowRefusal> {
        let slots = (self.next..WINDOWS).chain(0..self.next);
        let free = slots.into_iter().find(|slot| self.slots[*slot].is_none());
        let slot = free.ok_or(WindowRefusal::Slot)?;
        self.random.key(slot, place).map_err(|_| WindowRefusal::Random)
    }

    fn publish(&mut self, attachment: &Attachment, memory: WindowMemory) -> WindowMemory {
        let slot = slot(memory.key);
        self.next = (slot + 1) % WINDOWS;
        self.slots[slot] = Some(WindowSlot { memory, keys: Arc::default() });
        for notify in &attachment.own_lines().notifies.0[slot * NOTIFIES..(slot + 1) * NOTIFIES] {
            notify.count.store(0, Relaxed);
        }
        let entry = &attachment.own().windows[slot];
        // Each after the key of the previous window there has gone.
        let offset = memory.offset.filter(|_| !is_private(memory.key));
        entry.offset.store(offset.unwrap_or(0) as u64, Release);
        entry.length.store(memory.length as u64, Release);
        entry.rights.store(memory.rights.bits(), Release);
        entry.key.store(memory.key, Release);
        memory
    }

    /// Keeps what the ranks call this window, so that it can be forwarded to.
    pub(crate) fn know(&mut self, key: WindowKey, keys: Arc<[WindowKey]>) {
        if let Some(slot) = self.slots[slot(key)].as_mut().filter(|slot| slot.memory.key == key) {
            slot.keys = keys;
        }
    }

    /// The ranks' keys of the window that this rank calls `key`; nothing if it is gone.
    pub(crate) fn keys(&self, key: WindowKey) -> Arc<[WindowKey]> {
        let slot = self.slots[slot(key)].as_ref().filter(|slot| slot.memory.key == key);
        slot.map_or_else(Arc::default, |slot| Arc::clone(&slot.keys))
    }

    /// There are windows of this rank or another of its node that ranks of the node reach by frames: of the program's own
    /// memory, or memory which they cannot write, where there may be FIFOs.
    pub(crate) fn any_by_frames_on_node(&self, attachment: &Attachment) -> bool {
        let first = attachment.rank() as usize - attachment.local();
        let mapped = first..first + attachment.local_count();
        let by_frames = |slot: &WindowSlot| {
            let keys = slot.keys.get(mapped.clone()).unwrap_or_default();
            is_private(slot.memory.key)
                || (mapped.len() > 1 && keys.iter().any(|key| !is_open(*key)))
        };
        self.registered.any() || self.slots.iter().flatten().any(by_frames)
    }

    /// Takes a window away. Its memory goes back to the system, if it came from there.
    pub(crate) fn remove(
        &mut self,
        attachment: &Attachment,
        key: WindowKey,
    ) -> std::io::Result<()> {
        let slot = slot(key);
        let window = self.find(key).ok().copied().filter(|_| !is_registered(key));
        let Some(memory) = window else { return Ok(()) };
        self.slots[slot] = None;
        attachment.own().windows[slot].key.store(NO_WINDOW, SeqCst);
        let pages = pages(memory.length);
        if let Some(offset) = memory.offset.filter(|_| pages > 0) {
            attachment.discard(place(key), offset, pages)?;
            self.release(place(key), offset, pages);
        }
        Ok(())
    }

    /// First fit.
    fn allocate(&mut self, arena: ArenaKind, length: usize) -> Option<usize> {
        let bytes = page_up(length)?;
        if bytes == 0 {
            return Some(0);
        }
        let free = &mut self.free[arena as usize];
        let (start, have) = free.iter().find(|(_, have)| **have >= bytes)?;
        let (start, have) = (*start, *have);
        free.remove(&start);
        if have > bytes {
            free.insert(start + bytes, have - bytes);
        }
        Some(start)
    }

    fn release(&mut self, arena: ArenaKind, mut start: usize, mut bytes: usize) {
        let free = &mut self.free[arena as usize];
        if let Some((before, length)) = free.range(..start).next_back()
            && before + length == start
        {
            (start, bytes) = (*before, bytes + length);
        }
        if let Some(after) = free.remove(&(start + bytes)) {
            bytes += after;
        }
        free.insert(start, bytes);
    }

    /// The window or registered memory of this name, and of no other.
    pub(crate) fn find(&self, key: WindowKey) -> Result<&WindowMemory, Refusal> {
        let memory = match is_registered(key) {
            true => self.registered.at(key),
            false => self.slots[slot(key)].as_ref().map(|slot| &slot.memory),
        };
        memory.filter(|memory| memory.key == key).ok_or(Refusal::Window)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &WindowMemory> {
        let windows = self.slots.iter().flatten().map(|slot| &slot.memory);
        windows.chain(self.registered.all())
    }

    /// The range of a window that somebody wants to use.
    pub(crate) fn access(
        &self,
        key: WindowKey,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<SharedBytesMut<'_>, Refusal> {
        let memory = self.find(key)?;
        check(memory.rights, memory.length as u64, offset, length, access)?;
        memory.bytes().get(offset as usize, length as usize).ok_or(Refusal::Bounds)
    }

    /// Applies a put that came as a frame.
    pub(crate) fn put(
        &self,
        lines: &SharedLines,
        key: WindowKey,
        shape: &impl ByteLayout,
        notify: Option<u32>,
        data: impl CopySource,
    ) -> Result<(), Refusal> {
        let to = self.access(key, shape.start(), shape.span(), Access::Write)?;
        // Registered memory has no counters.
        if notify.is_some_and(|notify| notify as usize >= NOTIFIES || is_registered(key)) {
            return Err(Refusal::Notify);
        }
        shape.scatter(to, data);
        if let Some(notify) = notify {
            let index = counter_index(key, notify);
            lines.notifies.0[index].count.fetch_add(1, SeqCst);
        }
        Ok(())
    }
}

/// Checks memory of the program's own.
pub(crate) fn check_lent(
    base: NonNull<u8>,
    length: usize,
    rights: Rights,
) -> Result<(), WindowRefusal> {
    let end = base.addr().get().checked_add(length);
    if isize::try_from(length).is_err() || end.is_none() {
        return Err(WindowRefusal::Memory);
    }
    if rights.atomic && length > 0 && !base.cast::<u64>().is_aligned() {
        return Err(WindowRefusal::Alignment);
    }
    Ok(())
}

fn pages(length: usize) -> usize {
    page_up(length).unwrap_or(length & !(PAGE - 1))
}

/// The place of a notification counter among the lines of its rank.
pub(crate) fn counter_index(key: WindowKey, notify: u32) -> usize {
    slot(key) * NOTIFIES + notify as usize
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

    fn engine() -> (Attachment, WindowTable) {
        let attachment = Attachment::singleton(1 << 20).expect("attachment");
        let windows = WindowTable::new(attachment.arena_bytes(), RandomSource::Seeded(5));
        (attachment, windows)
    }

    #[test]
    fn a_window_is_found_by_its_whole_key_only() {
        let (attachment, mut windows) = engine();
        let one = windows.create(&attachment, 64, Rights::ALL).expect("window");
        for bit in 0..64 {
            let wrong = windows.access(one.key ^ 1 << bit, 0, 8, Access::Read);
            assert_eq!(wrong.err(), Some(Refusal::Window), "bit {bit}");
        }
        for wrong in [NO_WINDOW, u64::MAX, slot(one.key) as u64] {
            assert_eq!(windows.access(wrong, 0, 0, Access::Read).err(), Some(Refusal::Window));
            windows.remove(&attachment, wrong).expect("nothing");
        }
        let found = windows.access(one.key, 0, 8, Access::Read).expect("a window");
        assert_eq!((found.start(), found.len()), (one.base, 8));
        windows.remove(&attachment, one.key).expect("remove");
        assert_eq!(windows.access(one.key, 0, 8, Access::Read).err(), Some(Refusal::Window));
        assert_eq!(attachment.own().windows[slot(one.key)].key.load(SeqCst), NO_WINDOW);
        // Its slot, used again, has another name.
        let again: Vec<_> = (0..WINDOWS)
            .map(|_| windows.create(&attachment, 0, Rights::ALL).expect("window").key)
            .collect();
        assert!(again.iter().any(|key| slot(*key) == slot(one.key)));
        assert_eq!(windows.access(one.key, 0, 0, Access::Read).err(), Some(Refusal::Window));
        assert_eq!(windows.create(&attachment, 0, Rights::ALL).err(), Some(WindowRefusal::Slot));
    }

    /// The kernel bounds the rest by where a window lies.
    #[test]
    fn the_rights_of_others_say_where_a_window_lies() {
        let (attachment, mut windows) = engine();
        for bits in 0..8 {
            let rights = Rights::from_bits(bits);
            let one = windows.create(&attachment, 4096, rights).expect("window");
            let kind = if rights.write || rights.atomic {
                ArenaKind::Open
            } else if rights.read {
                ArenaKind::Readable
            } else {
                ArenaKind::Private
            };
            assert_eq!(place(one.key), kind, "{rights:?}");
            let arena = attachment.own_arena(kind).expect("memory").addr().get();
            assert!((arena..arena + (1 << 20)).contains(&one.base.addr().get()), "{rights:?}");
            one.bytes().clear();
            windows.remove(&attachment, one.key).expect("its pages are given back");
        }
    }

    /// Only what is written takes memory.
    #[test]
    fn a_window_may_be_as_large_as_the_memory_of_a_large_node() {
        let arena_bytes = kumi_net::layout::arena_bytes(1, 64 << 30);
        let attachment = Attachment::singleton(arena_bytes).expect("attachment");
        let mut windows = WindowTable::new(attachment.arena_bytes(), RandomSource::Seeded(5));
        let length = 20 << 30;
        for _ in 0..3 {
            let one = windows.create(&attachment, length, Rights::ALL).expect("window");
            let all = windows.create(&attachment, 64 << 30, Rights::ALL).expect("beside it");
            for offset in [0, length as u64 - 8] {
                let word = windows.access(one.key, offset, 8, Access::Atomic).expect("inside");
                assert_eq!(word.atomic_u64().expect("aligned").swap(7, SeqCst), 0);
            }
            let much = windows.create(&attachment, 64 << 30, Rights::ALL);
            assert_eq!(much.err(), Some(WindowRefusal::Room));
            windows.remove(&attachment, all.key).expect("remove");
            windows.remove(&attachment, one.key).expect("remove");
        }
    }

    #[test]
    fn lent_memory_is_checked_and_left_as_it_is() {
        let (attachment, mut windows) = engine();
        let mut memory = [7u64; 8];
        let base = memory.as_mut_ptr().cast::<u8>();
        let reader = Rights { write: false, read: true, atomic: false };
        // SAFETY: an accepted range is inside of `memory`, of which 63 bytes are at `base + 1`.
        unsafe {
            let null = windows.lend(&attachment, std::ptr::null_mut(), 1, Rights::ALL);
            assert_eq!(null.err(), Some(WindowRefusal::Memory));
            let endless = windows.lend(&attachment, base, usize::MAX, Rights::ALL);
            assert_eq!(endless.err(), Some(WindowRefusal::Memory));
            let odd = windows.lend(&attachment, base.add(1), 63, Rights::ALL);
            assert_eq!(odd.err(), Some(WindowRefusal::Alignment));
            let odd = windows.lend(&attachment, base.add(1), 63, reader).expect("no atomics there");
            assert_eq!(odd.base.as_ptr(), base.add(1));
            assert!(is_private(odd.key) && windows.any_by_frames_on_node(&attachment));
            assert_eq!(
                windows.access(odd.key, 63, 0, Access::Read).map(SharedBytesMut::as_ptr),
                Ok(base.add(64))
            );
            windows.remove(&attachment, odd.key).expect("remove");
            windows.lend(&attachment, std::ptr::null_mut(), 0, Rights::ALL).expect("no bytes");
        }
        assert_eq!(memory, [7; 8]);
        let whole = BTreeMap::from([(0, 1 << 20)]);
        assert!(windows.free.iter().all(|free| *free == whole), "nothing of an arena");
    }

    proptest! {
        /// Windows never overlap, and when all are gone the arena is whole again.
        #[test]
        fn the_arena_is_handed_out_without_overlap(
            steps in prop::collection::vec((any::<bool>(), 0usize..40_000), 1..60),
            kind in 0usize..3,
        ) {
            let kind = [ArenaKind::Open, ArenaKind::Readable, ArenaKind::Private][kind];
            let arena = 1 << 20;
            let mut windows = WindowTable::new(arena, RandomSource::Seeded(1));
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (make, size) in steps {
                if make {
                    if let Some(start) = windows.allocate(kind, size).filter(|_| size > 0) {
                        let bytes = pages(size);
                        prop_assert!(start + bytes <= arena);
                        let apart = |&(s, b): &(usize, usize)| s + b <= start || start + bytes <= s;
                        prop_assert!(live.iter().all(apart));
                        live.push((start, bytes));
                    }
                } else if !live.is_empty() {
                    let (start, bytes) = live.swap_remove(size % live.len());
                    windows.release(kind, start, bytes);
                }
            }
            for (start, bytes) in live {
                windows.release(kind, start, bytes);
            }
            let whole = BTreeMap::from([(0, arena)]);
            prop_assert!(windows.free.iter().all(|free| *free == whole), "{:?}", windows.free);
        }
    }
}
