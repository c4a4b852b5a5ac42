//! Frames and connections of calls, tested from outside: one program, since each would be linked with the crate anew.
#![forbid(unsafe_code)]

mod any;
mod bounds;
mod callbacks;
mod frames;
mod fuzzed;
mod held;
mod held_vectors;
mod hostile;
mod logs;
mod meta;
mod metaserver;
mod objects;
mod resources;
#[path = "../../../fuzz/samples.rs"]
mod samples;
mod shared;
mod shared_any;
mod sharing;
mod trace;
mod vectors;
