//! The daemon of a node, the head of a cluster, and what the command shares with them.
//!
//! Thin drivers around the pure state machines of `kumi-control`: sockets, processes, control
//! groups, clocks and files are here, decisions are there.
#![forbid(unsafe_code)]

mod admin_program;
pub mod client;
pub mod config;
pub mod exit;
pub mod frame;
pub mod paths;

pub use kumi_cgroup as cgroup;

pub mod clock;
mod durable;
pub mod durations;
mod event_loop;
pub mod fill;
mod handshake_limit;
pub mod head;
pub mod idle;
pub mod job;
pub mod join;
pub mod keep;
pub mod limits;
pub mod link;
mod link_thread;
mod listening;
pub mod log;
mod lookup;
pub mod names;
pub mod node;
pub mod peer;
pub mod process_limits;
mod process_metrics;
mod process_table;
mod random;
mod service;
pub mod sizes;
pub mod switch;
mod tcp;
pub mod tls;
mod user_connections;
mod verdict;
pub mod watch;
pub mod wire;
