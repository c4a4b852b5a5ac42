//! Calls of a metaserver beyond their placement: ends, lost clients, outcomes, and requests before servers are back.

pub(super) mod attempt_end;
pub(super) mod held_arguments;
pub(super) mod last_places;
pub(super) mod orphans;
pub(super) mod outcome;
pub(super) mod span_log;
pub(super) mod startup_queue;
