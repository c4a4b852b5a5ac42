//! Verdicts on simulated jobs.

mod interleavings;
mod job;
mod random;
