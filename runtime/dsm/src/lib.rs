//! Distributed shared memory: memory that all ranks of a job see at the same addresses (Mocha/JIAJIA; SSS-CORE's ADSM).
//!
//! [`SharedMemory`] is what a program uses. Below it, from the bottom up:
//!
//! * [`node_memory`]: one copy of the shared memory for all ranks of a node, in memory files.
//! * [`view`]: the addresses at which a program uses that copy. Units of it appear and vanish one by one, written ones are
//!   known, and a fault in it asks a [`view::FaultResolver`].
//! * `kumi-coherence`: which pages a rank has to forget, and where they live.
//!
//! `docs/design/dsm.md` says how the parts fit. Linux only.

// Lists of ranges are common here, and none is meant as a list of numbers.
#![allow(clippy::single_range_in_vec_init)]

#[cfg(not(target_os = "linux"))]
compile_error!("kumi-dsm needs Linux");

mod array;
mod caller;
mod config;
mod context;
mod error;
mod flight;
mod node_copy;
pub mod node_memory;
mod pager;
mod protocol;
mod rank_view;
mod release;
mod shared_memory;
mod statistics;
pub mod system_calls;
mod trace;
pub mod view;

pub use array::SharedArray;
pub use caller::caller_of;
pub use config::{Config, Twins};
pub use context::SharedContext;
pub use error::Error;
pub use kumi_coherence::{Migration, Misuse, Placement, Protocol, Sharing};
pub use shared_memory::{Addresses, HeldLock, SharedMemory};
pub use statistics::{Count, Statistics};
