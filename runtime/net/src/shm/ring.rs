//! Ring of records with one producer and one consumer, in memory that two processes share.
//!
//! - A record is a word with its length, then its bytes, padded to eight.
//! - Records do not wrap: a marker skips the space left at the end.
//! - The producer owns `tail`, the consumer `head`. Both count bytes since the start and never go back.
//! - The consumer trusts nothing: an impossible record is an error, not an access outside of the ring. Its length is read
//!   once. Its bytes may change as long as they are looked at, so they are [`SharedBytes`].

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::RingHead;
use crate::shared_bytes::{CopySource, SharedBytes, SharedBytesMut};
use crate::sync::{reads, writes};

/// The length word that says: go on at the start of the ring.
const SKIP: u64 = u64::MAX;
const WORD: usize = 8;

/// Where a ring is. Its memory outlives the value: both belong to the channel's mapping.
#[derive(Debug, Clone, Copy)]
struct RingMemory {
    head: NonNull<RingHead>,
    data: SharedBytesMut<'static>,
}

impl RingMemory {
    /// # Safety
    /// As [`Producer::new`].
    unsafe fn new(head: NonNull<RingHead>, data: NonNull<u8>, size: usize) -> RingMemory {
        // SAFETY: the caller's promise; both ends reach the bytes by this type only.
        RingMemory { head, data: unsafe { SharedBytesMut::new(data, size) } }
    }

    fn positions(&self) -> &RingHead {
        // SAFETY: `new` got a pointer to a ring head that outlives this value; it consists of
        // atomics.
        unsafe { self.head.as_ref() }
    }

    fn size(&self) -> usize {
        self.data.len()
    }

    fn offset(&self, position: u64) -> usize {
        (position as usize) & (self.size() - 1)
    }

    /// The bytes that are to be written.
    fn written(&self, offset: usize, bytes: usize) -> SharedBytesMut<'static> {
        let room = self.data.slice(offset, bytes);
        writes(room.as_ptr(), bytes);
        room
    }

    /// The bytes that are to be read.
    fn looked_at(&self, offset: usize, bytes: usize) -> SharedBytes<'static> {
        let record = self.data.slice(offset, bytes).shared();
        reads(record.as_ptr(), bytes);
        record
    }
}

fn padded(bytes: usize) -> usize {
    (bytes + (WORD - 1)) & !(WORD - 1)
}

/// Largest record of a ring with so many data bytes: four fit, so both sides work at once.
#[must_use]
pub(crate) fn max_record(size: usize) -> usize {
    (size / 4).min(32 * 1024) - WORD
}

/// Damage found by a consumer: contents that no producer writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a shared-memory ring holds an impossible record at position {position}")]
pub struct RingDamage {
    /// Where, in bytes since the start.
    pub position: u64,
}

/// The producer's end.
#[derive(Debug)]
pub(crate) struct Producer {
    memory: RingMemory,
    tail: u64,
    known_head: u64,
}

/// The consumer's end.
#[derive(Debug)]
pub(crate) struct Consumer {
    memory: RingMemory,
    head: u64,
    /// Bytes to go past the record that was looked at last.
    step: u64,
}

// SAFETY: an end is used by one thread at a time; the memory behind it is shared by design.
unsafe impl Send for Producer {}
// SAFETY: as above.
unsafe impl Send for Consumer {}

impl Producer {
    /// # Safety
    /// `head` and the `size` bytes at `data` are a ring whose memory outlives this value, and no reference to its bytes
    /// is used. `size` is a power of two, `data` is aligned to 8, and this is the ring's only producer.
    pub(crate) unsafe fn new(head: NonNull<RingHead>, data: NonNull<u8>, size: usize) -> Producer {
        // SAFETY: the caller's promise.
        let memory = unsafe { RingMemory::new(head, data, size) };
        let known_head = memory.positions().head.0.load(Acquire);
        // A peer could have written nonsense there; a word's multiple keeps accesses aligned and inside.
        let tail = memory.positions().tail.0.load(Relaxed) & !(WORD as u64 - 1);
        Producer { memory, tail, known_head }
    }

