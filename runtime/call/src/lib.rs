//! Remote calls of routines, whole: the server with its call slots, the metaserver, and clients.
//!
//! This crate has no code of its own. It gathers the crates of calls for the command `kumi` and for the tests that need
//! several of them. A program that only calls uses `kumi-call-client`, which is the root of this one too.
//! See docs/guide/calling.md.
#![forbid(unsafe_code)]

pub use kumi_call_access::users;
pub use kumi_call_client::*;
pub use kumi_call_generator as generator;
pub use kumi_call_generator::shipped;
pub use kumi_call_meta as meta;
pub use kumi_call_server as server;
pub use kumi_call_server::Traffic;
pub use kumi_call_wire::tls::Tls;

/// Clients of servers and metaservers.
pub use kumi_call_client as client;

/// Processes in which routines run.
pub mod slot {
    pub use kumi_call_parallel::{RankLibrary, parallel_main};
    pub use kumi_call_slot::*;
}
