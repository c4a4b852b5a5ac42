//! Layout of a trace ring: a header, a table of allocations, and the events.

use crate::segment::layout::PAGE;
use crate::sync::{AtomicU32, AtomicU64};
use crate::trace::{Event, EventKind};

/// The bytes `KUMITRC` and 1.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"KUMITRC\x01");

/// Fewest events of a ring.
pub const FEWEST_EVENTS: u64 = 1 << 10;
/// Most events of a ring.
pub const MOST_EVENTS: u64 = 1 << 22;
/// Allocations that are recorded with their names.
pub const MOST_ALLOCATIONS: usize = 256;
/// Bytes of the name of an allocation.
pub const NAME_BYTES: usize = 112;

/// The begin of the file.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RingHeader {
    /// [`MAGIC`], written by the daemon.
    pub(crate) magic: AtomicU64,
    /// Events of the ring, written by the daemon.
    pub(crate) events: AtomicU64,
    /// Bytes of a page of shared memory; 0 if there is none.
    pub(crate) page_bytes: AtomicU32,
    /// Allocations begun.
    pub(crate) allocations: AtomicU32,
    reserved: [AtomicU64; 5],
    /// Events begun. Alone on its line, since all threads raise it.
    pub(crate) begun: AtomicU64,
    reserved_line: [AtomicU64; 7],
}

/// An allocation of shared memory.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct AllocationEntry {
    pub(crate) first: AtomicU32,
    pub(crate) pages: AtomicU32,
    /// Bytes of the name plus one, written last; 0: nothing here yet.
    pub(crate) length: AtomicU32,
    reserved: AtomicU32,
    pub(crate) name: [AtomicU64; NAME_BYTES / 8],
}

/// An event as four words. The last has, from its lowest bit on: peer (32), kind (8), thread (8), and the lap (16) in which it
/// was written. It is written last, so that an event without its lap is not complete.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) time: AtomicU64,
    pub(crate) duration: AtomicU64,
    /// Object, and the amount in the upper half.
    pub(crate) object: AtomicU64,
    pub(crate) last: AtomicU64,
}

const _: () = assert!(size_of::<RingHeader>() == 128);
const _: () = assert!(size_of::<AllocationEntry>() == 128);
const _: () = assert!(size_of::<Slot>() == 32);

/// Where the table of allocations starts.
pub(crate) const TABLE: usize = PAGE;
/// Where the events start.
pub(crate) const EVENTS: usize = TABLE + MOST_ALLOCATIONS * size_of::<AllocationEntry>();

/// Bytes of the file of a ring of so many events.
#[must_use]
pub fn ring_bytes(events: u64) -> usize {
    EVENTS + events as usize * size_of::<Slot>()
}

/// Whether a ring can have so many events.
pub(crate) fn is_possible(events: u64) -> bool {
    events.is_power_of_two() && (FEWEST_EVENTS..=MOST_EVENTS).contains(&events)
}

/// The lap in which the event of this number is written: never 0 before the ring was written 65,535 times.
pub(crate) fn lap(number: u64, events: u64) -> u16 {
    (number / events).wrapping_add(1) as u16
}

/// The last two words of an event.
pub(crate) fn pack(event: &Event, lap: u16) -> [u64; 2] {
    let object = u64::from(event.object) | u64::from(event.amount) << 32;
    let kind = u64::from(event.kind as u8) << 32;
    let last = u64::from(event.peer) | kind | u64::from(event.thread) << 40;
    [object, last | u64::from(lap) << 48]
}

/// The lap of a last word.
pub(crate) fn lap_of(last: u64) -> u16 {
    (last >> 48) as u16
}

/// The event of four words, unless its kind is none.
pub(crate) fn unpack([time, duration, object, last]: [u64; 4]) -> Option<Event> {
    Some(Event {
        time,
        duration,
        kind: EventKind::from_number((last >> 32) as u8)?,
        thread: (last >> 40) as u8,
        peer: last as u32,
        object: object as u32,
        amount: (object >> 32) as u32,
    })
}
