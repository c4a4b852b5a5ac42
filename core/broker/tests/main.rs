//! The broker, tested from outside: one program, since each would be linked with the crate anew.
#![forbid(unsafe_code)]

mod broker;
mod common;
mod graph;
mod random;
mod vectors;
