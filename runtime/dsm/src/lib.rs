//! Distributed shared memory: memory that all ranks of a job see at their own addresses.
//!
//! Two layers so far, from the bottom up:
//!
//! * [`node_memory`]: one copy of the shared memory for all ranks of a node, in memory files.
//! * [`view`]: the addresses at which a program uses that copy. Units of it appear and vanish one by one, written ones are
//!   known, and a fault in it asks a [`view::FaultResolver`].
//!
//! `docs/design/dsm.md` says how the parts fit. Linux only.

// Lists of ranges are common here, and none is meant as a list of numbers.
#![allow(clippy::single_range_in_vec_init)]

#[cfg(not(target_os = "linux"))]
compile_error!("kumi-dsm needs Linux");

pub mod node_memory;
pub mod view;
