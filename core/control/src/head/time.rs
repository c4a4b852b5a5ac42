//! Time as the head sees it: the clocks of the last event, and the grace after its start.

use kumi_sched::ClusterTime;

use crate::message::Nanos;
use crate::stall_tolerant_clock::StallTolerantClock;

/// How often the head looks at its clock while it waits for a node. Time beyond that does not count
/// as the node's absence: the head itself did not run.
const STEP: Nanos = 100_000_000;

/// How often the head is run at least, while nodes are attached.
const LOOK: Nanos = 1_000_000_000;
/// Not run for so long, the head has stalled: nodes may have taken it for dead.
const STALL: Nanos = 2 * LOOK;
/// How long after a stall nodes may be away because of it.
const RECOVERY: Nanos = 10_000_000_000;

/// The clocks of the head.
#[derive(Debug)]
pub(super) struct HeadTime {
    now: Nanos,
    wall_ms: u64,
    observed: StallTolerantClock,
    /// When the driver is to hand in an event so that a stall is noticed.
    look_due: Option<Nanos>,
    /// Until when what nodes do may be the consequence of a stall of the head.
    recovering_until: Option<Nanos>,
    /// Wall clock of the first event.
    started_ms: Option<u64>,
    /// Until when the head waits for nodes and clients of an earlier head.
    starting_until: Option<Nanos>,
}

impl HeadTime {
    pub(super) fn new() -> Self {
        let observed = StallTolerantClock::new(0, STEP);
        Self {
            now: 0,
            wall_ms: 0,
            observed,
            look_due: None,
            recovering_until: None,
            started_ms: None,
            starting_until: None,
        }
    }

    /// Sets the clocks to those of an event.
    pub(super) fn advance(&mut self, now: Nanos, wall_ms: u64) {
        if self.look_due.is_some_and(|due| now.saturating_sub(due) > STALL - LOOK) {
            self.recovering_until = Some(now.saturating_add(RECOVERY));
        }
        self.now = now;
        self.observed.advance(now);
        self.wall_ms = wall_ms;
    }

    /// Sets whether the head is to be run often enough to notice that it stalls.
    pub(super) fn set_watched(&mut self, watched: bool) {
        if !watched || self.look_due.is_some_and(|due| due <= self.now) {
            self.look_due = None;
        }
        if watched {
            self.look_due.get_or_insert(self.now.saturating_add(LOOK));
        }
    }

    /// When the head is to be run next for that.
    pub(super) fn next_look(&self) -> Option<Nanos> {
        self.look_due
    }

    /// Whether the head was not run for seconds, a short time ago.
    pub(super) fn has_stalled(&self) -> bool {
        self.recovering_until.is_some_and(|until| self.now < until)
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
