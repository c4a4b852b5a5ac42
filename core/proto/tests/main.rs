//! The channel protocol, tested from outside: one program, since each would be linked with the crate anew.
#![forbid(unsafe_code)]

mod acks;
mod basic;
mod congestion;
mod context;
mod frames;
mod fuzzed;
mod lent;
mod network;
mod path;
mod reorder;
mod runs;
mod seal;
mod settings;
mod settle;
mod sim;
mod stalls;
mod time;
mod told;
mod wire;