    /// Appends one record made of the parts of `head` and then those of `data`; false if there is no room now.
    ///
    /// The new tail is written with release order. If the consumer must notice it, the caller adds a
    /// full barrier.
    pub(crate) fn push<S: CopySource>(&mut self, head: &[&[u8]], data: &[S]) -> bool {
        let length = head.iter().map(|part| part.len()).sum::<usize>()
            + data.iter().map(|part| part.len()).sum::<usize>();
        assert!(length <= max_record(self.memory.size()), "record larger than the ring takes");
        let need = WORD + padded(length);
        let mut offset = self.memory.offset(self.tail);
        let to_end = self.memory.size() - offset;
        let skip = if to_end < need { to_end } else { 0 };
        if !self.has_room(skip + need) {
            return false;
        }
        // Free: the consumer does not touch it before the tail says so.
        if skip > 0 {
            self.memory.written(offset, WORD).store_u64(0, SKIP);
            offset = 0;
        }
        let record = self.memory.written(offset, need);
        record.store_u64(0, length as u64);
        let mut room = record.slice(WORD, length);
        for part in head {
            let (place, behind) = room.split_at(part.len());
            place.copy_from(*part);
            room = behind;
        }
        for part in data {
            let (place, behind) = room.split_at(part.len());
            place.copy_from(*part);
            room = behind;
        }
        self.tail = self.tail.wrapping_add((skip + need) as u64);
        self.memory.positions().tail.0.store(self.tail, Release);
        true
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        let fits = |head: u64, tail: u64, size: usize| {
            let used = tail.wrapping_sub(head);
            used <= size as u64 && bytes as u64 <= size as u64 - used
        };
        if fits(self.known_head, self.tail, self.memory.size()) {
            return true;
        }
        self.known_head = self.memory.positions().head.0.load(Acquire);
        fits(self.known_head, self.tail, self.memory.size())
    }

    /// Everything pushed has been consumed.
    pub(crate) fn drained(&self) -> bool {
        self.memory.positions().head.0.load(Acquire) == self.tail
    }
}

impl Consumer {
    /// # Safety
    /// As [`Producer::new`], and this is the ring's only consumer.
    pub(crate) unsafe fn new(head: NonNull<RingHead>, data: NonNull<u8>, size: usize) -> Consumer {
        // SAFETY: the caller's promise.
        let memory = unsafe { RingMemory::new(head, data, size) };
        let head = memory.positions().head.0.load(Relaxed) & !(WORD as u64 - 1);
        Consumer { memory, head, step: 0 }
    }

    /// The next record, without consuming it. The producer does not write it until [`Consumer::consume`]; one that breaks
    /// this rule garbles the bytes of its own record, of which no more are looked at than it has.
    pub(crate) fn peek(&mut self) -> Result<Option<SharedBytes<'_>>, RingDamage> {
        let tail = self.memory.positions().tail.0.load(Acquire);
        let size = self.memory.size();
        let mut available = tail.wrapping_sub(self.head);
        let damage = RingDamage { position: self.head };
        if available > size as u64 || !available.is_multiple_of(WORD as u64) {
            return Err(damage);
        }
        let mut offset = self.memory.offset(self.head);
        let mut skip = 0;
        if available == 0 {
            return Ok(None);
        }
        let mut length = self.memory.looked_at(offset, WORD).load_u64(0);
        if length == SKIP {
            skip = (size - offset) as u64;
            available = available.checked_sub(skip).ok_or(damage)?;
            if available == 0 {
                return Err(damage);
            }
            offset = 0;
            length = self.memory.looked_at(0, WORD).load_u64(0);
        }
        let length = usize::try_from(length).map_err(|_| damage)?;
        if length > max_record(size) {
            return Err(damage);
        }
        let need = WORD + padded(length);
        if need as u64 > available || offset + need > size {
            return Err(damage);
        }
        self.step = skip + need as u64;
        Ok(Some(self.memory.looked_at(offset, need).slice(WORD, length)))
    }

    /// Consumes the record that [`Consumer::peek`] returned last.
    pub(crate) fn consume(&mut self) {
        self.head = self.head.wrapping_add(self.step);
        self.step = 0;
        self.memory.positions().head.0.store(self.head, Release);
    }
}

