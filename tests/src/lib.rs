//! Support of the whole-system tests in `tests/tests/`: clusters, commands with a time limit, and a
//! reader of the sources for the rules of the house.
//!
//! The tests use Kumi as a user does, through the `kumi` executable; they know none of its crates.
#![forbid(unsafe_code)]

pub mod binaries;
pub mod call_server;
pub mod cluster;
pub mod command;
pub mod deadlock;
pub mod disk;
pub mod faults;
pub mod keeping;
pub mod machine;
pub mod mpi;
pub mod scribbler;
pub mod source;
pub mod terminal;
pub mod tutorial;
pub mod wire;
