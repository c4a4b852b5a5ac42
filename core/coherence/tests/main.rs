//! Tests of the protocol of shared memory.

mod fuzzed;
mod machine;
mod messages;
mod random_programs;
mod script;
mod small_worlds;
mod threads;
mod withdrawn;
