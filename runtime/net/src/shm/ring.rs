//! Ring of records with one producer and one consumer, in memory that two processes share.
//!
//! - A record is a word with its length, then its bytes, padded to eight.
//! - Records do not wrap: a marker skips the space left at the end.
//! - The producer owns `tail`, the consumer `head`. Both count bytes since the start and never go back.
//! - The consumer trusts nothing: an impossible record is an error, not an access outside of the ring. Its length is read
//!   once. Its bytes may change as long as they are looked at, so they are [`SharedBytes`].

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::RingPosition;
use crate::shared_bytes::{CopySource, SharedBytes, SharedBytesMut};
use crate::sync::{AtomicU64, reads, writes};

/// The length word that says: go on at the start of the ring.
const SKIP: u64 = u64::MAX;
const WORD: usize = 8;

/// The positions of a ring. Their memory outlives the value: both belong to the channel's mapping.
#[derive(Debug, Clone, Copy)]
struct Positions {
    /// Bytes ever written; only the producer writes it.
    tail: NonNull<RingPosition>,
    /// Bytes ever consumed; only the consumer writes it.
    head: NonNull<RingPosition>,
}

impl Positions {
    fn tail(&self) -> &AtomicU64 {
        // SAFETY: the ends got a pointer to a position that outlives them; it consists of atomics.
        &unsafe { self.tail.as_ref() }.0
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: as above.
        &unsafe { self.head.as_ref() }.0
    }
}

/// Where a ring is. Tail and records lie in memory that only the producer's process can write, the head in memory that
/// only the consumer's can.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingPlace {
    pub(crate) tail: NonNull<RingPosition>,
    pub(crate) head: NonNull<RingPosition>,
    /// The records.
    pub(crate) data: NonNull<u8>,
    /// Their bytes.
    pub(crate) size: usize,
}

impl RingPlace {
    fn positions(&self) -> Positions {
        Positions { tail: self.tail, head: self.head }
    }
}

/// Where in a ring of so many bytes a position is.
fn offset(position: u64, size: usize) -> usize {
    (position as usize) & (size - 1)
}

/// Asks for a line that is about to be written.
#[inline]
fn prefetch_to_write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; it changes nothing and cannot fault.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line,
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Asks for a line that is about to be read. Miri knows no such instruction.
#[inline]
fn prefetch(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; it reads nothing that the program sees and cannot fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
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
    positions: Positions,
    data: SharedBytesMut<'static>,
    tail: u64,
    known_head: u64,
    /// The consumer leaves the mark of this ring, since it looks at the tail: see [`Wake::mark`](crate::layout::Wake::mark).
    pub(crate) left_marked: bool,
}

/// The consumer's end. It writes its position and nothing else.
#[derive(Debug)]
pub(crate) struct Consumer {
    positions: Positions,
    data: SharedBytes<'static>,
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
    /// `place` is a ring whose memory outlives this value, and no reference to its records is used. The size is a power
    /// of two, the records are aligned to 8 and may be written, as may the tail, and this is the ring's only producer.
    pub(crate) unsafe fn new(place: RingPlace) -> Producer {
        let positions = place.positions();
        // SAFETY: the caller's promise; both ends reach the bytes by shared bytes only.
        let data = unsafe { SharedBytesMut::new(place.data, place.size) };
        let known_head = positions.head().load(Acquire);
        // An earlier user of this memory may have left nonsense there; a word's multiple keeps accesses aligned and inside.
        let tail = positions.tail().load(Relaxed) & !(WORD as u64 - 1);
        Producer { positions, data, tail, known_head, left_marked: false }
    }

    /// The bytes that are to be written.
    fn written(&self, offset: usize, bytes: usize) -> SharedBytesMut<'static> {
        let room = self.data.slice(offset, bytes);
        writes(room.as_ptr(), bytes);
        room
    }

    /// Appends one record made of the parts of `head` and then those of `data`; false if there is no room now.
    ///
    /// The new tail is written with release order. If the consumer must notice it, the caller adds a
    /// full barrier.
    pub(crate) fn push<S: CopySource>(&mut self, head: &[&[u8]], data: &[S]) -> bool {
        let length = head.iter().map(|part| part.len()).sum::<usize>()
            + data.iter().map(|part| part.len()).sum::<usize>();
        assert!(length <= max_record(self.data.len()), "record larger than the ring takes");
        let need = WORD + padded(length);
        let mut offset = offset(self.tail, self.data.len());
        let to_end = self.data.len() - offset;
        let skip = if to_end < need { to_end } else { 0 };
        if !self.has_room(skip + need) {
            return false;
        }
        // Free: the consumer does not touch it before the tail says so.
        if skip > 0 {
            self.written(offset, WORD).store_u64(0, SKIP);
            offset = 0;
        }
        let record = self.written(offset, need);
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
        self.positions.tail().store(self.tail, Release);
        true
    }

    /// Asks for the lines that the next record is written to, so that their transfers overlap what is done before.
    #[inline]
    pub(crate) fn expect_push(&self) {
        prefetch_to_write(self.data.as_ptr().wrapping_add(offset(self.tail, self.data.len())));
        prefetch_to_write(self.positions.tail.as_ptr().cast());
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        let fits = |head: u64, tail: u64, size: usize| {
            let used = tail.wrapping_sub(head);
            used <= size as u64 && bytes as u64 <= size as u64 - used
        };
        if fits(self.known_head, self.tail, self.data.len()) {
            return true;
        }
        self.known_head = self.positions.head().load(Acquire);
        fits(self.known_head, self.tail, self.data.len())
    }

    /// Everything pushed has been consumed.
    pub(crate) fn drained(&self) -> bool {
        self.positions.head().load(Acquire) == self.tail
    }
}

