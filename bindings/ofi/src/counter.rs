//! Counters.
#[derive(Debug)]
pub struct Counter {}
