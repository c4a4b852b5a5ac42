//! Ranks in a simulated network, and hostile ones.

mod fuzzed;
mod network;
mod programs;
mod rules;
