//! The channel protocol as a pure state machine: reliable frames, in order for each pair of ranks, over
//! a wire that loses, doubles, reorders, delays and corrupts packets.
//!
//! Datagrams, commands and the time go in; packets and deliveries come out. No socket, no clock, no
//! thread. `docs/reference/channel-protocol.md` has the bytes and the rules.
//!
//! ```
//! use kumi_proto::{ChannelKey, Config, Delivery, Endpoint, Rank, Sink};
//!
//! struct Print;
//! impl Sink for Print {
//!     fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery {
//!         assert_eq!((from, frame), (0, &b"hello"[..]));
//!         Delivery::Taken
//!     }
//! }
//!
//! let key = ChannelKey(7);
//! let mut zero = Endpoint::new(Config::default(), 0, 2, key)?;
//! let mut one = Endpoint::new(Config::default(), 1, 2, key)?;
//! zero.send(0, 1, &[b"hel", b"lo"])?;
//! while let Some(transmit) = zero.poll_transmit(0) {
//!     for datagram in transmit.datagrams() {
//!         one.handle_datagram(10, datagram, &mut Print);
//!     }
//! }
//! assert_eq!(one.counters().delivered, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod config;
mod congestion_window;
pub mod context;
mod counters;
mod endpoint;
pub mod frame;
mod peer;
mod peer_counts;
mod queueing_delay;
mod reordering;
mod retransmission_timeout;
pub mod seal;
pub mod wire;

pub use config::{AckMode, Checksum, Config, ConfigError};
pub use context::{ContextError, ContextMemory, HeapMemory};
pub use counters::{Counters, PeerCounters};
pub use endpoint::{ChannelEnd, Delivery, Endpoint, LandedSink, Piece, SendError, Sink, Transmit};
pub use peer_counts::PEERS_LISTED;
pub use seal::SealKey;
pub use wire::ChannelKey;

/// A rank's number in its job: dense, from 0.
pub type Rank = u32;

/// Microseconds on the caller's monotonic clock. Only differences matter.
pub type Micros = u64;
