//! Control of a cluster as pure state machines: membership, life of jobs and the control tree.
//!
//! Two machines and what they say to each other: [`agent::Agent`] is in every node's daemon,
//! [`head::Head`] on the head node; [`message`] is what travels between them and between a client
//! and the head. A driver hands in events with the time and carries out the actions that come out,
//! in order; neither machine knows a socket, a clock, a process or a file. What is lost with a
//! link, a daemon or the head is repaired when a node attaches again, see [`head`].
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod agent;
pub mod batch;
mod bytes;
mod channel_sample;
mod client_message;
pub mod clock;
pub mod compat;
pub mod copying;
pub mod deadlock;
pub mod disclosure;
pub mod drain;
pub mod exchange;
pub mod head;
mod idle_report;
mod job_names;
mod job_record;
mod jobs_page;
pub mod join;
mod key;
pub mod lease;
mod link_frame;
mod load_sample;
pub mod message;
mod node_condition;
mod node_set;
mod outcome;
mod process_limits;
mod report_origin;
mod resources;
mod sample;
pub mod shares;
pub mod stall_tolerant_clock;
mod standing_report;
mod status;
mod subtree;
mod terminal;
mod timetable_generation;
mod trace_sample;
mod traffic;
pub mod tree;
pub mod unrecorded_ends;
pub mod usage;
pub mod user;
mod waiting;
