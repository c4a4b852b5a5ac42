//! Queue in window memory, behind a FIFO or a signal port: any number of senders of the node, one
//! taker. Layout and rules are in `docs/reference/channel-protocol.md`, "FIFOs in window memory".
//!
//! Nothing that is read there is believed: a value that cannot be is [`QueueDamage`], and no value leads
//! outside of the queue's memory.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::sync::{
    AtomicU32, AtomicU64, CopySource, SharedBytesMut, reads, sleep_while, wake_sleeper, word,
    writes, zero,
};

/// Mark of a FIFO.
pub(crate) const MARK_FIFO: u64 = u64::from_le_bytes(*b"KUMIFIF\x01");
/// Mark of a signal port.
pub(crate) const MARK_SIGNAL: u64 = u64::from_le_bytes(*b"KUMISIG\x01");
/// Bytes before the records.
pub(crate) const OVERHEAD: usize = size_of::<QueueHead>();
/// Alignment of the start of a queue.
pub(crate) const ALIGNMENT: usize = 64;
/// Least and greatest capacity.
pub(crate) const CAPACITIES: std::ops::RangeInclusive<u64> = 16..=1 << 31;
const WORD: u64 = 8;
/// Tries of a sender whose others are always faster, before it calls the queue full.
const TRIES: u32 = 10_000;

/// Start of a queue.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct QueueHead {
    /// A `MARK_`; 0: there is no queue.
    pub(crate) mark: AtomicU64,
    pub(crate) capacity: AtomicU64,
    /// Number of the notification counter that each record raises.
    pub(crate) notify: AtomicU64,
    /// 1: the port's thread sleeps here.
    pub(crate) sleeping: AtomicU32,
    reserved: [AtomicU32; 9],
    tail: CacheLine,
    head: CacheLine,
    /// Bit `i`: local rank `i` waits for room.
    pub(crate) waiting: [AtomicU64; 8],
}

/// A word alone on its line.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct CacheLine(AtomicU64);

/// Not so in a model.
const PLAIN: bool = size_of::<AtomicU32>() == 4;
const _: () = assert!(!PLAIN || OVERHEAD == 256 && std::mem::offset_of!(QueueHead, sleeping) == 24);
const _: () = assert!(
    !PLAIN
        || std::mem::offset_of!(QueueHead, tail) == 64
            && std::mem::offset_of!(QueueHead, head) == 128
            && std::mem::offset_of!(QueueHead, waiting) == 192
);

/// The memory holds an impossible record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueDamage;

/// Outcome of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushOutcome {
    Taken,
    Full,
    TooLong,
}

/// A record that can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextRecord {
    pub(crate) from: u32,
    pub(crate) length: usize,
}

/// The bytes that a record of this length takes.
pub(crate) fn need(length: usize) -> u64 {
    (length as u64).next_multiple_of(WORD) + WORD
}

const READY: u64 = 1 << 63;
const LENGTH: u64 = (1 << 24) - 1;

fn word_of(from: u32, length: usize) -> u64 {
    READY | u64::from(from) << 24 | length as u64
}

/// A queue that has been found to lie inside of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    head: NonNull<QueueHead>,
    data: SharedBytesMut<'static>,
    capacity: u64,
}

// SAFETY: the memory is shared by design; it is reached by atomics and as shared bytes only.
unsafe impl Send for Queue {}
// SAFETY: as above; `pop` is for the one taker, which has the position.
unsafe impl Sync for Queue {}

impl Queue {
    /// # Safety
    /// - `OVERHEAD + capacity` bytes at `base` are mapped as long as the value is used, and nobody holds a
    ///   reference to them but to atomics.
    /// - `base` is a multiple of [`ALIGNMENT`].
    /// - `capacity` is in [`CAPACITIES`] and a multiple of 8.
    pub(crate) unsafe fn at(base: NonNull<u8>, capacity: u64) -> Queue {
        // SAFETY: inside of the range that the caller promises.
        let data = unsafe { SharedBytesMut::new(base.add(OVERHEAD), capacity as usize) };
        Queue { head: base.cast(), data, capacity }
    }

