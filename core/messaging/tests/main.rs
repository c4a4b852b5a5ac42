//! Ranks in a simulated network.

mod network;
mod programs;
mod rules;
