//! The tests of the crate, one program.
#![forbid(unsafe_code)]

mod random;
mod rules;
mod vectors;
mod world;