impl Consumer {
    /// # Safety
    /// As [`Producer::new`], but that of the memory only the head is written, and this is the ring's only consumer.
    pub(crate) unsafe fn new(place: RingPlace) -> Consumer {
        let positions = place.positions();
        // SAFETY: the caller's promise; both ends reach the bytes by shared bytes only.
        let data = unsafe { SharedBytes::new(place.data, place.size) };
        let head = positions.head().load(Relaxed) & !(WORD as u64 - 1);
        Consumer { positions, data, head, step: 0 }
    }

    /// The bytes that are to be read.
    fn looked_at(&self, offset: usize, bytes: usize) -> SharedBytes<'static> {
        let record = self.data.slice(offset, bytes);
        reads(record.as_ptr(), bytes);
        record
    }

    /// Whether there is a record that is not consumed, as of some moment. Asks for the record's first line at the same time, so
    /// that its transfer overlaps that of the tail.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        prefetch(self.data.as_ptr().wrapping_add(offset(self.head, self.data.len())));
        self.positions.tail().load(Acquire) != self.head
    }

    /// The next record, without consuming it. The producer does not write it until [`Consumer::consume`]; one that breaks
    /// this rule garbles the bytes of its own record, of which no more are looked at than it has.
    pub(crate) fn peek(&mut self) -> Result<Option<SharedBytes<'_>>, RingDamage> {
        let tail = self.positions.tail().load(Acquire);
        let size = self.data.len();
        let mut available = tail.wrapping_sub(self.head);
        let damage = RingDamage { position: self.head };
        if available > size as u64 || !available.is_multiple_of(WORD as u64) {
            return Err(damage);
        }
        let mut offset = offset(self.head, size);
        let mut skip = 0;
        if available == 0 {
            return Ok(None);
        }
        let mut length = self.looked_at(offset, WORD).load_u64(0);
        if length == SKIP {
            skip = (size - offset) as u64;
            available = available.checked_sub(skip).ok_or(damage)?;
            if available == 0 {
                return Err(damage);
            }
            offset = 0;
            length = self.looked_at(0, WORD).load_u64(0);
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
        Ok(Some(self.looked_at(offset, need).slice(WORD, length)))
    }

    /// Consumes the record that [`Consumer::peek`] returned last.
    pub(crate) fn consume(&mut self) {
        self.head = self.head.wrapping_add(self.step);
        self.step = 0;
        self.positions.head().store(self.head, Release);
    }
}

/// Entry point of the fuzz target, used by the tests too.
#[cfg(any(test, fuzzing))]
pub mod fuzz_target {
    use super::{Consumer, Producer, RingPlace};
    use crate::layout::RingPosition;
    use std::cell::UnsafeCell;
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    pub(super) const SIZE: usize = 4096;

    #[repr(C, align(4096))]
    pub(super) struct Memory {
        pub(super) tail: RingPosition,
        pub(super) head: RingPosition,
        pub(super) data: UnsafeCell<[u8; SIZE]>,
    }
    // SAFETY: as in a segment: reached by the two ends only.
    unsafe impl Sync for Memory {}

    pub(super) fn memory() -> Box<Memory> {
        let position = || RingPosition(AtomicU64::new(0));
        let (tail, head) = (position(), position());
        Box::new(Memory { tail, head, data: UnsafeCell::new([0; SIZE]) })
    }

    pub(super) fn ends(memory: &Memory) -> (Producer, Consumer) {
        let (tail, head) = (NonNull::from(&memory.tail), NonNull::from(&memory.head));
        let place = RingPlace { tail, head, data: NonNull::from(&memory.data).cast(), size: SIZE };
        // SAFETY: the callers keep the memory while they use the ends, one of each.
        unsafe { (Producer::new(place), Consumer::new(place)) }
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
        memory.tail.0.store(words.next().unwrap_or(0), Relaxed);
        memory.head.0.store(words.next().unwrap_or(0), Relaxed);
        for (at, word) in words.take(SIZE / 8).enumerate() {
            // SAFETY: inside of the data, and no other thread is there.
            unsafe { memory.data.get().cast::<u64>().add(at).write(word) };
        }
        survive(&memory);
    }
}

#[cfg(test)]
mod tests {
    use super::fuzz_target::{SIZE, ends, memory, survive};
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn two_threads_pass_records_in_order_and_whole() {
        let memory = memory();
        let (mut producer, mut consumer) = ends(&memory);
        const RECORDS: u64 = if cfg!(miri) { 60 } else { 30_000 };
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
        memory.tail.0.store(SIZE as u64, Relaxed);
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
            memory.head.0.store(head, Relaxed);
            memory.tail.0.store(tail, Relaxed);
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
            memory.head.0.store(start, Relaxed);
            memory.tail.0.store(start, Relaxed);
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
