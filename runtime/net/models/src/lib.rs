//! The protocols of shared memory, run through by a model checker (loom): all interleavings of two or three
//! threads up to a number of preemptions, and all values that the memory model lets a load see.
//!
//! What is checked is the code itself, not a copy: the files that hold these protocols import atomics, sleeps and
//! plain memory from `crate::sync`, and are compiled here once more with this crate's `sync` in the place of
//! their own. The checker knows sequentially consistent fences, but not accesses: these are modelled as a fence
//! and an access with acquire or release order, in each of the two ways in which compilers translate them, so
//! whatever is found can happen on some processor.
//!
//! Every model ends with all its threads, or the checker names a deadlock, which is a lost wake-up; plain memory
//! that two threads reach without order between them is a failure too.

// Their own tests are about real memory.
#![cfg(not(test))]
#![allow(dead_code)] // The sources hold more than the models use.

#[path = "../../src/shm/doorbell.rs"]
mod doorbell;
#[path = "../../src/shm/idle_flag.rs"]
mod idle_flag;
mod layout;
#[path = "../../src/channel/lock.rs"]
mod lock;
pub mod models;
#[path = "../../../mem/src/fifo/queue.rs"]
mod queue;
#[path = "../../src/shm/ring.rs"]
mod ring;
mod sync;
