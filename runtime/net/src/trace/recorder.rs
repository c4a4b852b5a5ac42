//! The rank's side: threads write events without waiting for each other.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::segment::attachment::{AttachError, io_error};
use crate::segment::files::is_memory_of;
use crate::shm::mapping::Mapping;
use crate::sync::fence;
use crate::sys;
use crate::trace::layout::{
    self, AllocationEntry, EVENTS, MAGIC, MOST_ALLOCATIONS, NAME_BYTES, RingHeader, Slot, TABLE,
};
use crate::trace::{Event, EventKind, NO_PEER};

/// Records what a rank does. All threads of the rank may use it at the same time; the oldest events give way to new ones.
#[derive(Debug)]
pub struct Tracer {
    map: Mapping,
    events: u64,
}

/// Something that takes time and has begun.
#[derive(Debug, Clone, Copy)]
pub struct Span(u64);

/// The number of this thread among those of the process that record.
fn thread() -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    thread_local! {
        static OWN: u8 = NEXT.fetch_add(1, Relaxed);
    }
    OWN.with(|own| *own)
}

impl Tracer {
    /// Opens the ring of so many events that the daemon has made for this rank.
    ///
    /// # Errors
    /// [`AttachError::BadTrace`] if it is none, [`AttachError::Io`].
    pub fn open(file: &OwnedFd, events: u64) -> Result<Tracer, AttachError> {
        let fits = layout::is_possible(events)
            && is_memory_of(file, layout::ring_bytes(events)).map_err(io_error("fstat"))?;
        if !fits {
            return Err(AttachError::BadTrace);
        }
        let map =
            Mapping::new(file.as_fd(), layout::ring_bytes(events)).map_err(io_error("mmap"))?;
        map.keep_out_of_dumps().map_err(io_error("madvise"))?;
        let tracer = Tracer { map, events };
        match tracer.header().magic.load(Acquire) {
            MAGIC => Ok(tracer),
            _ => Err(AttachError::BadTrace),
        }
    }

    /// Something begins.
    #[must_use]
    pub fn begin(&self) -> Span {
        Span(sys::now_ns())
    }

    /// Records what has begun and is over now.
    pub fn end(&self, begun: Span, kind: EventKind, (peer, object, amount): (u32, u32, u64)) {
        let duration = sys::now_ns().saturating_sub(begun.0);
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        let thread = thread();
        self.record(&Event { time: begun.0, duration, kind, thread, peer, object, amount });
    }

    /// Records what takes no time.
    pub fn mark(&self, kind: EventKind, (peer, object, amount): (u32, u32, u64)) {
        let (time, duration) = (sys::now_ns(), 0);
        let amount = u32::try_from(amount).unwrap_or(u32::MAX);
        let thread = thread();
        self.record(&Event { time, duration, kind, thread, peer, object, amount });
    }

    /// Records what has to do with no other rank and takes no time.
    pub fn note(&self, kind: EventKind, object: u32, amount: u64) {
        self.mark(kind, (NO_PEER, object, amount));
    }

    /// Records an event as it is.
    pub fn record(&self, event: &Event) {
        let number = self.header().begun.fetch_add(1, Relaxed);
        // Whoever sees one of the stores below also sees that the event has begun, and so that the older one in its place is gone.
        fence(Release);
        let place = (number & (self.events - 1)) as usize;
        // SAFETY: Slot consists of atomics only.
        let slot: &Slot = unsafe { self.map.view(EVENTS + place * size_of::<Slot>()) };
        let [object, last] = layout::pack(event, layout::lap(number, self.events));
        slot.time.store(event.time, Relaxed);
        slot.duration.store(event.duration, Relaxed);
        slot.object.store(object, Relaxed);
        slot.last.store(last, Release);
    }

    /// Says how long a page of shared memory is.
    pub fn set_page_bytes(&self, bytes: u32) {
        self.header().page_bytes.store(bytes, Relaxed);
    }

    /// Records an allocation of shared memory with its name, of which the first 112 bytes count. The first 256 allocations are
    /// kept, whatever happens later; of others it is known how many there were.
    pub fn allocation(&self, first: u32, pages: u32, name: &str) {
        let number = self.header().allocations.fetch_add(1, Relaxed) as usize;
        if number >= MOST_ALLOCATIONS {
            return;
        }
        let offset = TABLE + number * size_of::<AllocationEntry>();
        // SAFETY: AllocationEntry consists of atomics only.
        let entry: &AllocationEntry = unsafe { self.map.view(offset) };
        entry.first.store(first, Relaxed);
        entry.pages.store(pages, Relaxed);
        let mut bytes = [0; NAME_BYTES];
        let length = name.len().min(NAME_BYTES);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        let (words, _) = bytes.as_chunks::<8>();
        for (word, bytes) in entry.name.iter().zip(words) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        entry.length.store(length as u32 + 1, Release);
    }

    fn header(&self) -> &RingHeader {
        // SAFETY: RingHeader consists of atomics only.
        unsafe { self.map.view(0) }
    }
}
