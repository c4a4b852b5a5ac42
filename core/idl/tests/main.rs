//! Interface descriptions, tested from outside: one program, since each would be linked with the crate anew.
#![forbid(unsafe_code)]

mod bounds;
mod copies;
mod fuzzed;
mod json;
mod parallel;
mod plan;
mod shipped;
mod stubs;
mod symbol_arguments;
mod text;
mod vectors;
