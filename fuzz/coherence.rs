//! The bodies of the fuzz targets of shared memory's protocol, and the invariants that they check.
//! `core/coherence/tests/fuzzed.rs` runs the same with inputs from a seed.

#![allow(dead_code)] // Each fuzz target uses one of them.

use kumi_coherence::message::diffs;
use kumi_coherence::{
    BarrierKind, Coherence, Config, Event, Events, Interval, Knowledge, Message, Migration, Misuse,
    PageSet, Placement, Protocol, Rank, Sharing, Ticket, diff,
};
use std::collections::BTreeSet;

#[path = "input.rs"]
pub mod input;

use input::Bytes;

const RANKS: Rank = 4;
const PAGE: usize = 64;
/// Pages that can be allocated, and that are at first.
const PAGES: u32 = 48;
const FIRST: u64 = 40;

/// Arbitrary bytes as a message: it is refused or comes back by its own bytes, which are no longer. Whether it is one.
pub fn message(input: &[u8]) -> bool {
    let Ok(message) = Message::decode(input) else { return false };
    let bytes = message.encode();
    assert!(bytes.len() <= input.len(), "numbers have one shortest form");
    assert_eq!(Message::decode(&bytes).as_ref(), Ok(&message));
    if let Message::Diffs { diffs: all, .. } = &message {
        let found = diffs(all).filter_map(Result::ok);
        let bytes: usize = found.map(|(_, one)| 8 + one.len()).sum();
        assert!(bytes <= all.len());
    }
    true
}

/// Arbitrary bytes as the diff of a page: it is refused or stays inside of the page. Whether it is one.
pub fn page_diff(input: &[u8]) -> bool {
    let mut page = [0; PAGE];
    if diff::apply(input, PAGE, |change| change.write_to(&mut page)).is_err() {
        return false;
    }
    // What it has written is again a diff, of which the page follows.
    let (twin, mut again, mut copy) = ([0; PAGE], Vec::new(), [0; PAGE]);
    diff::encode(&page, &twin, &mut again);
    assert_eq!(diff::apply(&again, PAGE, |change| change.write_to(&mut copy)), Ok(()));
    assert_eq!(copy, page);
    true
}

/// A rank that hears whatever the input says from three others, while its program goes on. Messages taken.
pub fn protocol(input: &[u8]) -> usize {
    let mut fuzzed = Fuzzed::new(input.first().copied().unwrap_or_default());
    let mut bytes = Bytes(input);
    while !bytes.0.is_empty() {
        match bytes.next() {
            action @ 0..=149 => fuzzed.hear(action, &mut bytes),
            action => fuzzed.call(action, &mut bytes),
        }
    }
    fuzzed.check_memory(input.len());
    fuzzed.taken
}

struct Fuzzed {
    coherence: Coherence,
    /// Waits of the program that are not over.
    waits: BTreeSet<Ticket>,
    next: Ticket,
    taken: usize,
}

impl Fuzzed {
    fn new(kind: u8) -> Fuzzed {
        let protocol = if kind & 1 == 0 { Protocol::Scope } else { Protocol::Lazy };
        let migration = if kind & 2 == 0 { Migration::SingleWriter } else { Migration::Never };
        let node_of = [0, 0, 1, 1].into();
        let page_bytes = PAGE as u32;
        let config = Config { rank: 0, node_of, protocol, migration, pages: PAGES, page_bytes };
        let mut fuzzed =
            Fuzzed { coherence: Coherence::new(config), waits: BTreeSet::new(), next: 1, taken: 0 };
        let placements =
            [Placement::Blocks, Placement::FirstTouch, Placement::At(2), Placement::At(0)];
        let placement = placements[usize::from(kind >> 2) % placements.len()];
        let sharing = if kind & 16 == 0 { Sharing::Invalidate } else { Sharing::Update };
        fuzzed.allocate(FIRST, placement, sharing);
        fuzzed
    }

    fn allocate(&mut self, pages: u64, placement: Placement, sharing: Sharing) {
        match self.coherence.allocate(pages * PAGE as u64, placement, sharing) {
            Ok((_, events)) => self.carry_out(&events),
            Err(error) => assert!(matches!(error, Misuse::Full { .. }), "{error}"),
        }
    }

    /// A message of another rank. The driver ends the job at a message that is refused; here the rank goes on as if
    /// it had not come.
    fn hear(&mut self, action: u8, bytes: &mut Bytes<'_>) {
        let message = if action < 20 {
            let length = usize::from(bytes.next() % 32);
            let raw: Vec<u8> = (0..length).map(|_| bytes.next()).collect();
            Message::decode(&raw).ok()
        } else {
            Some(forge(action, bytes))
        };
        let Some(message) = message else { return };
        let from = 1 + Rank::from(bytes.next()) % (RANKS - 1);
        let mut next = self.coherence.clone();
        let Ok(events) = next.receive(from, message) else { return };
        self.coherence = next;
        self.taken += 1;
        self.carry_out(&events);
    }

