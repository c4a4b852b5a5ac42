//! Benchmarks: figures, each as a ratio to a named peer measured in the same run.
//!
//! Ours and the peer run in turn, several times, on the same nodes and processors. The result is the
//! median over the turns of the ratio within a turn, because processors drift in between. Where the
//! difference is small the turns are windows of a fraction of a second, see [`meter`]. `kumi-bench all`
//! prints a table for each benchmark and writes the same as JSON.
#![forbid(unsafe_code)]

pub mod cluster;
pub mod dsm_peers;
pub mod error;
pub mod figures;
pub mod head_load;
pub mod interrupt;
pub mod machine;
pub mod meter;
pub mod origin;
pub mod peer;
pub mod progress;
pub mod pseudo_terminal;
pub mod reality;
pub mod record;
pub mod report;
pub mod thinking;
pub mod ucx;