    /// Empties the memory and shows the queue.
    pub(crate) fn open(&self, mark: u64, notify: u32) {
        self.positions().mark.store(0, SeqCst);
        // SAFETY: the positions, mapped by the promise of `at`; they are atomics.
        unsafe { SharedBytesMut::new(self.head.cast(), OVERHEAD) }.clear();
        self.data.clear();
        let head = self.positions();
        head.capacity.store(self.capacity, Relaxed);
        head.notify.store(u64::from(notify), Relaxed);
        head.mark.store(mark, Release);
    }

    pub(crate) fn positions(&self) -> &QueueHead {
        // SAFETY: mapped and aligned by the promise of `at`; it consists of atomics.
        unsafe { self.head.as_ref() }
    }

    /// Whether a record of this length can ever be in the queue.
    pub(crate) fn takes(&self, length: usize) -> bool {
        length as u64 <= LENGTH && need(length) <= self.capacity
    }

    /// Tail and head at one moment: `None` if senders kept changing the tail.
    fn sample(&self) -> Result<Option<(u64, u64)>, QueueDamage> {
        let positions = self.positions();
        let tail = positions.tail.0.load(SeqCst);
        let head = positions.head.0.load(SeqCst);
        if positions.tail.0.load(SeqCst) != tail {
            return Ok(None);
        }
        let used = tail.wrapping_sub(head);
        if used > self.capacity || !used.is_multiple_of(WORD) || !tail.is_multiple_of(WORD) {
            return Err(QueueDamage);
        }
        Ok(Some((tail, head)))
    }

    /// Whether a record of this length fits now.
    pub(crate) fn has_room(&self, length: usize) -> Result<bool, QueueDamage> {
        self.has_free(need(length))
    }

    /// Whether so many bytes are free. Also true if others are too fast to say: trying tells.
    pub(crate) fn has_free(&self, bytes: u64) -> Result<bool, QueueDamage> {
        for _ in 0..TRIES {
            if let Some((tail, head)) = self.sample()? {
                return Ok(bytes <= self.capacity - tail.wrapping_sub(head));
            }
        }
        Ok(true)
    }

    /// Appends a record. The caller then wakes the taker.
    pub(crate) fn push(
        &self,
        from: u32,
        record: impl CopySource,
    ) -> Result<PushOutcome, QueueDamage> {
        if !self.takes(record.len()) {
            return Ok(PushOutcome::TooLong);
        }
        let need = need(record.len());
        let place = &self.positions().tail.0;
        for _ in 0..TRIES {
            let Some((tail, head)) = self.sample()? else { continue };
            if need > self.capacity - tail.wrapping_sub(head) {
                return Ok(PushOutcome::Full);
            }
            let after = tail.wrapping_add(need);
            if place.compare_exchange(tail, after, SeqCst, Relaxed).is_ok() {
                self.copy_in(tail.wrapping_add(WORD), record);
                // The taker looks at its flag or counter after the word, and who appends at the word
                // before these: hence the order.
                self.word(tail).store(word_of(from, record.len()), SeqCst);
                return Ok(PushOutcome::Taken);
            }
        }
        Ok(PushOutcome::Full)
    }

    /// The record at the taker's position.
    pub(crate) fn peek(&self, head: u64, ranks: u32) -> Result<Option<NextRecord>, QueueDamage> {
        let word = self.word(head).load(SeqCst);
        if word == 0 {
            return Ok(None);
        }
        let (from, length) = ((word >> 24) as u32, (word & LENGTH) as usize);
        let available = self.positions().tail.0.load(Acquire).wrapping_sub(head);
        let good = word == word_of(from, length)
            && from < ranks
            && available <= self.capacity
            && need(length) <= available;
        if good { Ok(Some(NextRecord { from, length })) } else { Err(QueueDamage) }
    }