/// Entry point of the fuzz target, used by the tests too.
#[cfg(any(test, fuzzing))]
pub mod fuzz_target {
    use super::{Consumer, Producer};
    use crate::layout::{RingHead, RingPosition};
    use std::cell::UnsafeCell;
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    pub(super) const SIZE: usize = 4096;

    #[repr(C, align(4096))]
    pub(super) struct Memory {
        pub(super) head: RingHead,
        pub(super) data: UnsafeCell<[u8; SIZE]>,
    }
    // SAFETY: as in a segment: reached by the two ends only.
    unsafe impl Sync for Memory {}

    pub(super) fn memory() -> Box<Memory> {
        let position = || RingPosition(AtomicU64::new(0));
        let head = RingHead { tail: position(), head: position() };
        Box::new(Memory { head, data: UnsafeCell::new([0; SIZE]) })
    }

    pub(super) fn ends(memory: &Memory) -> (Producer, Consumer) {
        let head = NonNull::from(&memory.head);
        let data = NonNull::from(&memory.data).cast();
        // SAFETY: the callers keep the memory while they use the ends, one of each.
        unsafe { (Producer::new(head, data, SIZE), Consumer::new(head, data, SIZE)) }
    }

    /// Reads a ring with any contents: an error or some bytes of the ring, never a panic, and never
    /// a record outside of the ring. Then writes into it.
    pub(super) fn survive(memory: &Memory) {
        let (mut producer, mut consumer) = ends(memory);
        let base = memory.data.get().addr();
        for _ in 0..100 {
            let Ok(Some(record)) = consumer.peek() else { break };
            let start = record.as_ptr().addr();
            assert!(start >= base && start + record.len() <= base + SIZE);
            let sum: u64 = record.to_vec().into_iter().map(u64::from).sum();
            std::hint::black_box(sum);
            consumer.consume();
        }
        std::hint::black_box(producer.push(&[], &[&[1; 100][..]]));
    }

    /// A ring as a broken or hostile peer of this node may leave it: both positions, then the bytes
    /// from the start of the data.
    pub fn ring(input: &[u8]) {
        let mut words = input.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        let memory = memory();
        memory.head.tail.0.store(words.next().unwrap_or(0), Relaxed);
        memory.head.head.0.store(words.next().unwrap_or(0), Relaxed);
        for (at, word) in words.take(SIZE / 8).enumerate() {
            // SAFETY: inside of the data, and no other thread is there.
            unsafe { memory.data.get().cast::<u64>().add(at).write(word) };
        }
        survive(&memory);
    }
}

#[cfg(test)]
mod tests {
    use super::fuzz_target::{Memory, SIZE, ends, memory, survive};
    use super::*;
    use crate::layout::PAGE;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn the_head_takes_a_page() {
        assert_eq!(std::mem::offset_of!(Memory, data), PAGE);
    }

