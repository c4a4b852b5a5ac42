//! Time as the head sees it: the clocks of the last event, and the grace after its start.

use kumi_sched::ClusterTime;

use crate::message::Nanos;
use crate::stall_tolerant_clock::StallTolerantClock;

/// How often the head looks at its clock while it waits for a node. Time beyond that does not count
/// as the node's absence: the head itself did not run.
const STEP: Nanos = 100_000_000;

/// The clocks of the head.
#[derive(Debug)]
pub(super) struct HeadTime {
    now: Nanos,
    wall_ms: u64,
    observed: StallTolerantClock,
    /// Wall clock of the first event.
    started_ms: Option<u64>,
    /// Until when the head waits for nodes and clients of an earlier head.
    starting_until: Option<Nanos>,
}

impl HeadTime {
    pub(super) fn new() -> Self {
        let observed = StallTolerantClock::new(0, STEP);
        Self { now: 0, wall_ms: 0, observed, started_ms: None, starting_until: None }
    }

    /// Sets the clocks to those of an event.
    pub(super) fn advance(&mut self, now: Nanos, wall_ms: u64) {
        self.now = now;
        self.observed.advance(now);
        self.wall_ms = wall_ms;
    }

    /// Begins the grace after the start. Returns whether this is the first event.
    pub(super) fn start(&mut self, grace: Nanos) -> bool {
        if self.started_ms.is_some() {
            return false;
        }
        self.started_ms = Some(self.wall_ms);
        self.starting_until = Some(self.now.saturating_add(grace));
        true
    }

    /// Whether the grace has just run out.
    pub(super) fn take_end_of_start(&mut self) -> bool {
        let now = self.now;
        self.starting_until.take_if(|until| now >= *until).is_some()
    }

    /// The machine's monotonic clock.
    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    /// The cluster's clock, which is the head's.
    pub(super) fn cluster(&self) -> ClusterTime {
        ClusterTime(self.now)
    }

    /// Milliseconds since the epoch.
    pub(super) fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    /// Time since the start in which the head ran.
    pub(super) fn observed(&self) -> &StallTolerantClock {
        &self.observed
    }

    pub(super) fn has_started(&self) -> bool {
        self.started_ms.is_some()
    }

    /// Milliseconds since the epoch at the first event.
    pub(super) fn started_ms(&self) -> u64 {
        self.started_ms.unwrap_or(self.wall_ms)
    }

    /// Whether nodes and clients of an earlier head may still come back.
    pub(super) fn is_starting(&self) -> bool {
        self.starting_until.is_some()
    }

    pub(super) fn starting_until(&self) -> Option<Nanos> {
        self.starting_until
    }
}
