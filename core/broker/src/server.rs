//! The broker's record of a server.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use crate::model::{CallId, Offer, SiteId, Time};

/// An attempt that occupies a slot of a server.
#[derive(Clone, Debug)]
pub(crate) struct RunningAttempt {
    /// Its expected end.
    pub end: Time,
    /// The site that is still sending its arguments.
    pub sending_from: Option<SiteId>,
}

/// The attempts that occupy slots of a server.
pub(crate) type RunningAttempts = BTreeMap<(CallId, u32), RunningAttempt>;

/// Routine numbers in ascending order.
pub(crate) type Routines = Arc<[u32]>;

#[derive(Debug)]
pub(crate) struct Server {
    pub site: SiteId,
    pub routines: Routines,
    pub limit: u32,
    pub processors: u32,
    pub speed: f64,
    pub load: f64,
    /// It accepts no new calls.
    pub leaving: bool,
    /// It accepts no new calls because its connection is lost, and may come back.
    pub away: bool,
    /// The group of servers with the same routines.
    pub group: u32,
    flights: RunningAttempts,
    ends: BTreeSet<(Time, CallId, u32)>,
}

impl Server {
    pub fn new(offer: &Offer, routines: Routines, group: u32) -> Self {
        let mut server = Self {
            site: offer.site,
            routines,
            limit: offer.limit.max(1),
            processors: offer.processors.max(1),
            speed: 0.0,
            load: 0.0,
            leaving: false,
            away: false,
            group,
            flights: BTreeMap::new(),
            ends: BTreeSet::new(),
        };
        server.loaded(0.0, offer.speed);
        server
    }

    pub fn loaded(&mut self, load: f64, speed: f64) {
        self.load = if load.is_finite() { load.max(0.0) } else { 0.0 };
        self.speed = if speed.is_finite() { speed.max(0.0) } else { 0.0 };
    }

    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.flights.len()).unwrap_or(u32::MAX)
    }

    pub fn is_free(&self) -> bool {
        !self.leaving && self.in_flight() < self.limit
    }

    /// Whether it accepts new calls, or may do so again.
    pub fn stays(&self) -> bool {
        !self.leaving || self.away
    }

    pub fn take(&mut self, call: CallId, attempt: u32, flight: RunningAttempt) {
        self.ends.insert((flight.end, call, attempt));
        self.flights.insert((call, attempt), flight);
    }

    pub fn flight(&mut self, call: CallId, attempt: u32) -> Option<&mut RunningAttempt> {
        self.flights.get_mut(&(call, attempt))
    }

    /// Frees the slot of an attempt.
    pub fn give_back(&mut self, call: CallId, attempt: u32) -> Option<RunningAttempt> {
        let flight = self.flights.remove(&(call, attempt))?;
        self.ends.remove(&(flight.end, call, attempt));
        Some(flight)
    }

    /// Removes and returns all attempts.
    pub fn clear(&mut self) -> RunningAttempts {
        self.ends.clear();
        core::mem::take(&mut self.flights)
    }

    /// Seconds until a slot is expected to be free. An overdue attempt is expected to take as long again as it is overdue.
    pub fn wait(&self, now: Time) -> f64 {
        if self.in_flight() < self.limit {
            return 0.0;
        }
        let split = (now, CallId(0), 0);
        let late = self.ends.range(..split).next_back().map(|&(end, ..)| now.seconds_since(end));
        let next = self.ends.range(split..).next().map(|&(end, ..)| end.seconds_since(now));
        late.into_iter().chain(next).min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// The factor by which sharing the processors slows a routine, with one more call.
    pub fn slowdown(&self) -> f64 {
        let busy = f64::from(self.in_flight().min(self.limit - 1)) + self.load + 1.0;
        (busy / f64::from(self.processors)).max(1.0)
    }
}
