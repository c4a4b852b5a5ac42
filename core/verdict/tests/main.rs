//! Verdicts on simulated jobs.

mod fuzzed;
mod interleavings;
mod job;
mod random;
