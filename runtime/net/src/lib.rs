//! Kumi's channel at run time: the segment that the ranks of a node and their daemon share, the sockets, the doorbells, and the driver that moves frames
//! between a rank and its peers.
//!
//! This crate does not know what the bytes of a frame mean; [`kumi_proto`] makes them reliable, `kumi-mem` gives them a meaning.
//!
//! * [`segment`], [`launch`]: what the node's daemon needs.
//!
//! Linux only.

pub mod counters;
pub mod launch;
pub mod layout;
mod map;
pub mod segment;
pub mod sys;