    /// A call of the program. Mistakes of it are errors that leave nothing behind.
    fn call(&mut self, action: u8, bytes: &mut Bytes<'_>) {
        let (ticket, small) = (self.next, u32::from(bytes.next() % 6));
        let mut next = self.coherence.clone();
        let mut waits = true;
        let called = match action % 10 {
            0 => next.lock(small, ticket),
            1 => {
                next.close_interval(pages(bytes));
                waits = false;
                next.unlock(small, bytes.next().into())
            }
            2 => {
                next.close_interval(pages(bytes));
                next.barrier(BarrierKind::Memory, ticket)
            }
            3 => next.barrier(BarrierKind::Plain, ticket),
            4 => next.wait_condition(small, ticket),
            5 => {
                waits = false;
                next.set_condition(small)
            }
            6 => {
                waits = false;
                next.reset_condition(small)
            }
            7 => next.locate(small % PAGES, ticket),
            8 => {
                waits = false;
                next.flush(2 + small % 2, vec![bytes.next(); 4], small % 3 == 0, ticket)
            }
            _ => {
                self.allocate(1, Placement::FirstTouch, Sharing::Invalidate);
                return;
            }
        };
        let Ok(events) = called else { return };
        self.coherence = next;
        if waits {
            self.waits.insert(ticket);
        }
        self.next += 1;
        self.carry_out(&events);
    }

    fn carry_out(&mut self, events: &Events) {
        for event in events {
            match event {
                Event::Send { to, message } => {
                    assert!(*to > 0 && *to < RANKS, "a message to rank {to}");
                    assert_eq!(Message::decode(&message.encode()).as_ref(), Ok(message));
                }
                Event::Apply { from, .. }
                | Event::Update { from, .. }
                | Event::Install { from, .. } => {
                    assert!(*from < RANKS);
                }
                Event::SendTwins { to, pages, .. } => assert!(*to < RANKS && pages.end <= PAGES),
                Event::Resume { ticket, acquired } => {
                    assert!(self.waits.remove(ticket), "wait {ticket} ends, which nobody began");
                    for set in [&acquired.stale, &acquired.homed] {
                        assert!(set.ranges().iter().all(|range| range.end <= PAGES), "{set:?}");
                    }
                }
            }
        }
    }

    /// What is kept grows with what has come, by a constant: the text of the state is as long as the state.
    fn check_memory(&self, came: usize) {
        let kept = format!("{:?}", self.coherence).len();
        assert!(kept <= 20_000 + 200 * came, "{kept} characters of state after {came} bytes");
    }
}

/// A message whose numbers are mostly possible ones.
fn forge(action: u8, bytes: &mut Bytes<'_>) -> Message {
    let name = u32::from(bytes.next() % 6);
    let number = u64::from(bytes.next() % 4);
    match action % 13 {
        0 => Message::LockRequest { lock: name, known: knowledge(bytes) },
        1 => {
            let requester = Rank::from(bytes.next() % 6);
            Message::LockForward { lock: name, requester, known: knowledge(bytes) }
        }
        2 => {
            let departed = u32::from(bytes.next() % 3);
            Message::LockGrant { lock: name, departed, last: number, intervals: intervals(bytes) }
        }
        3 => Message::Arrive {
            number,
            kind: if bytes.next().is_multiple_of(4) {
                BarrierKind::Plain
            } else {
                BarrierKind::Memory
            },
            allocations: u64::from(bytes.next()),
            written: written(bytes),
        },
        4 => Message::Depart { number, written: written(bytes) },
        5 => {
            let departed = u32::from(bytes.next() % 3);
            Message::ConditionSet { condition: name, departed, intervals: intervals(bytes) }
        }
        6 => Message::ConditionReset { condition: name },
        7 => Message::ConditionWait { condition: name },
        8 => {
            let departed = u32::from(bytes.next() % 3);
            Message::ConditionGrant { condition: name, departed, intervals: intervals(bytes) }
        }
        9 => {
            let length = usize::from(bytes.next() % 24);
            Message::Diffs { batch: number, diffs: (0..length).map(|_| bytes.next()).collect() }
        }
        10 => Message::DiffsDone { batch: number },
        11 => Message::Locate { page: any_of(bytes, PAGES) },
        _ => Message::Located { page: any_of(bytes, PAGES), home: Rank::from(bytes.next() % 6) },
    }
}

/// Mostly a number below `bound`, sometimes any.
fn any_of(bytes: &mut Bytes<'_>, bound: u32) -> u32 {
    match bytes.next() {
        250.. => u32::from_le_bytes([bytes.next(), bytes.next(), bytes.next(), bytes.next()]),
        small => u32::from(small) % bound,
    }
}

fn pages(bytes: &mut Bytes<'_>) -> PageSet {
    let ranges = (0..bytes.next() % 4).map(|_| {
        let (start, length) = (u32::from(bytes.next()) % PAGES, u32::from(bytes.next() % 5));
        start..(start + length).min(PAGES)
    });
    ranges.collect()
}

/// As [`pages`], sometimes with pages that are not there.
fn foreign(bytes: &mut Bytes<'_>) -> PageSet {
    let mut set = pages(bytes);
    if bytes.next() >= 248 {
        let start = any_of(bytes, u32::MAX - 8);
        set.insert(start..start.saturating_add(5));
    }
    set
}

fn knowledge(bytes: &mut Bytes<'_>) -> Knowledge {
    let epoch = any_of(bytes, 3);
    let count = if bytes.next() < 220 { RANKS } else { u32::from(bytes.next() % 8) };
    Knowledge { epoch, numbers: (0..count).map(|_| u64::from(bytes.next() % 4)).collect() }
}

fn intervals(bytes: &mut Bytes<'_>) -> Vec<Interval> {
    let one = |bytes: &mut Bytes<'_>| Interval {
        epoch: any_of(bytes, 3),
        number: u64::from(any_of(bytes, 5)),
        writer: any_of(bytes, RANKS + 1),
        pages: foreign(bytes),
    };
    (0..bytes.next() % 4).map(|_| one(bytes)).collect()
}

fn written(bytes: &mut Bytes<'_>) -> Vec<(Rank, PageSet)> {
    (0..bytes.next() % 4).map(|_| (any_of(bytes, RANKS + 1), foreign(bytes))).collect()
}
