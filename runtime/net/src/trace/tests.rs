//! Rings, written by ranks and by whoever has their file.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use super::layout::{EVENTS, RingHeader, Slot, TABLE};
use super::*;
use crate::segment::attachment::AttachError;
use crate::shm::mapping::Mapping;

fn ring() -> (TraceRing, Tracer) {
    let ring = TraceRing::create(1).expect("a ring");
    let file = ring.file().try_clone_to_owned().expect("a descriptor");
    let tracer = Tracer::open(&file, ring.events()).expect("a tracer");
    (ring, tracer)
}

fn event(number: u32) -> Event {
    Event {
        time: 1_000 + u64::from(number),
        duration: u64::MAX - u64::from(number),
        kind: EventKind::Fetch,
        thread: 255,
        peer: NO_PEER - 1,
        object: number,
        amount: u32::MAX,
    }
}

/// What a rank can do to its ring.
fn scribbler(ring: &TraceRing) -> Mapping {
    Mapping::new(ring.file().as_fd(), ring.bytes()).expect("a mapping")
}

fn header(map: &Mapping) -> &RingHeader {
    // SAFETY: RingHeader consists of atomics only.
    unsafe { map.view(0) }
}

#[test]
fn events_come_back_as_they_were() {
    let (ring, tracer) = ring();
    assert_eq!(ring.events(), FEWEST_EVENTS);
    assert_eq!(ring.read(0, 10), RingReading::default());
    (0..5).for_each(|number| tracer.record(&event(number)));
    let reading = ring.read(0, 3);
    assert_eq!((reading.first, reading.next, reading.begun, reading.unreadable), (0, 3, 5, 0));
    assert_eq!(reading.events, [event(0), event(1), event(2)]);
    let rest = ring.read(reading.next, 100);
    assert_eq!((rest.next, rest.events), (5, vec![event(3), event(4)]));
    assert_eq!(ring.read(99, 100).next, 99, "nothing there yet");
}

#[test]
fn the_oldest_events_give_way_and_are_known_to_be_lost() {
    let (ring, tracer) = ring();
    let all = FEWEST_EVENTS as u32 + 7;
    (0..all).for_each(|number| tracer.record(&event(number)));
    let reading = ring.read(0, usize::MAX);
    assert_eq!((reading.first, reading.next, reading.unreadable), (7, u64::from(all), 0));
    assert_eq!(reading.events.first(), Some(&event(7)));
    assert_eq!(reading.events.len() as u64, FEWEST_EVENTS);
}

#[test]
fn events_of_several_threads_are_all_there() {
    let (ring, tracer) = ring();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tracer = &tracer;
            scope.spawn(move || (0..50).for_each(|one| tracer.note(EventKind::Found, thread, one)));
        }
    });
    let reading = ring.read(0, 1_000);
    assert_eq!((reading.events.len(), reading.unreadable), (200, 0));
    let of_thread = |thread| reading.events.iter().filter(move |event| event.object == thread);
    for thread in 0..4 {
        assert!(of_thread(thread).map(|event| event.amount).eq(0..50), "in their order");
    }
}

#[test]
fn a_span_takes_the_time_between_its_ends() {
    let (ring, tracer) = ring();
    let begun = tracer.begin();
    tracer.end(begun, EventKind::Lock, (NO_PEER, 3, u64::MAX));
    let [event] = ring.read(0, 10).events[..] else { panic!("one event") };
    assert_eq!((event.kind, event.object, event.amount), (EventKind::Lock, 3, u32::MAX));
    assert!(event.time + event.duration <= crate::sys::now_ns());
}

#[test]
fn allocations_keep_their_names() {
    let (ring, tracer) = ring();
    tracer.set_page_bytes(4_096);
    tracer.allocation(0, 5, "grid.rs:12");
    tracer.allocation(5, 1, &"é".repeat(100));
    let (found, more) = ring.allocations();
    let first = TracedAllocation { first: 0, pages: 5, name: "grid.rs:12".to_owned() };
    assert_eq!((ring.page_bytes(), &found[0], more), (4_096, &first, 0));
    assert_eq!(found[1].name, "é".repeat(NAME_BYTES / 2));
    (2..300).for_each(|page| tracer.allocation(page, 1, ""));
    let (found, more) = ring.allocations();
    assert_eq!((found.len(), more), (MOST_ALLOCATIONS, 300 - MOST_ALLOCATIONS as u32));
}

