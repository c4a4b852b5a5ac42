//! Processor time and bytes of a head, by kind of event.

use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;

/// What an event was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// A job was submitted.
    Submission,
    /// Nodes have prepared a job, which starts.
    Start,
    /// Nodes have freed a job, which ends.
    End,
    /// Somebody looks at the cluster and its jobs.
    Look,
    /// A time came, or nodes.
    Timer,
}

/// What events of one kind cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCosts {
    /// Such events.
    pub events: u64,
    /// Processor time in nanoseconds.
    pub nanos: u64,
    /// The longest of them.
    pub longest: u64,
    /// Bytes of records.
    pub record_bytes: u64,
    /// Bytes to links and clients, timetables included.
    pub sent_bytes: u64,
    /// Messages with timetables.
    pub timetables: u64,
    /// Their bytes.
    pub timetable_bytes: u64,
}

/// Adds up what events cost.
#[derive(Debug, Default)]
pub(super) struct Meter {
    begin: u64,
    current: EventCosts,
    kinds: BTreeMap<EventKind, EventCosts>,
}

/// Processor time of this thread so far, in nanoseconds.
fn processor_time() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has this clock");
    u64::try_from(time.tv_sec() * 1_000_000_000 + time.tv_nsec()).unwrap_or(0)
}

impl Meter {
    /// An event begins.
    pub(super) fn begin(&mut self) {
        self.current = EventCosts::default();
        self.begin = processor_time();
    }

    /// A record was encoded.
    pub(super) fn recorded(&mut self, bytes: usize) {
        self.current.record_bytes += bytes as u64;
    }

    /// A message was encoded.
    pub(super) fn sent(&mut self, bytes: usize, timetable: bool) {
        self.current.sent_bytes += bytes as u64;
        if timetable {
            self.current.timetables += 1;
            self.current.timetable_bytes += bytes as u64;
        }
    }

    /// The event is over.
    pub(super) fn end(&mut self, kind: EventKind) {
        let took = processor_time() - self.begin;
        let EventCosts { record_bytes, sent_bytes, timetables, timetable_bytes, .. } = self.current;
        let sum = self.kinds.entry(kind).or_default();
        sum.events += 1;
        sum.nanos += took;
        sum.longest = sum.longest.max(took);
        sum.record_bytes += record_bytes;
        sum.sent_bytes += sent_bytes;
        sum.timetables += timetables;
        sum.timetable_bytes += timetable_bytes;
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.kinds.clear();
    }

    /// The sums so far.
    pub(super) fn take(&mut self) -> BTreeMap<EventKind, EventCosts> {
        std::mem::take(&mut self.kinds)
    }
}
