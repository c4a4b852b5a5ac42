//! Kumi's channel at run time: the segment that a node's ranks and daemon share, sockets, doorbells,
//! and the drivers that move packets between a rank and its peers.
//!
//! This crate does not know what the bytes of a frame mean; [`kumi_proto`] makes them reliable,
//! `kumi-mem` gives them a meaning.
//!
//! * [`segment`], [`launch`], [`xdp`]: for the node's daemon.
//! * [`driver`]: for another kind of wire.
//! * [`Attachment`], [`Channel`]: for a rank. The holder of its lock drives a channel: the main thread
//!   while it waits or sends, otherwise the handler thread.
//!
//! Linux only.

// What speaks to the kernel has no caller there.
#![cfg_attr(miri, allow(dead_code, unused_imports))]

mod channel;
pub mod disclosure;
#[cfg(any(test, fuzzing))]
pub mod fuzz_targets;
#[cfg(miri)]
pub mod miri;
pub mod segment;
mod shared_bytes;
mod shm;
pub mod spawn;
mod sync;
pub mod sys;
pub mod thread_policy;
pub mod trace;
pub mod tracepoints;
mod wait;
mod wire;

pub use channel::core::{AnswerSender, Handler};
pub use channel::fork_check::ForkCheck;
pub use channel::guard::{Guard, SendRoom};
pub use channel::handler_thread::spawn_without_signals;
pub use channel::landing::ExpectedData;
pub use channel::priority::{self, HandlerSetting, Policy, Priority};
pub use channel::waker::ChannelWaker;
pub use channel::{Channel, ChannelError, ChannelSettings};
pub use kumi_proto::{Delivery, PEERS_LISTED, PeerCounters, SealKey, frame};
pub use kumi_verdict::{CallName, WaitKind};
pub use segment::attachment::{AttachError, Attachment};
pub use segment::{counters, launch, layout};
pub use shared_bytes::{CopySource, SharedBytes, SharedBytesMut};
pub use shm::ring::RingDamage;
pub use wait::Wait;
pub use wait::description::{
    Description, DescriptionScope, Locator, OneWait, is_call_set, keep_description, name_call,
    one_wait, set_call, set_locator,
};
pub use wait::spin::SpinMode;
pub use wire::{Wire, driver, xdp};
