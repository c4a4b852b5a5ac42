//! Kumi's channel at run time: the segment that the ranks of a node and their daemon share, the
//! sockets, the doorbells, and the driver that moves frames between a rank and its peers.
//!
//! This crate does not know what the bytes of a frame mean; [`kumi_proto`] makes them reliable,
//! `kumi-mem` gives them a meaning.
//!
//! * [`segment`], [`launch`]: what the node's daemon needs.
//! * [`Place`], [`Channel`]: what a rank needs. A channel is driven by whoever holds its lock: the
//!   main thread while it waits or sends, otherwise the handler thread.
//!
//! Linux only.

mod ack;
mod barred;
mod channel;
mod core;
pub mod counters;
pub mod disclosure;
mod doorbell;
mod doze;
mod driver;
mod faults;
mod finish;
mod forks;
#[cfg(any(test, fuzzing))]
pub mod fuzzed;
mod idle;
pub mod launch;
pub mod layout;
mod lend;
mod lock;
mod map;
mod nudge;
mod overdue;
mod path;
mod place;
pub mod priority;
pub mod probes;
mod publish;
mod ring;
pub mod segment;
mod settle;
pub mod spawn;
mod spin;
mod sync;
pub mod sys;
mod thread;
mod udp;
mod wait;

pub use channel::{Channel, ChannelError, Guard, Settings};
pub use core::{Answers, Handler};
pub use kumi_proto::{Delivery, PEERS_LISTED, PeerCounters, SealKey, frame};
pub use nudge::Nudge;
pub use place::{AttachError, Place};
pub use priority::{HandlerSetting, Policy, Priority};
pub use ring::RingDamage;
pub use spin::SpinMode;
pub use thread::quiet_thread;
pub use wait::Wait;
