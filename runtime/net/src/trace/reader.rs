//! The daemon's side: makes the ring and reads it, whatever the rank has written.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::segment::SegmentError;
use crate::segment::files::{add_seals, failed, is_memory_of, memory_file};
use crate::shm::mapping::Mapping;
use crate::sync::fence;
use crate::trace::Event;
use crate::trace::layout::{
    self, AllocationEntry, EVENTS, FEWEST_EVENTS, MAGIC, MOST_ALLOCATIONS, MOST_EVENTS, NAME_BYTES,
    RingHeader, Slot, TABLE,
};

/// The ring of a traced rank, as its daemon holds it. The file's length is sealed, so reading it never faults.
#[derive(Debug)]
pub struct TraceRing {
    map: Mapping,
    file: OwnedFd,
    events: u64,
}

/// A part of what is in a ring.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RingReading {
    /// Number of the first event that was looked at.
    pub first: u64,
    /// Number of the event after the last one.
    pub next: u64,
    /// Events that the rank says to have begun.
    pub begun: u64,
    /// Those between `first` and `next` that are incomplete, overwritten meanwhile, or of no known kind.
    pub unreadable: u64,
    /// The others, in the order in which they were recorded.
    pub events: Vec<Event>,
}

/// An allocation that a rank has recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedAllocation {
    /// First page.
    pub first: u32,
    /// How many.
    pub pages: u32,
    /// Where it was made, as the rank says.
    pub name: String,
}

impl TraceRing {
    /// Makes a ring of so many events, rounded up to a power of two within [`FEWEST_EVENTS`] and [`MOST_EVENTS`].
    ///
    /// # Errors
    /// [`SegmentError::Io`].
    pub fn create(events: u64) -> Result<TraceRing, SegmentError> {
        let events = events.clamp(FEWEST_EVENTS, MOST_EVENTS).next_power_of_two();
        let bytes = layout::ring_bytes(events);
        let file = memory_file(c"kumi-trace", bytes)?;
        add_seals(file.as_fd(), libc::F_SEAL_SEAL).map_err(failed("F_ADD_SEALS"))?;
        {
            let map = Mapping::new(file.as_fd(), bytes).map_err(failed("mmap"))?;
            // SAFETY: RingHeader consists of atomics only.
            let header: &RingHeader = unsafe { map.view(0) };
            header.events.store(events, Relaxed);
            header.magic.store(MAGIC, Release);
        }
        let map = Mapping::read_only(file.as_fd(), bytes).map_err(failed("mmap"))?;
        Ok(TraceRing { map, file, events })
    }

    /// Maps a ring that a former daemon made for so many events.
    ///
    /// # Errors
    /// [`SegmentError::Io`], also if it is not such a file.
    pub fn adopt(file: OwnedFd, events: u64) -> Result<TraceRing, SegmentError> {
        let events = events.clamp(FEWEST_EVENTS, MOST_EVENTS).next_power_of_two();
        let bytes = layout::ring_bytes(events);
        if !is_memory_of(&file, bytes).map_err(failed("trace"))? {
            return Err(failed("trace")(io::Error::from(io::ErrorKind::InvalidData)));
        }
        let map = Mapping::read_only(file.as_fd(), bytes).map_err(failed("mmap"))?;
        Ok(TraceRing { map, file, events })
    }

    /// The file, which its rank gets.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Events that it has room for.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> usize {
        layout::ring_bytes(self.events)
    }

    /// Looks at no more than `most` events from number `from` on, or from the oldest one that is left. The rank may be writing,
    /// and may have written anything.
    #[must_use]
    pub fn read(&self, from: u64, most: usize) -> RingReading {
        let begun = self.header().begun.load(Acquire);
        let first = from.max(begun.saturating_sub(self.events));
        let next = first.saturating_add(most as u64).min(begun).max(first);
        let events: Vec<Event> = (first..next).filter_map(|number| self.event(number)).collect();
        let unreadable = next - first - events.len() as u64;
        RingReading { first, next, begun, unreadable, events }
    }

    fn event(&self, number: u64) -> Option<Event> {
        let place = (number & (self.events - 1)) as usize;
        // SAFETY: Slot consists of atomics only.
        let slot: &Slot = unsafe { self.map.view(EVENTS + place * size_of::<Slot>()) };
        let last = slot.last.load(Acquire);
        let [time, duration, object] =
            [&slot.time, &slot.duration, &slot.object].map(|word| word.load(Relaxed));
        fence(Acquire);
        // An event that takes this one's place has begun before it changes anything here.
        let oldest = self.header().begun.load(Relaxed).saturating_sub(self.events);
        let whole = layout::lap_of(last) == layout::lap(number, self.events) && number >= oldest;
        if whole { layout::unpack([time, duration, object, last]) } else { None }
    }

    /// Bytes of a page of shared memory, as the rank says; 0 if it has none.
    #[must_use]
    pub fn page_bytes(&self) -> u32 {
        self.header().page_bytes.load(Relaxed)
    }

    /// The allocations that are recorded, and how many more there were.
    #[must_use]
    pub fn allocations(&self) -> (Vec<TracedAllocation>, u32) {
        let begun = self.header().allocations.load(Acquire);
        let kept = (begun as usize).min(MOST_ALLOCATIONS);
        let found = (0..kept).filter_map(|number| self.allocation(number)).collect();
        (found, begun - kept as u32)
    }

    fn allocation(&self, number: usize) -> Option<TracedAllocation> {
        let offset = TABLE + number * size_of::<AllocationEntry>();
        // SAFETY: AllocationEntry consists of atomics only.
        let entry: &AllocationEntry = unsafe { self.map.view(offset) };
        let length = (entry.length.load(Acquire) as usize).checked_sub(1)?.min(NAME_BYTES);
        let words = entry.name.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes());
        let bytes: Vec<u8> = words.take(length).collect();
        Some(TracedAllocation {
            first: entry.first.load(Relaxed),
            pages: entry.pages.load(Relaxed),
            name: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }

    fn header(&self) -> &RingHeader {
        // SAFETY: RingHeader consists of atomics only.
        unsafe { self.map.view(0) }
    }
}
