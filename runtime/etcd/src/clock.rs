//! The clock of leases: nobody can set it, and it goes on while the machine sleeps.

use std::time::Duration;

use kumi_leadership::Nanos;
use nix::time::{ClockId, clock_gettime};

/// Its time. A system without it (there is none) would never lead: every lease would be over.
pub(crate) fn now() -> Nanos {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Nanos::MAX, |time| nanos(Duration::from(time)))
}

/// A length of time.
pub(crate) fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

/// How long it is from now to that time.
pub(crate) fn left(until: Nanos) -> Duration {
    Duration::from_nanos(until.saturating_sub(now()))
}