#[test]
fn whatever_a_rank_writes_is_read_in_bounded_time() {
    let (ring, tracer) = ring();
    tracer.record(&event(0));
    let map = scribbler(&ring);
    for begun in [u64::MAX, u64::MAX - 1, 1 << 63, FEWEST_EVENTS + 1, 3, 0] {
        header(&map).begun.store(begun, Relaxed);
        let reading = ring.read(0, usize::MAX);
        assert!(reading.next - reading.first <= FEWEST_EVENTS, "{reading:?}");
        assert!(reading.events.len() as u64 + reading.unreadable == reading.next - reading.first);
        assert!(ring.read(u64::MAX, usize::MAX).events.is_empty());
    }
    header(&map).allocations.store(u32::MAX, Relaxed);
    for word in (TABLE..EVENTS).step_by(4) {
        // SAFETY: an atomic.
        let word: &crate::sync::AtomicU32 = unsafe { map.view(word) };
        word.store(u32::MAX, Relaxed);
    }
    let (found, more) = ring.allocations();
    assert_eq!((found.len(), more), (MOST_ALLOCATIONS, u32::MAX - MOST_ALLOCATIONS as u32));
    assert!(found.iter().all(|one| one.name.chars().all(|char| char == '\u{fffd}')));
}

#[test]
fn incomplete_events_and_unknown_kinds_are_counted() {
    let (ring, tracer) = ring();
    (0..3).for_each(|number| tracer.record(&event(number)));
    let map = scribbler(&ring);
    // SAFETY: Slot consists of atomics only.
    let slot = |at: usize| -> &Slot { unsafe { map.view(EVENTS + at * size_of::<Slot>()) } };
    slot(0).last.store(0, Relaxed);
    slot(1).last.store(1 << 48 | 200 << 32, Relaxed);
    let reading = ring.read(0, 10);
    assert_eq!((reading.events, reading.unreadable), (vec![event(2)], 2));
    header(&map).begun.fetch_add(1, Relaxed);
    assert_eq!(ring.read(0, 10).unreadable, 3, "begun by a thread that was killed");
}

#[test]
fn what_is_no_ring_is_refused() {
    let ring = TraceRing::create(FEWEST_EVENTS).expect("a ring");
    let file = ring.file().try_clone_to_owned().expect("a descriptor");
    for events in [0, 1, FEWEST_EVENTS - 1, 2 * FEWEST_EVENTS, u64::MAX] {
        assert!(matches!(Tracer::open(&file, events), Err(AttachError::BadTrace)), "{events}");
    }
    header(&scribbler(&ring)).magic.store(0, Relaxed);
    assert!(matches!(Tracer::open(&file, ring.events()), Err(AttachError::BadTrace)));
    let other = crate::sys::doorbell().expect("eventfd");
    assert!(Tracer::open(&other, FEWEST_EVENTS).is_err());
}

/// The bytes of a ring, as `docs/reference/trace.md` gives them.
#[test]
fn the_bytes_are_those_of_the_reference() {
    let (ring, tracer) = ring();
    tracer.allocation(2, 3, "grid");
    tracer.record(&Event {
        time: 0x0102_0304,
        duration: 0x0a0b,
        kind: EventKind::Lock,
        thread: 1,
        peer: NO_PEER,
        object: 7,
        amount: 9,
    });
    let map = scribbler(&ring);
    let words = |at: usize| -> [u64; 4] {
        std::array::from_fn(|word| {
            // SAFETY: an atomic.
            let word: &crate::sync::AtomicU64 = unsafe { map.view(at + 8 * word) };
            word.load(Relaxed)
        })
    };
    if cfg!(target_endian = "little") {
        assert_eq!(words(0)[..2], [0x0143_5254_494d_554b, 1_024]);
        assert_eq!(words(0)[2], 1 << 32, "page bytes and allocations");
        assert_eq!(words(64)[0], 1);
        assert_eq!(words(4_096)[..3], [3 << 32 | 2, 5, 0x6469_7267]);
        let event = [0x0102_0304, 0x0a0b, 9 << 32 | 7, 0x0001_0106_ffff_ffff];
        assert_eq!(words(36_864), event);
    }
}