    #[test]
    fn two_threads_pass_records_in_order_and_whole() {
        let memory = memory();
        let (mut producer, mut consumer) = ends(&memory);
        const RECORDS: u64 = 30_000;
        let length = |i: u64| (i * 7919 % (max_record(SIZE) as u64 - 8)) as usize;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let body = vec![0u8; SIZE];
                for i in 0..RECORDS {
                    while !producer.push(&[&i.to_ne_bytes()], &[&body[..length(i)]]) {
                        std::thread::yield_now();
                    }
                }
            });
            for i in 0..RECORDS {
                loop {
                    if let Some(record) = consumer.peek().expect("undamaged") {
                        assert_eq!(record.len(), 8 + length(i));
                        assert_eq!(record.slice(0, 8).to_vec(), i.to_ne_bytes());
                        break;
                    }
                    std::thread::yield_now();
                }
                consumer.consume();
            }
        });
    }

    /// A length that changes between two reads must not lead behind the ring, or behind the record.
    #[test]
    #[cfg_attr(
        miri,
        ignore = "accesses of different sizes at the same time, as a hostile rank does them"
    )]
    fn a_length_that_changes_while_it_is_read_leads_nowhere_else() {
        let memory = memory();
        memory.head.tail.0.store(SIZE as u64, Relaxed);
        let (_, mut consumer) = ends(&memory);
        let base = memory.data.get().addr();
        // SAFETY: the data, which is reached by shared bytes only.
        let data = unsafe { SharedBytesMut::new(NonNull::from(&memory.data).cast(), SIZE) };
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    for length in [8, SKIP, 1000, u64::MAX - 1, 1 << 40, 0, SIZE as u64 - 8] {
                        data.store_u64(0, length);
                    }
                }
            });
            for _ in 0..200_000 {
                if let Ok(Some(record)) = consumer.peek() {
                    let start = record.as_ptr().addr();
                    assert!(start == base + WORD && record.len() <= 1000, "{record:?}");
                }
            }
            stop.store(true, Relaxed);
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Against a queue: same records, and a push is refused only when memory is really short.
        #[test]
        fn behaves_like_a_queue(
            steps in prop::collection::vec((any::<bool>(), 0usize..max_record(SIZE)), 1..200),
        ) {
            let memory = memory();
            let (mut producer, mut consumer) = ends(&memory);
            let mut queue: VecDeque<Vec<u8>> = VecDeque::new();
            for (at, (push, length)) in steps.into_iter().enumerate() {
                if push {
                    let record = vec![at as u8; length];
                    let used: usize = queue.iter().map(|r| WORD + padded(r.len())).sum();
                    if producer.push(&[&record[..length / 2]], &[&record[length / 2..]]) {
                        queue.push_back(record);
                    } else {
                        // Its own size, and at most as much lost at the end of the ring twice.
                        prop_assert!(used + 3 * (WORD + padded(max_record(SIZE))) > SIZE);
                    }
                } else {
                    let found = consumer.peek().expect("undamaged").map(SharedBytes::to_vec);
                    prop_assert_eq!(&found, &queue.pop_front());
                    if found.is_some() {
                        consumer.consume();
                    }
                }
                prop_assert_eq!(producer.drained(), queue.is_empty());
            }
        }

        /// Any contents give an error or some bytes of the ring, never a panic, and never a record
        /// outside of the ring.
        #[test]
        fn any_contents_are_survived(
            tail in prop_oneof![any::<u64>(), 0u64..3 * SIZE as u64],
            head in prop_oneof![any::<u64>(), 0u64..3 * SIZE as u64],
            words in prop::collection::vec((0usize..SIZE / 8, prop_oneof![
                any::<u64>(), Just(SKIP), 0u64..2048,
            ]), 0..64),
        ) {
            let memory = memory();
            memory.head.head.0.store(head, Relaxed);
            memory.head.tail.0.store(tail, Relaxed);
            for (at, word) in words {
                // SAFETY: inside of the data, and no other thread is there.
                unsafe { memory.data.get().cast::<u64>().add(at).write(word) };
            }
            survive(&memory);
        }

        /// Positions that a broken peer has put before their largest value are passed.
        #[test]
        fn positions_wrap_around(back in 0u64..64, length in 0usize..64) {
            let memory = memory();
            let start = 0u64.wrapping_sub(8 * back);
            memory.head.head.0.store(start, Relaxed);
            memory.head.tail.0.store(start, Relaxed);
            let (mut producer, mut consumer) = ends(&memory);
            for _ in 0..100 {
                prop_assert!(producer.push(&[], &[&[7; 64][..length]]));
                let record = consumer.peek().expect("undamaged").map(SharedBytes::to_vec);
                prop_assert_eq!(record, Some(vec![7; length]));
                consumer.consume();
            }
        }

        /// The same with bytes, as the fuzz target gives them.
        #[test]
        fn any_bytes_are_survived(input in prop::collection::vec(any::<u8>(), 0..256)) {
            fuzz_target::ring(&input);
        }
    }
}
