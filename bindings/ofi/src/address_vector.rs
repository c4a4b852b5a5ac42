//! Address vectors: what a program's `fi_addr_t` stands for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::operation::Address;

/// Entries of the first chunk; each one has twice as many as the one before.
const FIRST: usize = 256;
const CHUNKS: usize = 24;
/// A slot without an address.
const EMPTY: u64 = 0;
const USED: u64 = 1 << 63;

/// What the program keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any word: the same one for the same address.
    Map,
    /// The number of the insertion, from 0, also when an address comes again.
    Table,
}

#[derive(Debug, Default)]
struct Known {
    /// The oldest slot of an address, and how often a map was given it.
    slots: HashMap<Address, (usize, usize)>,
}

/// Reading takes no lock, since each send and receive does.
#[derive(Debug)]
pub struct AddressVector {
    kind: Kind,
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
    /// Slots that were given away.
    count: AtomicUsize,
    known: Mutex<Known>,
}

/// The chunk of a slot, and its place there.
fn place(slot: usize) -> (usize, usize) {
    let chunk = (slot / FIRST + 1).ilog2() as usize;
    (chunk, slot - FIRST * ((1 << chunk) - 1))
}

fn pack(address: Address) -> u64 {
    USED | u64::from(address.endpoint) << 32 | u64::from(address.rank)
}

fn unpack(word: u64) -> Option<Address> {
    let endpoint = u16::try_from(word >> 32 & 0xffff).ok()?;
    let rank = u32::try_from(word & 0xffff_ffff).ok()?;
    (word & USED != 0).then_some(Address { rank, endpoint })
}

impl AddressVector {
    /// An empty one.
    #[must_use]
    pub fn new(kind: Kind) -> AddressVector {
        AddressVector {
            kind,
            chunks: [const { OnceLock::new() }; CHUNKS],
            count: AtomicUsize::new(0),
            known: Mutex::default(),
        }
    }

    /// What programs keep of it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, slot: usize) -> Option<&AtomicU64> {
        let (chunk, at) = place(slot);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    /// Puts an address in; gives its `fi_addr_t`. None if the vector is full.
    pub fn insert(&self, address: Address) -> Option<u64> {
        let mut known = self.known();
        if let (Kind::Map, Some((slot, times))) = (self.kind, known.slots.get_mut(&address)) {
            *times += 1;
            return Some(*slot as u64);
        }
        let slot = self.count.load(Ordering::Relaxed);
        self.write(slot, pack(address))?;
        self.count.store(slot + 1, Ordering::Release);
        known.slots.entry(address).or_insert((slot, 1));
        Some(slot as u64)
    }

    /// Leaves a slot empty, as a table does for an address that it refuses.
    pub fn skip(&self) {
        let _known = self.known();
        if self.kind == Kind::Table {
            let slot = self.count.load(Ordering::Relaxed);
            if self.write(slot, EMPTY).is_some() {
                self.count.store(slot + 1, Ordering::Release);
            }
        }
    }

    fn write(&self, slot: usize, word: u64) -> Option<()> {
        let (chunk, at) = place(slot);
        let cells = self
            .chunks
            .get(chunk)?
            .get_or_init(|| (0..FIRST << chunk).map(|_| AtomicU64::new(EMPTY)).collect());
        cells[at].store(word, Ordering::Release);
        Some(())
    }

    /// The address of a `fi_addr_t`.
    #[must_use]
    pub fn get(&self, address: u64) -> Option<Address> {
        unpack(self.slot(usize::try_from(address).ok()?)?.load(Ordering::Acquire))
    }

    /// The `fi_addr_t` of an address; the oldest one of a table.
    #[must_use]
    pub fn find(&self, address: Address) -> Option<u64> {
        self.known().slots.get(&address).map(|(slot, _)| *slot as u64)
    }

    /// Takes an insertion back. None if there is no such address.
    pub fn remove(&self, address: u64) -> Option<()> {
        let mut known = self.known();
        let slot = usize::try_from(address).ok()?;
        let word = self.slot(slot)?;
        let address = unpack(word.load(Ordering::Acquire))?;
        let (oldest, times) = known.slots.get_mut(&address)?;
        if self.kind == Kind::Map && *times > 1 {
            *times -= 1;
            return Some(());
        }
        let was_oldest = *oldest == slot;
        word.store(EMPTY, Ordering::Release);
        if was_oldest {
            known.slots.remove(&address);
        }
        if was_oldest && self.kind == Kind::Table {
            self.find_again(&mut known, address);
        }
        Some(())
    }

    /// The oldest slot that is left of an address that came more than once.
    fn find_again(&self, known: &mut Known, address: Address) {
        let wanted = pack(address);
        let left = (0..self.count.load(Ordering::Relaxed)).find(|slot| {
            self.slot(*slot).is_some_and(|word| word.load(Ordering::Relaxed) == wanted)
        });
        if let Some(slot) = left {
            known.slots.insert(address, (slot, 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(rank: u32) -> Address {
        Address { rank, endpoint: 9 }
    }

    #[test]
    fn slots_fill_chunks_without_gaps() {
        let mut next = (0, 0);
        for slot in 0..FIRST * 31 {
            assert_eq!(place(slot), next, "{slot}");
            next.1 += 1;
            if next.1 == FIRST << next.0 {
                next = (next.0 + 1, 0);
            }
        }
    }

    #[test]
    fn it_grows_and_keeps_what_is_there() {
        let vector = AddressVector::new(Kind::Table);
        for rank in 0..10_000 {
            assert_eq!(vector.insert(address(rank)), Some(u64::from(rank)));
        }
        assert!((0..10_000).all(|rank| vector.get(u64::from(rank)) == Some(address(rank))));
        assert_eq!(vector.get(10_000), None);
        assert_eq!(vector.get(u64::MAX), None);
        assert_eq!(vector.find(address(77)), Some(77));
    }

    #[test]
    fn a_map_gives_the_same_word_until_the_last_removal() {
        let vector = AddressVector::new(Kind::Map);
        let first = vector.insert(address(1)).unwrap();
        assert_eq!(vector.insert(address(1)), Some(first));
        assert_ne!(vector.insert(address(2)), Some(first));
        assert_eq!(vector.remove(first), Some(()));
        assert_eq!(vector.get(first), Some(address(1)));
        assert_eq!(vector.remove(first), Some(()));
        assert_eq!((vector.get(first), vector.find(address(1))), (None, None));
        assert_eq!(vector.remove(first), None);
    }

    #[test]
    fn a_table_counts_insertions() {
        let vector = AddressVector::new(Kind::Table);
        assert_eq!(vector.insert(address(5)), Some(0));
        vector.skip();
        assert_eq!(vector.insert(address(5)), Some(2));
        assert_eq!((vector.get(1), vector.find(address(5))), (None, Some(0)));
        assert_eq!(vector.remove(0), Some(()));
        assert_eq!(
            (vector.get(0), vector.get(2), vector.find(address(5))),
            (None, Some(address(5)), Some(2))
        );
        assert_eq!(vector.remove(2), Some(()));
        assert_eq!(vector.find(address(5)), None);
    }

    #[test]
    fn a_later_slot_of_a_table_goes_first() {
        let vector = AddressVector::new(Kind::Table);
        vector.insert(address(5));
        vector.insert(address(5));
        assert_eq!(vector.remove(1), Some(()));
        assert_eq!((vector.get(1), vector.find(address(5))), (None, Some(0)));
    }
}
