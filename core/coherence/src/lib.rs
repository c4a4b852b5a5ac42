//! The protocol of distributed shared memory (Mocha/JIAJIA, and SSS-CORE's UDSM): a pure state machine. Calls of the program and
//! messages of other ranks go in, [`Event`]s come out.
//!
//! - [`Coherence`] is one rank's part: locks, barriers, conditions, who has to forget which pages, and where pages have
//!   their homes.
//! - [`PageState`] is what a node notes of its copy of one page, which all its ranks share.
//! - [`ReadAhead`] and [`FetchBudget`] say which pages to fetch before they are touched.
//! - [`diff`] compares a page with its twin and merges what others changed.
//!
//! The channel below delivers messages exactly once and in order for each pair of ranks. This crate knows no memory that is
//! shared, no clock and no thread. The protocol is described in docs/reference/dsm-protocol.md.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod barrier;
mod condition;
pub mod diff;
mod error;
mod event;
mod flush;
mod history;
mod homes;
mod locks;
pub mod message;
mod notices;
mod page_set;
mod page_state;
mod rank;
pub mod read_ahead;
mod stale;
mod updates;
mod wire;

pub use barrier::BarrierKind;
pub use error::{BadMessage, Misuse};
pub use event::{Acquired, Event, Events};
pub use history::FetchBudget;
pub use homes::{Home, Migration, Placement, Sharing};
pub use message::Message;
pub use notices::{Interval, Knowledge, Protocol};
pub use page_set::PageSet;
pub use page_state::{Lookup, PageState};
pub use rank::{Coherence, Config};
pub use read_ahead::ReadAhead;

/// A rank of the job.
pub type Rank = u32;

/// What a wait of the program is known by; its driver chooses the number, one for each thread.
pub type Ticket = u64;
