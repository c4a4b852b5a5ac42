//! Models of the shared-memory protocols for a model checker (loom). It runs all interleavings of two
//! or three threads up to a number of preemptions, and all values that the memory model lets a load
//! see.
//!
//! The models run the product's own code, not a copy. The files with these protocols import atomics,
//! sleeps and plain memory from `crate::sync`. Here they are compiled once more with this crate's
//! `sync`.
//!
//! What the models do not run is what makes system calls: `handler_thread` and `wait` of `kumi-net` only carry out what
//! `handover` and `doorbell` decide. In their place stand a timer and a doorbell of the checker.
//!
//! The checker knows sequentially consistent fences, but not accesses. Such an access is modelled as a
//! fence and an access with acquire or release order, in each of the two ways in which compilers
//! translate it. So every failure found can happen on some processor.
//!
//! Every model ends with all its threads. A lost wake-up shows as a deadlock or as a run without end.
//! Plain memory that two threads reach without order between them is a failure too.

// Their own tests are about real memory.
#![cfg(not(test))]
#![allow(dead_code)] // The sources hold more than the models use.

#[path = "../../src/shm/doorbell.rs"]
mod doorbell;
#[path = "../../src/channel/handover.rs"]
mod handover;
#[path = "../../src/shm/idle_flag.rs"]
mod idle_flag;
mod layout;
#[path = "../../src/channel/lock.rs"]
mod lock;
/// Modules by the paths that the sources use.
mod channel {
    pub(crate) use crate::lock;
}
pub mod models;
#[path = "../../../mem/src/fifo/queue.rs"]
mod queue;
#[path = "../../src/shm/ring.rs"]
mod ring;
#[path = "../../src/shared_bytes.rs"]
mod shared_bytes;
mod sync;
#[path = "../../src/disclosure/turn_table.rs"]
mod turn_table;
#[path = "../../src/shm/wait_place.rs"]
mod wait_place;
