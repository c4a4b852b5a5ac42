//! How MPI programs learn who they are: PMI-1 and PMI-2 as state machines, and what the server of a job on a node says to
//! the node's daemon.
//!
//! Bytes of ranks and answers of other nodes go in, bytes for ranks and messages for other nodes come out. Nothing here
//! knows a socket, a process or PMIx. Nothing that a rank writes is believed: lines, keys, values and what is kept are bounded.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod frame;
pub mod journal;
pub mod key_values;
pub mod mapping;
pub mod message;
pub mod peer;
pub mod pmi;