    /// Copies the start of the record that `peek` found, as far as `into` goes, and frees its place; the new position.
    pub(crate) fn take(&self, head: u64, next: NextRecord, into: SharedBytesMut<'_>) -> u64 {
        let length = next.length.min(into.len());
        self.copy_out(head.wrapping_add(WORD), into.slice(0, length));
        self.clear(head, need(next.length) as usize);
        let head = head.wrapping_add(need(next.length));
        // A sender that waits for room sets its bit before it looks at this.
        self.positions().head.0.store(head, SeqCst);
        head
    }

    /// Says that a local rank waits for room. It then looks whether there is some.
    pub(crate) fn await_room(&self, local: usize) {
        self.positions().waiting[local / 64].fetch_or(1 << (local % 64), SeqCst);
    }

    /// Takes the marks of those who wait for room, of a word with 64 local ranks.
    pub(crate) fn take_waiting(&self, word: usize) -> u64 {
        let word = &self.positions().waiting[word];
        if word.load(SeqCst) == 0 { 0 } else { word.swap(0, SeqCst) }
    }

    /// The port's thread sleeps, unless there is something to do, until [`Queue::wake_taker`].
    pub(crate) fn rest(&self, nothing_to_do: impl FnOnce() -> bool) {
        let sleeping = &self.positions().sleeping;
        // Announced before the last look, so that a sender that appends after the look sees it.
        sleeping.store(1, SeqCst);
        if nothing_to_do() {
            sleep_while(sleeping, 1);
        }
        sleeping.store(0, SeqCst);
    }

    /// Wakes the port's thread if it sleeps. Write what it is to see before.
    pub(crate) fn wake_taker(&self) {
        let sleeping = &self.positions().sleeping;
        if sleeping.load(SeqCst) != 0 && sleeping.swap(0, SeqCst) != 0 {
            wake_sleeper(sleeping);
        }
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        let offset = (position % self.capacity) as usize & !(WORD as usize - 1);
        // SAFETY: `offset` is a multiple of 8 below the capacity, which is one too: eight aligned bytes.
        unsafe { word(self.data.slice(offset, WORD as usize).start()) }
    }

    /// Where so many bytes at a position lie: from the offset to the end of the memory, the others
    /// at its start.
    fn split(&self, position: u64, length: usize) -> (usize, usize) {
        debug_assert!(length as u64 <= self.capacity);
        let offset = (position % self.capacity) as usize;
        (offset, length.min(self.capacity as usize - offset))
    }

    /// These bytes at a position: up to the end of the memory, and from its start on.
    fn places(&self, position: u64, length: usize) -> [SharedBytesMut<'static>; 2] {
        let (offset, first) = self.split(position, length);
        [self.data.slice(offset, first), self.data.slice(0, length - first)]
    }

    fn copy_in(&self, position: u64, data: impl CopySource) {
        let places = self.places(position, data.len());
        places.iter().for_each(|place| writes(place.as_ptr(), place.len()));
        let (first, rest) = data.split_at(places[0].len());
        places[0].copy_from(first);
        places[1].copy_from(rest);
    }

    fn copy_out(&self, position: u64, into: SharedBytesMut<'_>) {
        let places = self.places(position, into.len());
        places.iter().for_each(|place| reads(place.as_ptr(), place.len()));
        let (first, rest) = into.split_at(places[0].len());
        first.copy_from(places[0].shared());
        rest.copy_from(places[1].shared());
    }

    fn clear(&self, position: u64, length: usize) {
        for place in self.places(position, length) {
            // SAFETY: the record's memory, which is the taker's until the head has passed it.
            unsafe { zero(place.start(), place.len()) };
        }
    }
}

#[cfg(test)]
#[path = "queue/tests.rs"] // Said for those who compile this file from elsewhere.
mod tests;
