//! Limits of time that belong to jobs.

use crate::message::Nanos;

/// How long ranks have to end by themselves, in nanoseconds, unless who ends their job says otherwise.
pub const USUAL_GRACE: Nanos = 10_000_000_000;

/// The longest such time: an hour.
pub const LONGEST_GRACE: Nanos = 3_600_000_000_000;
